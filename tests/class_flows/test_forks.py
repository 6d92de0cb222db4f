"""Which methods of a flow run again in a fork: those behind an edited or repeated one, and no others."""

import re
from enum import Enum
from functools import partial
from typing import Literal

import pytest
from pydantic import BaseModel

from crewlite import History, event_bus
from crewlite.errors import ConfigError, RefError
from crewlite.events import MethodExecutionStartedEvent
from crewlite.flow import Flow, and_, listen, or_, router, start
from tests.cuts import RUN


def _ran(flow) -> tuple[set[str], object]:
    """The methods that a fork runs, as its preview has foreseen, and its result."""
    foreseen = {one.address for one in flow.preview() if "run" in one.verdict and one.kind == "method"}
    begun = set()
    with event_bus.scoped():
        event_bus.on(MethodExecutionStartedEvent, lambda source, event: begun.add(event.address))
        result = flow.kickoff()
    assert foreseen == begun
    return {at.removeprefix("method:").partition("@")[0] for at in begun}, result


@pytest.mark.parametrize("counts", [True, False], ids=["with state", "without"])
@pytest.mark.parametrize(
    ("changed", "given"),
    [
        ({"edits": {"method:a": "X"}}, "b"),
        ({"edits": {"method:b": "X"}}, "X"),
        ({"rerun": ["method:a"]}, "a"),
        ({"rerun": ["method:b"]}, "b"),
    ],
)
def test_a_method_behind_several_runs_again_whichever_of_them_is_changed(memory, changed, given, counts):
    class Plan(Flow):
        checkpoint = memory()
        max_concurrency = 1

        @start()
        def a(self):
            if counts:
                self.state["a"] = 1
            return "a"

        @start()
        def b(self):
            return "b"

        @start()
        def other(self): ...

        @listen(and_(a, b))
        def c(self, given):
            return given

        @listen(and_(or_(and_(c, other), and_(a, c)), b))
        def d(self, given):
            return given

        @listen(other)
        def e(self): ...

    plan = Plan()
    plan.kickoff(run_id=RUN)
    repeated = {at.removeprefix("method:") for at in changed.get("rerun", ())}
    assert _ran(plan.fork(RUN, **changed)) == ({"c", "d"} | repeated, given)


def test_of_methods_joined_first_with_first_only_those_behind_a_changed_one_run_again(memory):
    class Plan(Flow):
        checkpoint = memory()

        @start()
        def begin(self): ...

        @router(or_(begin, "again"))
        def turn(self):
            self.state["turns"] = self.state.get("turns", 0) + 1
            return "again" if self.state["turns"] < 3 else "enough"

        @listen("again")
        def one(self): ...

        @listen("again")
        def two(self): ...

        @listen(and_(one, two))
        def joined(self): ...

    plan = Plan()
    plan.kickoff(run_id=RUN)
    assert _ran(plan.fork(RUN, edits={"method:one@again": 1}))[0] == {"joined"}
    second = plan.fork(RUN, rerun=["method:two@again#2"], branch="second")
    begun = [one.address for one in second.preview() if one.verdict == "runs" and one.kind == "method"]
    assert begun == ["method:two@again#2", "method:joined@one&two#2"]


@pytest.mark.parametrize(
    ("base", "changed", "ran"),
    [
        ({}, {"edits": {"method:facts": "X"}}, {"index", "text", "judge", "print_it"}),
        ({}, {"rerun": ["method:style"]}, {"style", "text", "judge", "print_it"}),
        ({}, {"edits": {"method:text@facts&style": "X"}}, {"judge", "print_it"}),
        ({}, {"edits": {"method:facts": "X", "method:text@facts&style": "X"}}, {"index", "judge", "print_it"}),
        ({}, {"edits": {"method:judge@text": "bad"}}, set()),
        ({}, {"inputs": {"topic": "moons"}}, {"facts", "style", "index", "text", "judge", "print_it"}),
        ({}, {"inputs": {"port": "Brest"}}, {"facts", "index", "text", "judge", "print_it"}),
        ({}, {}, set()),
        (
            {"edits": {"method:facts": "X", "method:text@facts&style": "X"}},
            {"rerun": ["method:facts"]},
            {"facts", "index", "judge", "print_it"},
        ),
    ],
)
def test_the_table_of_what_runs_again_is_true(memory, base, changed, ran):
    """The rows are those of docs/class-flows.md."""

    class Topic(BaseModel):
        topic: str = "tides"

    class Leaflet(Flow[Topic]):
        checkpoint = memory()

        @start()
        def facts(self, port="Aden"): ...

        @start()
        def style(self): ...

        @listen(facts)
        def index(self): ...

        @listen(and_(facts, style))
        def text(self): ...

        @router(text)
        def judge(self) -> Literal["good", "bad"]:
            return "good"

        @listen("good")
        def print_it(self): ...

    leaflet = Leaflet()
    leaflet.kickoff(run_id=RUN, inputs={"port": "Aden"})
    leaflet.fork(RUN, branch="base", **base).kickoff()
    assert _ran(leaflet.fork(f"{RUN}/base", **changed))[0] == ran


