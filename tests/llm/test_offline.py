"""The model that needs no network: what it finds, how it cites, and that it never pretends."""

import asyncio

import pytest
from pydantic import BaseModel

from crewlite import LLM, Agent, Crew, Task, tool
from crewlite.events import LLMCallCompletedEvent, ToolUsageStartedEvent
from crewlite.events.event_bus import event_bus
from crewlite.llm.offline import NOTE, OfflineLLM, keywords, passages, question_in

SHELF = {
    "tides.md": ["# Tides", "The moon raises the tides.", "Tides turn twice a day."],
    "bread.md": ["# Bread", "Flour, water and salt.", "Bake it hot."],
}


@tool(effect="none")
def list_notes() -> str:
    """List the notes."""
    return "\n".join(f"{name} {lines[0]}" for name, lines in SHELF.items())


@tool(effect="none")
def search_notes(query: str) -> str:
    """Search the notes."""
    found = [
        f"{name}:{n}: {line}"
        for name, lines in SHELF.items()
        for n, line in enumerate(lines, 1)
        if query in line.lower()
    ]
    return "\n".join(found) or "nothing"


@tool(effect="none")
def read_note(name: str) -> str:
    """Read a note."""
    return "\n".join(f"{name}:{n}: {line}" for n, line in enumerate(SHELF[name], 1))


@tool(effect="none")
def fetch_page(title: str) -> str:
    """Read a page; its lines carry no numbers."""
    return f"This page is called {title}. The moon is far away. Cheese is near."


def ask(question, **agent):
    return Agent(role="Reader", goal="Know", llm="offline", **agent).kickoff(question).raw


def reply(content, **context):
    return asyncio.run(OfflineLLM().acall([{"role": "user", "content": content}], **context))


def test_the_offline_model_cites_what_it_extracts():
    answer = ask("What does the moon do to the tides?", tools=[list_notes, search_notes, read_note])
    assert "- The moon raises the tides. [tides.md:2]" in answer
    assert "Bake it hot" not in answer


def test_the_offline_model_lists_then_searches_then_reads():
    called = []
    with event_bus.on(
        ToolUsageStartedEvent, lambda _, event: called.append((event.tool_name, *event.tool_args.values()))
    ):
        ask("What does the moon do to the tides?", tools=[read_note, search_notes, list_notes])
    assert called == [("list_notes",), ("search_notes", "moon"), ("search_notes", "tides"), ("read_note", "tides.md")]


def test_every_answer_says_that_no_language_model_was_asked():
    assert ask("What raises the tides? The moon raises the tides.").endswith(NOTE)
    assert ask("Who was Ozymandias?", tools=[search_notes]).endswith(NOTE)


def test_what_is_not_there_is_not_made_up():
    answer = ask("Who was Ozymandias?", tools=[list_notes, search_notes, read_note])
    assert "nothing that was given speaks of: ozymandias" in answer
    assert "[" not in answer


def test_a_text_without_line_numbers_is_cited_by_what_was_asked_of_the_tool():
    called = [{"id": "call_1", "type": "function", "function": {"name": "fetch_page", "arguments": {"title": "Luna"}}}]
    messages = [
        {"role": "user", "content": "How far is the moon?"},
        {"role": "assistant", "content": "", "tool_calls": called},
        {"role": "tool", "tool_call_id": "call_1", "name": "fetch_page", "content": fetch_page("Luna")},
    ]
    answer = asyncio.run(OfflineLLM().acall(messages, tools=[fetch_page.schema_for_model])).text
    assert "- The moon is far away. [Luna]" in answer


def test_citations_survive_from_task_to_task():
    scout = Agent(role="Scout", goal="Find", tools=[search_notes])
    writer = Agent(role="Writer", goal="Write")
    find = Task(name="find", description='Find: "moon and tides"', expected_output="Lines", agent=scout)
    write = Task(name="write", description='Write about "moon and tides"', expected_output="Text", agent=writer)
    result = Crew(tasks=[find, write], llm="offline").kickoff()
    assert "- The moon raises the tides. [tides.md:2]" in result["write"].raw
    assert result["write"].raw.count("tides.md:2") == 1


class Finding(BaseModel):
    text: str
    source: str


class Report(BaseModel):
    title: str
    summary: str
    findings: list[Finding]
    lines: list[str]
    count: int
    certain: bool


