"""Chat models of other frameworks go in as llm= by their shape; nothing of theirs is imported."""

from __future__ import annotations

import sys

import pytest
from pydantic import BaseModel, SecretStr

from crewlite import Agent, BaseLLM, Crew, History, Task, tool
from crewlite.errors import ConfigError, LLMUnavailable
from crewlite.llm.foreign import ForeignLLM


class Message:
    """What such a model returns."""

    def __init__(self, content, calls=(), **about):
        self.content, self.tool_calls, self.id = content, list(calls), "m1"
        self.usage_metadata = about.get("usage")
        self.response_metadata = about.get("metadata", {})


class ChatModel:
    """A chat model as LangChain has them."""

    def __init__(self, *says, asynchronous=True):
        self.model_name, self.openai_api_key = "gpt-4o-mini", SecretStr("sk-1234-abcdefgh")
        self.says, self.asked, self.bound = list(says), [], []
        if asynchronous:
            self.ainvoke = self._ainvoke

    def invoke(self, messages, **options):
        self.asked.append(messages)
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    async def _ainvoke(self, messages, **options):
        return self.invoke(messages, **options)


class WithTools(ChatModel):
    def bind_tools(self, tools):
        self.bound = tools
        return self


@tool
def high_water(port: str) -> str:
    """When is high water?"""
    return f"11:40 in {port}"


def usage(prompt, completion):
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_such_a_model_answers_and_its_tokens_are_counted(asynchronous):
    model = ChatModel(
        Message("At noon.", usage=usage(9, 3), metadata={"finish_reason": "stop"}), asynchronous=asynchronous
    )
    result = Agent(role="Pilot", goal="answer", llm=model).kickoff("When?")
    assert result.raw == "At noon."
    assert (result.token_usage.prompt_tokens, result.token_usage.completion_tokens) == (9, 3)
    assert model.asked[0][-1] == {"role": "user", "content": "When?"}


def test_tools_go_through_its_own_way_of_binding_them():
    call = {"name": "high_water", "args": {"port": "Brest"}, "id": 1, "type": "tool_call"}  # some give a number
    model = WithTools(Message("", [call]), Message([{"type": "text", "text": "At 11:40."}]))
    result = Agent(role="Pilot", goal="answer", llm=model, tools=[high_water]).kickoff("When?")
    assert result.raw == "At 11:40."
    assert [one["function"]["name"] for one in model.bound] == ["high_water"]
    said, answered = model.asked[1][-2:]
    assert said["tool_calls"][0]["function"] == {"name": "high_water", "arguments": '{"port": "Brest"}'}
    assert (answered["role"], answered["tool_call_id"]) == ("tool", "1")
    assert "11:40 in Brest" in answered["content"]


def test_one_that_binds_no_tools_is_told_of_them_in_writing():
    model = ChatModel(
        Message('Action: high_water\nAction Input: {"port": "Brest"}'), Message("Final Answer: At 11:40.")
    )
    assert Agent(role="Pilot", goal="answer", llm=model, tools=[high_water]).kickoff("When?").raw == "At 11:40."
    assert "11:40 in Brest" in model.asked[1][-1]["content"]


def test_what_may_work_later_is_tried_again_and_nothing_else():
    class RateLimitError(Exception):
        status_code = 429

    class APIConnectionError(Exception):
        pass

    class Wrong(Exception):
        status_code = 400

    llm = ForeignLLM(ChatModel(RateLimitError("slow down")))
    with pytest.raises(LLMUnavailable, match="gpt-4o-mini: slow down"):
        llm.call([{"role": "user", "content": "?"}])
    with pytest.raises(LLMUnavailable):
        ForeignLLM(ChatModel(APIConnectionError("lost"))).call("?")
    with pytest.raises(Wrong):
        Agent(role="Pilot", goal="answer", llm=ChatModel(Wrong("no"))).kickoff("?")


def test_its_key_is_a_secret_of_the_run(memory):
    config = memory()
    model = ChatModel(Message("the key is sk-1234-abcdefgh"))
    agent = Agent(role="Pilot", goal="answer", llm=model, checkpoint=config)
    assert agent.kickoff("When?", run_id="r").raw == "the key is [secret]"
    with History(config.location, provider=config.provider) as history:
        assert "sk-1234" not in str(
            history.run("r").entries if hasattr(history.run("r"), "entries") else history.run("r")
        )


def test_a_crew_with_such_a_model_is_recorded_and_goes_on(memory):
    config = memory()

    class Cut(Exception):
        pass

    def crew_of(*says):
        pilot = Agent(role="Pilot", goal="answer")
        tasks = [Task(name=name, description=name, expected_output="x", agent=pilot) for name in ("one", "two")]
        return Crew(tasks=tasks, llm=ChatModel(*says), checkpoint=config)

    with pytest.raises(Cut):
        crew_of(Message("1"), Cut()).kickoff(run_id="r")
    assert crew_of(Message("2")).kickoff(run_id="r").raw == "2"
    bound = Crew.from_checkpoint("r" if False else _ref(config), bind={"llm": ChatModel()})
    assert isinstance(bound.llm, BaseLLM)


def _ref(config):
    return (
        config.model_copy(update={"restore_from": "r"}, deep=False)
        if False
        else type(config)(location=config.location, provider=config.provider, restore_from="r")
    )


def test_other_objects_are_refused_by_name():
    class Client:
        def chat(self, text): ...

    class Settings(BaseModel):
        model: str = "x"

    with pytest.raises(ConfigError, match="llm is a Client, which has no invoke"):
        Agent(role="Pilot", goal="answer", llm=Client())
    with pytest.raises(ConfigError, match="llm is a Settings; wanted an instance of BaseLLM, or text"):
        Agent(role="Pilot", goal="answer", llm=Settings())
    with pytest.raises(ConfigError, match="llm is the class ChatModel; wanted an instance"):
        Crew(tasks=[], llm=ChatModel)


def test_nothing_of_langchain_is_imported():
    assert not [name for name in sys.modules if name.startswith("langchain")]


def test_a_manager_may_be_such_a_model():
    clerk = Agent(role="Clerk", goal="answer", llm="offline")
    tasks = [Task(description="Do", expected_output="x", agent=clerk)]
    crew = Crew(agents=[clerk], tasks=tasks, process="hierarchical", manager_llm=ChatModel(Message("Managed.")))
    assert isinstance(crew.manager_llm, ForeignLLM)
    assert crew.kickoff().raw