class Said(Enum):
    YES = "yes"
    NO = "no"


@pytest.mark.parametrize("hint", [Literal["yes", "no"], Said, str])
def test_an_edit_of_a_router_is_one_of_its_labels(memory, hint):
    class Plan(Flow):
        checkpoint = memory()

        @start()
        def begin(self): ...

        @router(begin)
        def judge(self) -> hint:
            return "yes" if hint is str or hint is not Said else Said.NO if hint is None else Said.YES

        @listen("yes")
        def go(self):
            return "gone"

        @listen("no")
        def stay(self):
            return "stayed"

    plan, at = Plan(), "method:judge@begin"
    plan.kickoff(run_id=RUN)
    for fork in (partial(plan.fork, RUN), partial(Plan.fork, memory(restore_from=RUN))):
        for wrong in ("maybe", 7, ["no"]):
            with pytest.raises(ConfigError, match=f"edit of {at}"):
                fork(edits={at: wrong}, branch="wrong")
    with History(plan.checkpoint.location, plan.checkpoint.provider) as history:
        with pytest.raises(RefError):
            assert history.run(f"{RUN}/wrong").steps
        with pytest.raises(ConfigError, match=r"step:initial_state sets the fields .* fork with inputs="):
            history.fork(RUN, edits={"step:initial_state": {"words": 3}})
    assert _ran(plan.fork(RUN, edits={at: "no"})) == ({"stay"}, "stayed")


@pytest.mark.parametrize(
    ("changed", "ran", "result"),
    [
        ({"edits": {"method:b@a": "B"}, "rerun": ["method:a"]}, {"a", "judge", "join"}, "Byes"),
        ({"edits": {"method:b@a": "B"}, "inputs": {"word": "c"}}, {"a", "judge", "join"}, "Byes"),
        ({"edits": {"method:a": "A"}, "inputs": {"word": "c"}}, {"b", "judge", "join"}, "Abyes"),
        ({"edits": {"method:join@b&yes": "J"}, "rerun": ["method:judge@b"]}, {"judge"}, "J"),
        ({"edits": {"method:judge@b": "no"}, "inputs": {"word": "c"}}, {"a", "b"}, "no"),
    ],
)
def test_an_edit_holds_though_what_starts_its_method_runs_again(memory, changed, ran, result):
    class Plan(Flow[dict]):
        checkpoint = memory()
        initial_state = {"word": "a"}

        @start()
        def a(self):
            return self.state["word"]

        @listen(a)
        def b(self, given):
            return given + "b"

        @router(b)
        def judge(self) -> Literal["yes", "no"]:
            return "yes"

        @listen(and_(b, "yes"))
        def join(self, given):
            return given + "yes"

    plan = Plan()
    plan.kickoff(run_id=RUN)
    fork = plan.fork(RUN, branch="changed", **changed)
    assert _ran(fork) == (ran, result)
    again = plan.fork(f"{RUN}/changed", branch="again")
    assert _ran(again) == (set(), result)


@pytest.mark.parametrize(
    ("changed", "ran", "result"),
    [
        ({"inputs": {"topic": "new"}}, {"a", "c"}, "new"),
        ({"rerun": ["method:a"]}, {"a", "c"}, "old"),
        ({"edits": {"method:a": "X"}}, {"c"}, "old"),
        ({"rerun": ["method:beside"]}, {"beside"}, "old"),
    ],
)
def test_behind_an_edit_of_an_earlier_fork_methods_run_again_if_what_the_edit_is_behind_changes(
    memory, changed, ran, result
):
    class Plan(Flow):
        checkpoint = memory()

        @start()
        def a(self):
            return self.state["topic"]

        @start()
        def beside(self): ...

        @listen(a)
        def b(self):
            return "b"

        @listen(b)
        def c(self):
            return self.state["topic"]

    plan = Plan()
    plan.kickoff(inputs={"topic": "old"}, run_id=RUN)
    first = plan.fork(RUN, edits={"method:b@a": "edited"}, branch="first")
    assert _ran(first) == ({"c"}, "old")
    again = {"beside"} if "inputs" in changed else set()  # other inputs run all methods that are not edited
    assert _ran(plan.fork(f"{RUN}/first", **changed)) == (ran | again, result)