def test_an_answer_fits_the_shape_that_was_asked_for():
    agent = Agent(role="Reader", goal="Know", llm="offline", tools=[search_notes])
    report = agent.kickoff("What does the moon do to the tides?", response_format=Report).pydantic
    assert report.title == "What does the moon do to the tides?"
    assert report.summary == "The moon raises the tides. [tides.md:2]"
    assert report.findings[0].source == "tides.md:2"
    assert len(report.lines) == len(report.findings)


class Place(BaseModel):
    at: tuple[str, int]
    near: list["Place"] = []
    within: "Place | None" = None


def test_an_answer_of_a_shape_that_holds_itself_ends():
    place = Agent(role="Reader", goal="Know", llm="offline").kickoff(
        "How high?\n\n## Brest\nHigh: 7 m.", response_format=Place
    )
    assert place.pydantic == Place(at=("High: 7 m. [Brest]", 7))


def test_a_message_of_parts_is_read_as_their_texts():
    parts = [
        {"type": "text", "text": "What raises the tides?"},
        {"type": "text", "text": "\n## a\nThe moon raises the tides."},
    ]
    answer = Agent(role="Reader", goal="Know", llm="offline").kickoff([{"role": "user", "content": parts}]).raw
    assert answer.splitlines()[:3] == ["# What raises the tides?", "", "- The moon raises the tides. [a]"]


def test_a_call_of_which_a_conversation_has_the_arguments_as_json_text_is_read():
    call = {"id": "a", "type": "function", "function": {"name": "fetch_page", "arguments": '{"title": "moon.md"}'}}
    talk = [
        {"role": "user", "content": "Where is the moon?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "The moon is far away."},
    ]
    answer = Agent(role="Reader", goal="Know", llm="offline").kickoff(talk).raw
    assert "- The moon is far away. [moon.md]" in answer


def test_the_same_messages_get_the_same_reply():
    tools = [search_notes.schema_for_model]
    assert reply("Where is the moon?", tools=tools) == reply("Where is the moon?", tools=tools)


def test_tools_that_want_more_than_one_text_are_left_alone():
    @tool
    def search_between(query: str, since: int) -> str:
        """Search with a number that nobody gave."""
        return query

    assert not reply("Where is the moon?", tools=[search_between.schema_for_model]).tool_calls


def test_words_are_counted_as_tokens():
    heard = []
    with event_bus.on(LLMCallCompletedEvent, lambda _, event: heard.append(event.usage)):
        ask("What raises the tides? The moon raises the tides.")
    assert heard[0]["requests"] == 1
    assert heard[0]["prompt_tokens"] > 8
    assert heard[0]["completion_tokens"] > 8


def test_a_task_is_not_quoted_as_if_it_were_material():
    agent = Agent(role="Writer", goal="Write")
    task = Task(description="Write about the tides. Mention the moon.", expected_output="The moon", agent=agent)
    assert "nothing that was given speaks of: tides, mention, moon" in Crew(tasks=[task], llm="offline").kickoff().raw


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ('Read all and answer: "liberty and power"', "liberty and power"),
        ("Look around. Where is the moon? Cite it.", "Where is the moon?"),
        ('Weigh this.\n\n## scout\nWho asks? "Nobody".', "Weigh this."),
        ("Summarise the tides\n\nExpected output: a page", "Summarise the tides"),
    ],
)
def test_the_question_is_quoted_or_asked_or_comes_first(text, question):
    assert question_in(text) == question


def test_keywords_come_once_and_in_order():
    assert keywords("What governs the governed, what is a government, and what are liberties and liberty?") == [
        "governs",
        "liberties",
    ]


def test_headings_notes_and_remarks_are_no_passages():
    assert passages("# Title\n> a note\n(a remark)\n{}\nA fact.") == passages("A fact.", "Title")


def test_the_offline_model_is_also_had_by_its_name():
    question = "What raises the tides?"
    assert LLM("offline", temperature=0).call(question) == OfflineLLM().call(question)
    by_name = Agent(role="Clerk", goal="answer", llm="offline", tools=[search_notes]).kickoff(question)
    assert (
        Agent(role="Clerk", goal="answer", llm=LLM("offline"), tools=[search_notes]).kickoff(question).raw
        == by_name.raw
    )
