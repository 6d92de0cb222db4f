"""The promises of a store, as laws: each is a function whose docstring states the law."""

from __future__ import annotations

from collections.abc import Callable

from crewlite.testing.bench import Bench
from crewlite.testing.laws import compaction, forks, journals, listings, remembering

Law = Callable[[Bench], None]

LAWS: tuple[Law, ...] = (
    journals.a_provider_has_a_name_and_opens_locations,
    journals.what_was_never_written_is_empty,
    journals.entries_come_back_byte_for_byte,
    journals.entries_keep_their_order,
    journals.a_branch_that_moved_on_is_not_written_over,
    journals.a_branch_is_made_once,
    journals.trying_again_is_safe,
    journals.trying_again_may_bring_more,
    journals.several_branches_fit_in_one_append,
    journals.several_commits_to_a_branch_fit_in_one_append,
    journals.a_refused_commit_leaves_the_others_whole,
    listings.checkpoints_are_listed_newest_first,
    listings.checkpoints_are_found_by_a_part_of_their_id,
    listings.checkpoints_come_in_pages,
    listings.dropped_checkpoints_are_gone,
    listings.abandoned_checkpoints_are_told_apart,
    listings.refs_name_checkpoints_from_anywhere,
    listings.branches_are_listed_newest_run_first,
    listings.branches_are_listed_by_run,
    forks.a_fork_holds_its_own_entries_alone,
    forks.a_fork_needs_its_base,
    forks.a_fork_is_made_once,
    forks.a_new_run_appears_with_all_its_branches,
    forks.a_branch_begins_at_its_beginning,
    compaction.sums_are_found_by_number,
    compaction.signs_of_life_are_kept,
    compaction.a_journal_is_rewritten_as_a_whole,
    compaction.who_looks_is_not_in_the_way_of_who_writes,
    compaction.what_moved_or_bears_a_fork_is_not_rewritten,
    compaction.a_rewrite_accounts_for_every_entry,
    compaction.what_a_branch_goes_back_to_stays,
    compaction.a_run_is_removed_as_a_whole,
    compaction.a_run_that_moved_is_not_removed,
    journals.stores_of_one_location_see_each_other,
    journals.what_is_stored_survives_closing,
    journals.readers_see_only_whole_commits,
    compaction.readers_see_a_journal_before_or_after_it_is_rewritten,
    journals.any_usable_name_is_kept_apart,
    journals.names_beyond_the_rule_are_refused,
    remembering.what_is_remembered_is_recalled,
    remembering.what_is_remembered_survives_closing,
    remembering.what_is_remembered_is_of_no_run,
    remembering.what_is_old_is_forgotten,
    remembering.what_several_remember_at_once_is_whole,
    remembering.what_was_changed_meanwhile_is_not_exchanged,
    remembering.of_several_exchanges_at_once_one_succeeds,
)
"""All laws, in the order in which they are checked."""
