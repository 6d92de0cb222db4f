"""What callbacks said is recorded: a resume, a fork and a rebuilt crew call none again, and take none for another."""

from __future__ import annotations

import pytest

from crewlite import Crew, ToolCall
from crewlite.errors import BindMissing
from crewlite.flow import flow
from crewlite.testing import ScriptedLLM
from tests.crew.called_back import asked, crew_of, upper
from tests.parts import Stop, look


def test_what_they_return_is_recorded_so_a_resume_does_not_call_them_again(on_disk):
    called = []

    def prepare(inputs):
        called.append(dict(inputs))
        return {"topic": f"tides {len(called)}"}

    crew = crew_of(["one", Stop(), "two"], tasks=2, before_kickoff_callbacks=[prepare], checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff({"topic": "x"}, run_id="r")
    first = crew.kickoff(run_id="r")
    assert crew.kickoff({"topic": "x"}, run_id="r") == first
    assert called == [{"topic": "x"}]
    assert asked(crew) == ["About tides 1, 0", "About tides 1, 1", "About tides 1, 1"]
    assert [output.description for output in first.tasks_output] == ["About tides 1, 0", "About tides 1, 1"]


def test_a_fork_with_other_inputs_prepares_them_and_asks_anew(on_disk):
    crew = crew_of(
        lambda messages: f"on {messages[-1]['content'].partition(',')[0][6:]}",
        tasks=2,
        before_kickoff_callbacks=[lambda inputs: {"topic": inputs["topic"].upper(), **inputs, "extra": 1}, upper],
        checkpoint=on_disk(),
    )
    assert crew.kickoff({"topic": "tides"}, run_id="r").raw == "on TIDES"
    fork = crew.fork("r", branch="f", inputs={"topic": "moons", "more": 1})
    assert [output.raw for output in fork.kickoff().tasks_output] == ["on MOONS", "on MOONS"]
    assert [output.raw for output in fork.kickoff().tasks_output] == ["on MOONS", "on MOONS"]
    assert crew.kickoff(run_id="r").raw == "on TIDES"


def test_what_they_change_is_recorded(on_disk):
    called = []

    def sign(result):
        called.append(result.raw)
        return result.model_copy(update={"raw": f"{result.raw} {len(called)}", "json_dict": {"a": [1]}})

    crew = crew_of(["done"], after_kickoff_callbacks=[sign], checkpoint=on_disk())
    first = crew.kickoff({"topic": "tides"}, run_id="r")
    assert (first.raw, first.json_dict) == ("done 1", {"a": [1]})
    assert crew.kickoff(run_id="r") == first
    assert called == ["done"]


def test_a_step_callback_added_to_an_unfinished_run_asks_no_model_again(on_disk):
    replies = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"}), Stop(), "done"]
    with pytest.raises(Stop):
        (crew := crew_of(replies, agent={"tools": [look]}, checkpoint=on_disk())).kickoff({"topic": "t"}, run_id="r")
    heard = []
    crew = crew.model_copy(update={"step_callback": heard.append})
    assert crew.kickoff(run_id="r").raw == "done"
    assert len(crew.tasks[0].agent.llm.calls) == 4
    assert len(heard) == 3


def test_in_a_flow_they_are_steps_of_the_flow(on_disk):
    called = []

    def sign(result):
        called.append(result.raw)
        result.raw += " signed"

    crew = crew_of(["a"], before_kickoff_callbacks=[upper], after_kickoff_callbacks=[sign])

    @flow(checkpoint=on_disk())
    def whole(cut: bool = True):
        result = crew.kickoff({"topic": "tides"})
        if not called[1:]:
            called.append("cut")
            raise Stop
        return [result.raw, result.tasks_output[0].description, result.tasks_output[0].agent]

    with pytest.raises(Stop):
        whole.kickoff(run_id="r")
    assert whole.kickoff(run_id="r") == ["a signed", "About TIDES, 0", "Clerk of TIDES"]
    assert called == ["a", "cut"]


def test_they_are_bound_again_where_a_crew_is_rebuilt(on_disk):
    def check(inputs):
        return inputs | {"topic": "checked"}

    replies = ["a", Stop()]
    fields = {"before_kickoff_callbacks": [upper, check, check], "after_kickoff_callbacks": [print]}
    crew = crew_of(replies, tasks=2, **fields, step_callback=print, task_callback=print, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff({"topic": "tides"}, run_id="r")
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(on_disk(restore_from="r"))
    assert [name for name in caught.value.missing if "callback" in name] == [
        "after_kickoff_callbacks.print",
        "before_kickoff_callbacks.upper",
        "before_kickoff_callbacks.check",
        "before_kickoff_callbacks.check#2",
        "step_callback",
        "task_callback",
    ]
    live = {"upper": upper, "check": check, "check#2": check, "print": print, "step_callback": None}
    bind = live | {"task_callback": None, "llm": ScriptedLLM(["b"])}
    again = Crew.from_checkpoint(on_disk(restore_from="r"), bind=bind)
    assert again.before_kickoff_callbacks == (upper, check, check)
    assert [output.description for output in again.kickoff().tasks_output] == ["About checked, 0", "About checked, 1"]


def told_in(heard):
    """Three callbacks of a result: one signs it, one is told of it, one stops the run."""

    def sign(result):
        heard.append("sign")
        result.raw += " signed"

    def mail(result):
        heard.append(f"mail {result.raw}")

    def cut(result):
        raise Stop

    return sign, mail, cut


def test_no_after_callback_is_taken_for_another_that_stood_in_its_place(on_disk):
    heard = []
    sign, mail, cut = told_in(heard)

    def crew(*callbacks):
        return crew_of(["done"], after_kickoff_callbacks=callbacks, checkpoint=on_disk())

    for run_id, later, told, raw in [
        ("removed", [mail], ["mail done"], "done"),
        ("before it", [mail, sign], ["mail done"], "done signed"),
        ("behind it", [sign, mail], ["mail done signed"], "done signed"),
        ("two of it", [sign, sign], ["sign"], "done signed signed"),
    ]:
        with pytest.raises(Stop):
            crew(sign, cut).kickoff({"topic": "t"}, run_id=run_id.replace(" ", "-"))
        heard.clear()
        assert crew(*later).kickoff(run_id=run_id.replace(" ", "-")).raw == raw, run_id
        assert heard == told, run_id


def test_one_that_is_given_something_else_now_is_called_again(on_disk):
    heard = []
    sign, mail, cut = told_in(heard)
    with pytest.raises(Stop):
        crew_of(["done"], after_kickoff_callbacks=[sign, mail, cut], checkpoint=on_disk()).kickoff(
            {"topic": "t"}, run_id="r"
        )
    heard.clear()
    crew_of([], after_kickoff_callbacks=[mail], checkpoint=on_disk()).kickoff(run_id="r")
    assert heard == ["mail done"]


def test_a_rebuilt_crew_may_leave_a_callback_out(on_disk):
    heard = []
    sign, mail, cut = told_in(heard)
    cut.__name__ = "mail"
    with pytest.raises(Stop):
        crew_of(["done"], after_kickoff_callbacks=[sign, cut], checkpoint=on_disk()).kickoff({"topic": "t"}, run_id="r")
    heard.clear()
    bind = {"after_kickoff_callbacks.sign": None, "mail": mail, "llm": ScriptedLLM([])}
    assert Crew.from_checkpoint(on_disk(restore_from="r"), bind=bind).kickoff().raw == "done"
    assert heard == ["mail done"]


@pytest.mark.parametrize(
    ("first", "then", "called"), [("p", "vp", "v"), ("vp", "p", ""), ("vp", "pv", "v"), ("p", "w", "w")]
)
def test_no_before_callback_is_taken_for_another(on_disk, first, then, called):
    heard = []

    def p(inputs):
        heard.append("p")
        return inputs | {"topic": inputs["topic"].strip() + "!"}

    def v(inputs):
        heard.append("v")

    def w(inputs):
        heard.append("w")
        return inputs | {"topic": inputs["topic"].strip() + "?"}

    def crew(replies, names):
        callbacks = [{"p": p, "v": v, "w": w}[name] for name in names]
        return crew_of(replies, tasks=2, before_kickoff_callbacks=callbacks, checkpoint=on_disk())

    with pytest.raises(Stop):
        crew(["one", Stop()], first).kickoff({"topic": " t "}, run_id="r")
    heard.clear()
    later = crew(["two"], then)
    last = later.kickoff(run_id="r").tasks_output[1]
    assert (last.description, "".join(heard)) == (f"About t{'?' if then == 'w' else '!'}, 1", called)
    assert later.kickoff(run_id="r").tasks_output[1] == last


def test_callbacks_without_a_name_are_known_by_what_they_do(on_disk):
    heard = []

    def crew(*callbacks, replies=()):
        return crew_of(replies, after_kickoff_callbacks=callbacks, checkpoint=on_disk())

    def cut(result):
        raise Stop

    two = [lambda result: heard.append("one"), lambda result: heard.append("two")]
    with pytest.raises(Stop):
        crew(*two, cut, replies=["done"]).kickoff({"topic": "t"}, run_id="r")
    heard.clear()
    crew(two[1], lambda result: heard.append("three")).kickoff(run_id="r")
    assert heard == ["three"]


def test_a_callback_of_a_task_is_not_that_of_its_crew_nor_of_a_step(on_disk):
    heard = []

    def tell(output):
        heard.append(type(output).__name__)

    def cut(output):
        raise Stop

    def crew(own, **fields):
        return crew_of(["done"], task={"callback": own}, checkpoint=on_disk(), **fields)

    with pytest.raises(Stop):
        crew(lambda output: heard.append("own"), task_callback=cut).kickoff({"topic": "t"}, run_id="r")
    crew(None, task_callback=lambda output: heard.append("crew")).kickoff(run_id="r")
    assert heard == ["own", "crew"]
    with pytest.raises(Stop):
        crew(tell, task_callback=cut).kickoff({"topic": "t"}, run_id="s")
    heard.clear()
    crew(None, step_callback=tell).kickoff(run_id="s")
    assert heard == ["AgentFinish"]
