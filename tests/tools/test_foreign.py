"""Tools of other frameworks, by their shape. The lookalikes here were compared with langchain-core 1.7, crewai 1.15 and
llama-index-core 0.14."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel, Field

from crewlite import Agent, Crew, Task, ToolCall, idempotency_key, tool
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM
from crewlite.tools import BaseTool, adopt


class Query(BaseModel):
    query: str = Field(description="What for.")
    n: int = 2


class LangChainBase(BaseModel):
    """As langchain-core's BaseTool: `invoke` and `ainvoke` take one dict, and make each other if need be."""

    name: str
    description: str
    args_schema: object = None
    return_direct: bool = False
    seen: list = []

    def invoke(self, input, config=None):
        self.seen.append(("invoke", input))
        return self._run(**self.args_schema(**input).model_dump(), run_manager=None)

    async def ainvoke(self, input, config=None):
        self.seen.append(("ainvoke", input))
        return await self._arun(**self.args_schema(**input).model_dump(), run_manager=None)

    def run(self, tool_input):
        raise AssertionError("invoke is the verb")

    def _run(self, query, n, run_manager):
        return f"{query} x{n} {len(idempotency_key())}"

    async def _arun(self, query, n, run_manager):
        return self._run(query, n, run_manager)


class LangChainSync(LangChainBase):
    def _run(self, query, n, run_manager):
        return f"sync {query} x{n}"


class LangChainAsync(LangChainBase):
    async def _arun(self, query, n, run_manager):
        return f"async {query} x{n}"


def usual(arguments=None, result=None):
    return True


class CrewBase(BaseModel):
    """As crewai's BaseTool: public verbs that count for ever, and a cache_function that every tool has."""

    name: str
    description: str
    args_schema: type[BaseModel] = Query
    cache_function: object = usual
    result_as_answer: bool = False
    max_usage_count: int | None = None
    current_usage_count: int = 0

    def run(self, **kwargs):
        raise AssertionError("it counts over all runs")

    arun = run

    def _run(self, query, n):
        raise NotImplementedError("override it")

    async def _arun(self, query, n):
        raise NotImplementedError("override it")


class CrewSearch(CrewBase):
    """As people write them."""

    def _run(self, query, n):
        return f"{query} x{n}"


class CrewTool(CrewBase):
    """As crewai's @tool makes them."""

    func: object = None

    def _run(self, **kwargs):
        return self.func(**kwargs)

    async def _arun(self, **kwargs):
        return await self.func(**kwargs)


class LlamaTool:
    """As LlamaIndex's FunctionTool: its words are in `metadata`, its results are wrapped, its errors too."""

    def __init__(self, fn, direct=False):
        words = {"name": "tides", "description": "Tell tides.", "fn_schema": Query, "return_direct": direct}
        self.metadata = type("ToolMetadata", (), words)()
        self.fn = fn

    def __call__(self, **kwargs):
        raise AssertionError("call is the verb")

    def call(self, **kwargs):
        try:
            raw, wrong = self.fn(**kwargs), False
        except OSError as error:
            raw, wrong = error, True
        return type("ToolOutput", (), {"raw_output": raw, "content": str(raw), "is_error": wrong})()


def run(given, **arguments):
    return asyncio.run(adopt(given).arun(**arguments))


def test_langchains_are_invoked_with_one_dict_the_way_their_author_wrote_them():
    for kind, verb in ((LangChainSync, "invoke"), (LangChainAsync, "ainvoke")):
        given = kind(name="search", description="Search.", args_schema=Query, seen=[])
        assert run(given, query="tides") == f"{'async ' if verb == 'ainvoke' else 'sync '}tides x2"
        assert given.seen == [(verb, {"query": "tides"})]
    made = adopt(LangChainSync(name="search", description="Search.", args_schema=Query, return_direct=True))
    assert made.result_as_answer
    assert made.schema_for_model["function"]["parameters"]["properties"]["query"]["description"] == "What for."


def test_a_schema_may_be_a_dict_or_a_class_of_an_earlier_pydantic_and_is_shown_as_it_is():
    schema = {
        "type": "object",
        "properties": {"user-id": {"type": "integer"}, "kind": {"enum": ["a", "b"]}, "more": {"anyOf": []}},
        "required": ["user-id"],
    }

    class Old:
        @classmethod
        def schema(cls):
            return schema

    class Any:
        name, description = "any", "Any."

        def invoke(self, input):
            return input

    for given_schema in (schema, Old):
        given = Any()
        given.args_schema = given_schema
        made = adopt(given)
        assert made.schema_for_model["function"]["parameters"] == schema
        assert run(given, **{"user-id": "7"}) == {"user-id": "7"}
        assert made.check({"user-id": 7, "kind": "a"}) == {"user-id": 7, "kind": "a"}
        llm = ScriptedLLM([ToolCall("any", {"kind": "c", "x": 1}), "done"])
        Agent(role="W", goal="g", llm=llm, tools=[given]).kickoff("go")
        heard = llm.calls[-1][-1]["content"]
        assert "user-id: Field required" in heard and "kind: Input should be 'a' or 'b'" in heard
        assert "x: Extra inputs" in heard and "It takes: user-id, kind, more." in heard


