"""Commits, values and checkpoints damaged as chance would seldom do it, and what each kind of damage is called."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import example, given, strategies as st

from crewlite.encoding.codec import decode
from crewlite.errors import CrewliteError, JournalCorrupt, SchemaTooNew
from crewlite.ids import new_id, now
from crewlite.state.format.entry import SCHEMA, InvalidEntry, next_entry, parse, seal, unseal
from crewlite.state.format.record import Record
from crewlite.state.providers.reading import check_follows
from crewlite.state.reading.progress import result_of
from crewlite.testing.bench import Branch


def read_back(commit):
    """What a reader makes of a commit that was sealed as it should be."""
    entry = seal(commit, after="")
    return unseal(entry.body, entry.seal, after="", where="here")


def beginning(**more):
    return {**Branch().add().entries[0].commit, **more}


def step(**more):
    return {"address": "a", "kind": "llm", "fingerprint": "f", "value": {"text": "t"}, "digest": "d", "ms": 1, **more}


@pytest.mark.parametrize(
    "commit",
    [
        beginning(seq="1"),
        beginning(seq=True),
        beginning(at="soon"),
        beginning(at="2026-01-01T00:00:00"),
        beginning(at="0001-01-01T00:00:00+00:00"),
        beginning(run=None),
        beginning(run={**beginning()["run"], "run_id": "../x"}),
        beginning(run={k: v for k, v in beginning()["run"].items() if k != "inputs"}),
        beginning(run={**beginning()["run"], "inputs": {"$": "datetime", "v": "2026-01-01"}}),
        beginning(run={**beginning()["run"], "definition": {"kind": "crew", "name": "c"}}),
        beginning(steps=[step(kind=None)]),
        beginning(steps=[step(ms=2**70)]),
        beginning(steps=[{"address": "a", "kind": "llm", "ms": 1}]),
        beginning(steps=[step(error={"type": "E"})]),
        beginning(steps=[step(value={"text": "t", "tool_calls": {"look": {}}})]),
        beginning(steps=[step(value={"text": "t", "tool_calls": [[{}, {}, "id"]]})]),
        beginning(steps=[step(value={"text": "t", "tool_calls": [["look"]]})]),
        beginning(steps=[step(value={"text": "t", "tool_calls": [["look", 5]]})]),
        beginning(steps=[step(value={"text": "t", "tool_calls": [["look", {}, 5]]})]),
        beginning(steps=[step(value={"text": "t", "carried": 5})]),
        beginning(steps=[step(value={"text": "t", "finish": 5})]),
        beginning(events=[["a", "b", "c"]]),
        beginning(claim={"id": "a", "host": "h", "boot": "", "pid": 2**40, "started": None}),
        beginning(folded={"first": 3, "sum": "0" * 32}),
        beginning(place={"id": "../../x", "seq": 1}),
    ],
    ids=lambda commit: None,
)
def test_commits_that_no_crewlite_wrote_are_not_read_however_well_they_are_sealed(commit):
    with pytest.raises(InvalidEntry, match="no crewlite wrote this"):
        read_back(commit)


OUTCOMES = {
    "agent": {"raw": "t"},
    "crew": {"tasks": ["task:a"]},
    "guardrail": [False, "too short"],
    "human": {"answer": None},
    "llm": {"text": "t", "tool_calls": [["look", {"at": 1}, None]], "carried": {"a": 1}},
    "message": [{"role": "user", "content": "t"}],
    "observation": {"done": True},
    "plan": ["one", ""],
    "reasoning": {"steps": []},
    "summary": "t",
    "task": {"raw": {"$": "of", "v": "llm#1"}, "agent": "a"},
    "tool": {"text": {"$": "str", "v": ["\ud83c", "\udf0a"]}},
    "turn": {"raw": "t"},
}
"""What steps of these kinds are recorded with."""


@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize("value", [None, 5, True, [[]], {"$": "str", "v": [1]}, {"$": "tuple", "v": [1, 2]}], ids=str)
def test_an_outcome_that_no_step_of_its_kind_has_is_not_read(kind, value):
    read_back(beginning(steps=[step(kind=kind, value=OUTCOMES[kind])]))
    with pytest.raises(InvalidEntry, match="the outcome of 'a' is not that of an? "):
        read_back(beginning(steps=[step(kind=kind, value=value)]))


@pytest.mark.parametrize(
    "inputs",
    [{}, {"messages": None}, {"messages": "x"}, {"messages": []}, {"messages": [5]}, {"messages": [{"content": {}}]}],
)
def test_an_agent_has_been_asked_something(inputs):
    asked = beginning()
    asked["run"] = {
        **asked["run"],
        "definition": {"kind": "agent", "name": "a"},
        "inputs": {"messages": OUTCOMES["message"]},
    }
    first = read_back(asked)
    with pytest.raises(InvalidEntry, match="the inputs of an agent have no messages"):
        read_back({**asked, "run": {**asked["run"], "inputs": inputs}})
    later = next_entry({"inputs": inputs}, after=(first.seq, first.sum))
    with pytest.raises(InvalidEntry, match="the inputs of an agent have no messages"):
        check_follows(later, [first], first.commit["run"]["run_id"], "main", 2)


def test_a_flow_with_methods_ends_with_its_state():
    ended = Branch().add().entries[0].commit
    for value in (None, 5, {"result": 1}, {"state": {}}, {"result": 1, "state": []}):
        definition = {"kind": "flow", "name": "f", "methods": []}
        commit = {**ended, "run": {**ended["run"], "definition": definition}}
        commit["steps"] = [step(address="", kind="flow", value=value)]
        with pytest.raises(JournalCorrupt, match="not recorded completely"):
            result_of(Record.of([read_back(commit)]))


def test_what_a_later_release_of_the_same_schema_adds_is_kept():
    commit = beginning(more={"to": "come"}, steps=[step(more=1)])
    assert read_back(commit).commit == commit


def test_a_newer_schema_is_newer_whatever_it_looks_like():
    for commit in ({"schema": SCHEMA + 1}, {"schema": SCHEMA + 1, "seq": None, "run": 5}):
        sealed = seal({"seq": 1, **commit}, after="")
        with pytest.raises(SchemaTooNew):
            unseal(sealed.body, sealed.seal, after="", where="here")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "NaN",
            "-Infinity",
            "1e999",
            "1E999 ",
            "[-1e+309]",
            "0.1e0000310",
            "9" * 309 + ".0",
            "9" * 300 + "e9",
            "9" * 5000,
        ),
        *("[" * 100_000 + "]" * 100_000, "[" * 400 + "]" * 400, "{"),
    ],
)
def test_json_that_is_none_or_goes_too_deep_is_not_read(text):
    body = seal(beginning(more=0), after="").body.replace(b'"more":0', b'"more":' + text.encode())
    total = hashlib.blake2b(body, digest_size=16).hexdigest()
    with pytest.raises(InvalidEntry, match="JSON|deeply"):
        unseal(body, total, after="", where="here")


@given(
    text=st.from_regex(
        r"-?(0|[1-9]\d{0,320})(\.\d{1,30})?([eE][+-]?\d{1,4})?", fullmatch=True, alphabet="0123456789.eE+-"
    )
)
@example(text='"\\ud800"')
@example(text="[" * 250 + "]" * 250)
@example(text=" 1e308 ")
def test_json_is_read_as_json_reads_it(text):
    """A number too large for a float is refused, and all others keep their type and their last digit."""
    told = json.loads(f'{{"more":{text}}}')
    if told["more"] in (math.inf, -math.inf):
        with pytest.raises(InvalidEntry, match="not a finite number"):
            parse(f'{{"more":{text}}}'.encode())
    else:
        assert repr(parse(f'{{"more":{text}}}'.encode())) == repr(told)


@pytest.mark.parametrize(
    "data",
    [
        {"$": "datetime", "v": 5},
        {"$": "datetime"},
        {"$": []},
        {"$": "dict", "v": [[1]]},
        {"$": "tuple", "v": 1},
        {"$": "decimal", "v": "ten"},
        {"$": "timedelta", "v": [1e300]},
        {"$": "bytes", "v": "?"},
        {"$": "model", "c": [], "v": {}},
        {"$": "zoned datetime", "v": ["2026-01-01T00:00:00", "../../etc/passwd", 0]},
        {"$": "of", "v": "nowhere"},
    ],
    ids=str,
)
def test_a_value_that_was_never_coded_is_a_typed_error(data):
    with pytest.raises(CrewliteError):
        decode({"deep": [data]})


def test_a_value_nested_beyond_the_stack_is_a_typed_error():
    data: object = 1
    for _ in range(100_000):
        data = [data]
    with pytest.raises(JournalCorrupt, match="recorded value"):
        decode(data)


def test_a_reference_that_leads_nowhere_is_a_typed_error():
    branch = Branch().add()
    branch.add(steps=[step(value={"raw": {"$": "of", "v": "nowhere"}})])
    with pytest.raises(JournalCorrupt, match="not recorded completely"):
        Record.of(branch.entries).value("a")


def test_checkpoints_dropped_in_a_circle_end():
    branch, one, two = Branch().add(), new_id(), new_id()
    branch.add(drops=[[one, two], [two, one]])
    checkpoint = {
        "id": new_id(),
        "seq": 3,
        "parent": one,
        "trigger": "t",
        "address": "",
        "about": {},
        "at": now().isoformat(),
    }
    branch.add(place=checkpoint)
    assert Record.of(branch.entries).checkpoints.parent(checkpoint) is None


@pytest.mark.parametrize("seq", [1, 2])
def test_a_checkpoint_of_another_commit_than_it_says_is_a_typed_error(seq):
    branch = Branch().add(2)
    checkpoint = {
        "id": new_id(),
        "seq": seq,
        "parent": None,
        "trigger": "t",
        "address": "",
        "about": {},
        "sum": "0" * 32,
    }
    branch.add(place={**checkpoint, "at": now().isoformat()})
    with pytest.raises(JournalCorrupt, match="is at commit"):
        Record.of(branch.entries)
