"""What a router may return: a label that it declares, a member of an Enum; one that starts nothing is warned of."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Literal

import pytest

from crewlite.errors import ConfigError
from crewlite.flow import Flow, and_, listen, or_, router, start


def test_a_router_that_returns_what_its_annotation_does_not_list_fails_and_goes_on_once_mended():
    class Plan(Flow):
        checkpoint = True
        label = "loud"
        begun = 0

        @start()
        def act(self):
            Plan.begun += 1

        @router(act)
        def judge(self) -> Literal["fine", "poor"]:
            return self.label

        @listen("fine")
        def end(self):
            return "ended"

    with pytest.raises(
        ConfigError, match="Router 'judge' returned the label 'loud', which it does not declare; its labels"
    ):
        Plan().kickoff(run_id="run")
    Plan.label = "fine"
    assert Plan().kickoff(run_id="run") == "ended"
    assert Plan.begun == 1


class Plain(Enum):
    YES = "yes"
    NO = "no"


class Text(str, Enum):  # noqa: UP042 - as programs of before Python 3.11 have it
    YES = "yes"
    NO = "no"


class Number(IntEnum):
    YES = 1
    NO = 2


@pytest.mark.parametrize("kind", [Plain, Text, Number])
@pytest.mark.parametrize("declare", [lambda kind: kind, list, lambda kind: None])
def test_members_of_any_enum_are_labels_and_conditions(kind, declare):
    class Plan(Flow):
        @start()
        def act(self):
            return "acted"

        @router(act, emit=declare(kind))
        def judge(self):
            return kind.YES if self.state else kind.NO

        @listen(or_(kind.YES, "act"))
        def other(self): ...

        @listen(and_(kind.YES, other))
        def end(self):
            return "ended"

    assert Plan().kickoff() == "ended"
    assert {(edge.target, edge.label) for edge in Plan.graph.edges if edge.source == "judge"} == {
        ("other", str(kind.YES.value)),
        ("end", str(kind.YES.value)),
    }


def test_a_label_that_starts_nothing_and_resembles_one_that_does_is_warned_of(caplog):
    class Judged(Flow):
        @start()
        def begin(self, ending="oved"):
            return ending

        @router(begin)
        def judge(self, ending):
            return "".join(["appr", ending])

        @listen("approved")
        def end(self):
            return "ended"

    ended = Judged().kickoff(inputs={"ending": "ved"}), Judged().kickoff(inputs={"ending": "itrary"})
    assert (*ended, Judged().kickoff()) == ("apprved", "appritrary", "ended")
    [told] = caplog.messages
    assert told == "method:judge@begin returned the label 'apprved', which starts no method; did you mean 'approved'?"