def test_crewais_are_called_beneath_their_own_counting_and_their_words_hold():
    made = adopt(CrewSearch(name="Search the web", description="Search.", result_as_answer=True, max_usage_count=3))
    assert (made.name, made.safe_name) == ("Search the web", "Search_the_web")
    assert (made.result_as_answer, made.max_usage_count, made.cache_function) == (True, 3, None)
    assert asyncio.run(made.arun(query="tides", n="3")) == "tides x3"
    assert adopt(CrewSearch(name="s", description="d", cache_function=own)).cache_function is own
    composed = "Tool Name: s\nTool Arguments: {}\nTool Description: What it does."
    assert adopt(CrewSearch(name="s", description=composed)).description == "What it does."

    async def later(query, n):
        return f"later {query}"

    assert run(CrewTool(name="s", description="d", func=later), query="q") == "later q"
    assert run(CrewTool(name="s", description="d", func=lambda query, n: n), query="q") == 2


def own(arguments, result):
    return False


def test_llamaindexs_results_are_unwrapped_and_their_errors_are_errors():
    made = adopt(LlamaTool(lambda query, n: {"hits": n}, direct=True))
    assert (made.name, made.description, made.result_as_answer) == ("tides", "Tell tides.", True)
    assert run(LlamaTool(lambda query, n: {"hits": n}), query="x") == {"hits": 2}

    def fails(query, n):
        raise OSError("no tide")

    with pytest.raises(RuntimeError, match="no tide"):
        run(LlamaTool(fails), query="x")


def test_whatever_has_a_name_a_description_and_something_to_call_will_do():
    class Plain:
        name, description = "plain", "Plain."

        def run(self, a: int, b: int = 2) -> int:
            return a + b

    assert run(Plain(), a=1) == 3
    assert adopt(Plain()).takes == ("a", "b")
    listed = type("Listed", (), {"name": "l", "description": "d", "args": {"q": {"type": "string"}}})()
    listed.func = lambda q: q.upper()
    assert run(listed, q="x") == "X"


def test_agents_and_tasks_take_them_and_a_run_goes_on_with_them(config):
    class Stop(Exception):
        pass

    one = CrewSearch(name="Search the web", description="Search.")
    two = LangChainSync(name="look", description="Look.", args_schema=Query, seen=[])
    turns = [ToolCall("Search_the_web", {"query": "a"}), ToolCall("look", {"query": "b"}), Stop(), "done"]
    llm = ScriptedLLM(turns)
    who = Agent(role="W", goal="g", llm=llm, tools=[one])
    task = Task(name="t", description="d", expected_output="x", agent=who, tools=[two])
    crew = Crew(tasks=[task], checkpoint=config())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "done"
    assert [m["content"] for m in llm.calls[-1] if m["role"] == "tool"] == ["a x2", "sync b x2"]
    assert len(two.seen) == 1


def test_what_other_frameworks_have_no_word_for_is_said_when_adopting():
    given = adopt(CrewSearch(name="pay", description="Pay."), effect="once", timeout=5.0)
    assert (given.effect, given.timeout) == ("once", 5.0)
    assert adopt(given) is None
    assert adopt(print) is None and adopt("text") is None


def test_secrets_of_adopted_tools_are_known_and_not_shown(on_disk):
    class Keyed(CrewBase):
        api_key: str = "k-123456789"

        def _run(self, query, n):
            return f"with {self.api_key}"

    given = Keyed(name="keyed", description="d")
    llm = ScriptedLLM([ToolCall("keyed", {"query": "x"}), "done"])
    who = Agent(role="W", goal="g", llm=llm, tools=[given], checkpoint=on_disk())
    who.kickoff("go")
    assert llm.calls[-1][-1]["content"] == "with [secret]"
    assert "k-123456789" not in repr(who)


def broken(**words):
    return type("Thing", (), words)()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (broken(name="x", run=print), r"tool 'x' is a .*Thing without a description; wanted: a name, a description"),
        (broken(name="x", description="d"), r"tool 'x' is a .*Thing with nothing to call; wanted: .*invoke, run"),
        (broken(name=" ", description="d", run=print), "without a name"),
        (broken(name="x", description="d", run=print, args_schema=7), "has the args_schema 7; wanted a pydantic class"),
        (broken(name="x", description="d", run=print, args_schema={"type": "array"}), "takes 'array' by its schema"),
        (7, r"tools\[0\] is an int; wanted a function with a docstring, a BaseTool, or a tool of another framework"),
        (CrewBase, r"tools\[0\] is the class CrewBase; wanted an instance"),
    ],
)
def test_what_is_no_tool_is_told_with_what_was_wanted(given, problem):
    with pytest.raises(ConfigError, match=problem):
        Agent(role="W", goal="g", tools=[given])


def test_one_tool_is_no_list_and_names_that_become_one_are_refused():
    @tool("Search web")
    def one() -> str:
        """One."""
        return ""

    @tool("Search_web")
    def two() -> str:
        """Two."""
        return ""

    with pytest.raises(ConfigError, match="two tools are named Search web and Search_web"):
        Agent(role="W", goal="g", tools=[one, two])
    for given in (one, CrewSearch(name="x", description="d"), "search"):
        with pytest.raises(ConfigError, match=r"wanted a list.*tools=\[\.\.\.\]"):
            Agent(role="W", goal="g", tools=given)
    assert isinstance(adopt(CrewSearch(name="x", description="d")), BaseTool)
