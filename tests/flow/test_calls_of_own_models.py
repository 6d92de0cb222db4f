"""`llm.call(...)` of a model that answers by a `call` of its own: recorded in a run, and plain elsewhere."""

import functools

import pytest

from crewlite import LLM, Agent, BaseLLM, CheckpointConfig
from crewlite.flow import flow
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of
from tests.parts import history, look

LOOK = look.schema_for_model


class Own(BaseLLM):
    """A model that answers by a `call` of its own, as models that were written for CrewAI do."""

    model = "own"

    def __init__(self):
        super().__init__()
        self.told = []

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **more):
        self.told.append((messages[-1]["content"], tools or None))
        return f"re: {messages[-1]['content']}"


class Polite(Own):
    """A model that calls the method that it overrides."""

    def call(self, messages, *also, **more):
        return super().call([{"role": "user", "content": f"please {messages[-1]['content']}"}], *also, **more)


class Derived(LLM):
    """A class of CrewAI's kind that derives from LLM, and asks somebody else."""

    def __init__(self):
        super().__init__("openai/x", base_url="http://127.0.0.1:1/v1")
        self.told = []

    call = Own.call


@pytest.mark.parametrize(
    ("cls", "said"), [(Own, "{}"), (Polite, "please {}"), pytest.param(Derived, "{}", marks=pytest.mark.litellm)]
)
def test_the_call_that_a_class_of_models_defines_is_recorded(cls, said):
    def course(llm, setting):
        @flow(checkpoint=setting)
        def one():
            answers = [llm.call("a"), llm.call([{"role": "user", "content": "b"}], [LOOK]), llm.call(messages="c")]
            return [*map(str, answers), Agent(role="A", goal="g", llm=llm).kickoff("d").raw]

        return one.kickoff(run_id=RUN)

    whole, llm = CheckpointConfig(location="whole", provider=InMemoryProvider()), cls()
    result = course(llm, whole)
    assert result == [f"re: {said.format(text)}" for text in "abcd"]
    assert llm.told[:3] == [(said.format("a"), None), (said.format("b"), [LOOK]), (said.format("c"), None)]
    entries = entries_of(whole)
    for at in range(1, len(entries) + 1):
        again, other = cut(entries, at), cls()
        with history(again) as found:
            known = sum(one.kind == "llm" and one.status == "finished" for one in found.run(RUN).steps)
        assert course(other, again) == result, f"cut after commit {at}"
        assert other.told == llm.told[known:], f"cut after commit {at}"
    assert known == 4


def test_any_call_that_answers_in_the_code_of_a_run_answers_outside_too(on_disk):
    class Static(BaseLLM):
        @staticmethod
        def call(messages):
            return "static"

    class Renamed(BaseLLM):
        def call(self, prompt="by default"):
            return f"renamed {type(prompt).__name__}"

    class Shaped(BaseLLM):
        def call(self, messages, response_model=None):
            return {"ok": True} if response_model else "text"

    class Kept(BaseLLM):
        @functools.lru_cache  # noqa: B019
        def call(self, text):
            return f"kept {text}"

    def calls():
        renamed, shaped = Renamed(), Shaped()
        said = [Static().call("x"), renamed.call(prompt="x"), renamed.call(), shaped.call("x"), Kept().call("x")]
        return [*map(str, said), shaped.call("x", response_model=dict)]

    expected = ["static", "renamed str", "renamed str", "text", "kept x", {"ok": True}]
    assert calls() == expected
    expected[1] = "renamed list"
    assert flow(calls, checkpoint=on_disk()).kickoff(run_id="r") == expected


def test_the_call_that_a_class_of_models_defines_is_plain_elsewhere(on_disk):
    llm = Own()

    def helper():
        return llm.call([{"role": "user", "content": "x"}])

    @flow(checkpoint=on_disk())
    async def waits():
        return helper()

    outside = llm.call([{"role": "user", "content": "outside"}])
    assert (outside, type(outside)) == ("re: outside", str)
    assert waits.kickoff(run_id="w") == "re: x"
    with history(on_disk()) as found:
        assert [one.kind for one in found.run("w").steps] == ["flow"]


def test_a_model_of_your_own_is_given_tools_in_a_form_of_its_own_in_a_run_too(on_disk):
    tools, told = [{"name": "lookup", "input_schema": {}}], []
    llm = ScriptedLLM(lambda messages, tools=(): told.append(tools) or "fine")

    @flow(checkpoint=on_disk())
    def one():
        return str(llm.call("x", tools=tools))

    assert (llm.call("x", tools=tools), one.kickoff(run_id="r"), told) == ("fine", "fine", [tools, tools])
