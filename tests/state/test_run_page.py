"""The page of a run, and that of a diff: all that is recorded is on it, and nothing of it is believed, run or loaded."""

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import LLMUnavailable, Suspended
from crewlite.flow import ask, flow, step
from crewlite.testing import ScriptedLLM
from tests.browser import Parsed, check_is_harmless, needs_chromium, shown

HOSTILE = """</pre></title><script>document.title="hacked"</script><img src=x onerror='document.title="hacked"'>"""
ESCAPES = "\x1b[2J\u202e"


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return HOSTILE


def crew_of(setting, *replies):
    agent = Agent(role=f"Clerk {HOSTILE}", goal="look for {what}", llm=ScriptedLLM([*replies]), tools=[look])
    tasks = [Task(name=n, description=f"Do {n} of {{what}}", expected_output="text", agent=agent) for n in ("a", "b")]
    return Crew(name=HOSTILE, tasks=tasks, checkpoint=setting)


def fill(setting):
    """A finished run, a fork that does otherwise, and a fork that fails."""
    what = {"what": HOSTILE}
    crew_of(setting, ToolCall("look", {"where": HOSTILE}), f"found {ESCAPES}", "x" * 20_000).kickoff(what, run_id="r")
    crew_of(setting, "other").fork("r@task:a", branch="other").kickoff()
    with pytest.raises(ValueError, match="script"):
        crew_of(setting, ValueError(HOSTILE)).fork("r/other", branch="other/failed", rerun=["task:b"]).kickoff()
    return History(setting.location, setting.provider)


def test_the_page_of_a_run_shows_its_branches_steps_prompts_and_costs(stored):
    with fill(stored()) as history:
        text = history.as_html("r")
        page = Parsed(text)
        check_is_harmless(page)
        assert page.values("data-branch") == ["main", "other", "other/failed"]
        steps = [step.address for step in history.run("r").steps]
        assert set(page.values("data-address")) >= {*steps}
        assert page.text.count(HOSTILE) >= 6
        assert f"Do a of {HOSTILE}" in page.text, "a prompt"
        assert f'look({{"where": "{HOSTILE.replace(chr(34), chr(92) + chr(34))}"}})' in page.text, "a reply"
        assert f"ValueError: {HOSTILE}" in page.text, "a failure"
        assert ESCAPES not in text and "found \\x1b[2J\\u202e" in page.text
        assert "... (20,000 characters)" in page.text and "x" * 7_000 not in text
        failed = [about for _, about in page.elements if about.get("data-address") == "task:b"]
        assert [about["class"].split()[0] for about in failed] == ["finished", "finished", "failed"]
        differs = [about.get("data-step") for _, about in page.elements if "data-step" in about]
        assert "task:b" in differs and "task:a" not in differs
        assert history.as_html("r/other").count("<details") == text.count("<details")


def test_a_failed_attempt_names_the_model_that_failed(stored):
    replies = [LLMUnavailable("busy"), "done"]
    agent = Agent(role="W", goal="g", llm=ScriptedLLM(replies, model="my/first"), checkpoint=stored())
    agent.kickoff("Well?", run_id="r")
    with History(stored().location, stored().provider) as history:
        page = Parsed(history.as_html("r"))
    assert "Attempt 1 my/first failed" in " ".join(page.text.split())


def test_the_page_of_a_diff_is_as_harmless(memory):
    with fill(memory()) as history:
        text = history.diff("r", "r/other").as_html()
        page = Parsed(text)
        check_is_harmless(page)
        assert page.values("data-step") == ["", "task:b", "task:b/llm#1"]
        assert "the same as above, at the crew" in page.text and "+" in page.values("data-mark")
        assert not history.diff("r", "r") and "All steps are the same." in history.diff("r", "r").as_html()


@step
def half():
    return {"half": 1}


def asked():
    half()
    return ask(f"Go on? {HOSTILE}", name="go")


def test_the_page_of_a_run_that_waits_shows_the_question(stored):
    kept = stored()
    with pytest.raises(Suspended):
        flow(checkpoint=kept)(asked).kickoff(run_id="w")
    with History(kept.location, kept.provider) as history:
        page = Parsed(history.as_html("w"))
        assert f"Go on? {HOSTILE}" in page.text and "waiting" in page.text
        assert page.values("data-address") == ["step:half"]


@needs_chromium
def test_a_browser_shows_the_pages_and_runs_nothing_in_them(memory, tmp_path):
    with fill(memory()) as history:
        for name, text in {"run": history.as_html("r"), "diff": history.diff("r", "r/other").as_html()}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "page.html").write_text(text, encoding="utf-8")
            page = shown(tmp_path / name / "page.html", tmp_path / name)
            assert page.values("data-address") == Parsed(text).values("data-address")
            assert page.values("data-step") == Parsed(text).values("data-step")
            title = page.text.partition("</style>")[0].strip()
            assert title.startswith("r") and "hacked" not in title.partition("\n")[0]


def test_the_page_of_a_long_run_is_made_quickly(memory):
    kept = memory()

    @step
    def work(n):
        return f"did {n}"

    @flow(checkpoint=kept)
    def many():
        for n in range(300):
            work(n)

    many.kickoff(run_id="m")
    with History(kept.location, kept.provider) as history:
        text = history.as_html("m")
        assert text.count("data-address") == 301
