"""Passages are found by their words: the same ones for the same text, in any script, whatever else is there."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from crewlite import Knowledge
from crewlite.knowledge import StringKnowledgeSource
from crewlite.knowledge.passages import pieces


def shelf(*texts, **fields):
    return Knowledge(sources=[StringKnowledgeSource(content=text, **fields) for text in texts])


def found(knowledge, query, limit=1):
    return [one["content"] for one in knowledge.query(query, results_limit=limit)]


FACTS = (
    "The harbour closes at ten.",
    "Returns are accepted within thirty days.",
    "Our policy on refunds is generous.",
    "Häuser in Brest kosten viel.",
    "東京タワーは高いです。",
    "안녕하세요 세계",
)


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("When does the HARBOUR close?", 0),
        ("How is something returned?", 1),
        ("refund policies", 2),
        ("Was kostet ein Hauser?", 3),
        ("東京", 4),
        ("세계", 5),
    ],
)
def test_a_passage_is_found_by_its_words_in_other_forms_and_scripts(query, number):
    assert found(shelf(*FACTS), query) == [FACTS[number]]


def test_a_rare_word_weighs_more_than_a_frequent_one():
    texts = ["the cost of the boat", "the cost of the car", "the colour of the mistral", "the cost of it all"]
    assert found(shelf(*texts), "the cost of the mistral") == ["the colour of the mistral"]


def test_passages_without_a_word_of_the_query_are_not_shown_unless_all_of_them_fit():
    assert found(shelf(*FACTS), "volcano", 5) == []
    assert found(shelf(*FACTS), "volcano", 6) == list(FACTS)
    assert found(shelf(*FACTS), "", 5) == []


def test_equal_passages_stay_in_their_order_and_scores_are_told():
    knowledge = shelf("a tide", "a tide", "a wind", "a rock")
    first, second = knowledge.query(["tide"], results_limit=3)
    assert first == second == {"content": "a tide", "source": "", "score": first["score"]}
    assert first["score"] > 0


def test_a_piece_ends_where_a_line_or_a_word_ends_and_the_next_one_overlaps():
    assert list(pieces("one two three\nfour five six", 16, 4)) == ["one two three", "ree\nfour five", "ive six"]
    assert list(pieces("x" * 10, 4, 1)) == ["xxxx", "xxxx", "xxxx"]
    assert list(pieces(" \n ", 4, 1)) == []


@given(st.text(alphabet="ab \n", max_size=200), st.integers(1, 30), st.data())
def test_pieces_are_short_enough_and_lose_no_word_that_fits_the_overlap(text, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    made = list(pieces(text, size, overlap))
    assert all(0 < len(piece) <= size for piece in made)
    assert len(made) <= 1 + 2 * len(text) / (size - overlap) + 1
    assert all(any(word in piece for piece in made) for word in text.split() if len(word) <= overlap)
    assert "".join(text.split()) == "" or made


def test_thousands_of_passages_are_searched_at_once():
    text = "\n".join(f"Rule {number}: berth {number} is for boat b{number}." for number in range(20_000))
    knowledge = shelf(text, chunk_size=200, chunk_overlap=0)
    assert "berth 17123 is" in found(knowledge, "Who has berth 17123?")[0]