@pytest.mark.parametrize(
    ("changed", "decided", "ran"),
    [
        ({"edits": {"method:a": "X"}}, "X", {"one", "both"}),  # an edited method keeps its place
        ({"edits": {"method:b": "X"}}, "a", set()),  # it has decided nothing
        ({"rerun": ["method:a"]}, "b", {"a", "one"}),  # a repeated one finishes after those that are recorded
        ({"rerun": ["method:b"]}, "a", {"b"}),
    ],
)
def test_which_method_an_or_goes_by_in_a_fork(memory, changed, decided, ran):
    class Plan(Flow):
        checkpoint = memory()
        max_concurrency = 1

        @start()
        def a(self):
            return "a"

        @start()
        def b(self):
            return "b"

        @start()
        def c(self):
            return "c"

        @listen(or_(a, b))
        def one(self, given):
            self.state["given"] = given

        @listen(and_(c, or_(a, b)))
        def both(self): ...

    plan = Plan()
    plan.kickoff(run_id=RUN)
    assert plan.state["given"] == "a"
    fork = plan.fork(RUN, **changed)
    assert _ran(fork)[0] == ran
    assert fork.state["given"] == decided


class Tone(BaseModel):
    tone: str = "plain"
    words: int = 0
    found: list[str] = []


class Leaflet(Flow[Tone]):
    max_concurrency = 1

    @start()
    def plan(self):
        self.state.tone, self.state.words = "warm", 10
        self.state.found.append("plan")
        return "planned"

    @start()
    def style(self):
        return f"style for {self.state.tone}"

    @listen(plan)
    def write(self, planned):
        self.state.words += 1
        self.state.found.append("write")
        return f"{planned}, {self.state.tone}, {self.state.words}"

    @listen(write)
    def end(self, text):
        return f"{text}, {self.state.found}"


def test_a_fork_edits_a_field_of_the_state_as_if_a_method_had_set_it(stored):
    leaflet = Leaflet(checkpoint=stored())
    leaflet.kickoff(run_id=RUN)
    fork = leaflet.fork(RUN, branch="dry", edits={"method:plan.state.tone": "dry", "method:plan.state.words": "41"})
    assert _ran(fork) == ({"write", "end"}, "planned, dry, 42, ['plan', 'write']")
    assert fork.state == Tone(id=fork.state.id, tone="dry", words=42, found=["plan", "write"])
    with History(leaflet.checkpoint.location, leaflet.checkpoint.provider) as history:
        assert history.run(f"{RUN}/dry").values == {**history.run(RUN).values, "tone": "dry", "words": 42}
        assert [one.address for one in history.run(f"{RUN}/dry").steps if one.edited] == ["method:plan"]
    both = leaflet.fork(f"{RUN}/dry", edits={"method:plan": "begun", "method:write@plan.state.found": []})
    assert _ran(both) == ({"end"}, "planned, dry, 42, []")
    again = leaflet.fork(f"{RUN}/dry", rerun=["method:plan"])
    assert _ran(again) == ({"plan", "write", "end"}, "planned, warm, 11, ['plan', 'write']")


def test_the_state_of_a_fork_is_as_edited_before_it_goes_on(stored):
    leaflet = Leaflet(checkpoint=stored())
    leaflet.kickoff(run_id=RUN)
    with History(leaflet.checkpoint.location, leaflet.checkpoint.provider) as history:
        history.fork(RUN, branch="dry", edits={"method:plan.state.tone": "dry"})
        assert history.run(f"{RUN}/dry").values["tone"] == "dry"


@pytest.mark.parametrize(
    ("edits", "error"),
    [
        ({"method:plan.state.ton": 1}, "method:plan.state.ton names no field of the state; did you mean 'tone'?"),
        ({"method:plan.state.words": "many"}, "the edit of words does not fit its state: Input should be a valid int"),
        ({"method:plan.state.tone": object()}, "the edit of tone does not fit its state"),
        ({"step:initial_state.state.tone": "x"}, "fork with inputs"),
    ],
)
def test_an_edit_that_the_state_cannot_take_is_refused(memory, edits, error):
    leaflet = Leaflet(checkpoint=memory())
    leaflet.kickoff(run_id=RUN)
    with pytest.raises(ConfigError, match=re.escape(error)):
        leaflet.fork(RUN, edits=edits)
    with pytest.raises(ConfigError, match="edits` and in `rerun`"):
        leaflet.fork(RUN, edits={"method:plan.state.tone": "dry"}, rerun=["method:plan"])
    for misspelt in ("method:plam.state.tone", "method:plan.state", "method:plan.state."):
        with pytest.raises(RefError, match="did you mean 'method:plan'"):
            leaflet.fork(RUN, edits={misspelt: "dry"})
