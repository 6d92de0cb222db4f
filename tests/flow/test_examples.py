"""The examples do what they say."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from crewlite import History
from tests import children

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return children.run(command, capture_output=True, text=True, stdin=children.DEVNULL)


@pytest.mark.parametrize(
    "name",
    [
        "nightly_report.py",
        "long_etl.py",
        "chat.py",
        "budgeted.py",
        "research_and_write.py",
        "extract.py",
        "support_desk.py",
        "durable_checkpoints.py",
        "what_if_study.py",
    ],
)
def test_an_example_is_short(name):
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 60


def test_the_nightly_report_waits_for_a_yes_and_is_sent_once():
    first = example("nightly_report.py")
    assert first.returncode == 3, first.stderr
    assert "waits for an answer: human:send" in first.stderr
    assert not list(Path().glob("sales-*.md"))
    second = example("nightly_report.py", "yes")
    assert second.stdout == "sales-2026-11-20.md\n", second.stderr
    report = Path("sales-2026-11-20.md").read_text(encoding="utf-8")
    assert report in first.stderr
    assert example("nightly_report.py").stdout == second.stdout


def test_a_crew_stops_at_its_budget_and_goes_on_with_more():
    first = example("budgeted.py")
    assert first.returncode == 4, first.stderr
    assert "crew 'survey' has used 0.05 US dollars" in first.stderr
    second = example("budgeted.py", "1.00")
    assert second.stdout == "The cheapest is Hull: 400 euros. That was 0.06 dollars.\n", second.stderr
    assert first.stdout.count("looked up") == 5


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_the_long_load_goes_on_behind_the_last_part_that_was_loaded():
    with children.Child([sys.executable, str(EXAMPLES / "long_etl.py")], stdout=children.PIPE, text=True) as child:
        for line in child.stdout:
            if line.startswith("part 15"):
                child.send_signal(signal.SIGKILL)
                break
    loaded = {path: path.stat().st_mtime_ns for path in Path("warehouse").iterdir()}
    done = example("long_etl.py")
    assert done.stdout.splitlines()[-1] == "200", done.stderr
    again = [path for path, at in loaded.items() if path.stat().st_mtime_ns != at]
    assert len(again) <= 1, "only the part in flight is loaded again"
    assert len(list(Path("warehouse").iterdir())) == 40


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_the_chat_goes_on_where_it_was_killed():
    command = [sys.executable, str(EXAMPLES / "chat.py"), "monday"]
    with children.Child(command, stdin=children.PIPE, stdout=children.PIPE, text=True) as child:
        print("When is high water?", file=child.stdin, flush=True)
        while not (first := child.stdout.readline()).startswith("1:"):
            assert first
        print("How deep is the harbour bar?", file=child.stdin, flush=True)
        child.send_signal(signal.SIGKILL)
    with History() as history:
        asked = 1 + sum(step.kind == "message" for step in history.run("monday").steps)
    said = ["And when do spring tides come?", "And when do spring tides come?"]
    again = children.run(command, capture_output=True, text=True, input="\n".join(said))
    turns = [line.partition(":")[0] for line in again.stdout.splitlines() if line[:1].isdigit()]
    assert turns == [str(number) for number in range(asked, asked + 3)], again.stderr
    assert again.stdout.count("Spring tides come with the new moon") >= 2


def test_a_crew_searches_and_writes_files_and_a_topic_leads_nowhere_else():
    done = example("research_and_write.py", "liberty")
    assert done.stdout.startswith("briefs/liberty.md, "), done.stderr
    brief = Path("briefs/liberty.md").read_text(encoding="utf-8")
    assert "gettysburg_address.md:" in Path("notes/liberty.md").read_text(encoding="utf-8")
    assert brief.startswith("# liberty") and ".md:" in brief
    tricked = example("research_and_write.py", "../../x")
    assert "ConfigError: Task 'research': output_file is 'notes/../../x.md', which goes up" in tricked.stderr


def test_data_is_extracted_from_each_document_once():
    first = example("extract.py")
    assert len(first.stdout.splitlines()) == 5, first.stderr
    assert "gettysburg_address.md: " in first.stdout
    with History() as history:
        entries = [run.digest for run in history.runs()]
    assert example("extract.py").stdout == first.stdout
    with History() as history:
        assert [run.digest for run in history.runs()] == entries, "the second time nothing runs"


def test_the_support_desk_refunds_once_and_only_when_a_person_has_approved():
    first = example("support_desk.py")
    assert first.returncode == 1, first.stderr
    assert 'Cashier wants to call refund with {"order": "A-17", "amount": 30}. Allow it?' in first.stderr
    assert not Path("ledger.txt").exists()
    second = example("support_desk.py", "yes")
    assert second.stdout == "Dear customer, we are sorry. 30 euros are on their way\n", second.stderr
    assert example("support_desk.py", "no").stdout == second.stdout, "it is settled"
    assert Path("ledger.txt").read_text(encoding="utf-8") == "A-17 -30\n"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_the_newsletter_is_killed_twice_goes_on_waits_is_approved_and_drawn(tmp_path):
    assert len((EXAMPLES / "newsletter.py").read_text(encoding="utf-8").splitlines()) < 80
    shown = example("newsletter_demo.py", str(tmp_path))
    lives = shown.stdout.split("$ python examples/newsletter.py")[1:]
    assert [life.rstrip().endswith("killed") for life in lives] == [True, True, False, False], shown.stdout
    assert "waiting: Send it?" in lives[2]
    assert "sent" in lives[3]
    assert "checked facts" not in lives[1], "what has finished does not run again"
    with History(tmp_path / ".checkpoints") as history:
        run = history.run("issue-1")
        assert run.status == "finished"
        assert run.usage.requests == 4, "no call of the model is made again"
    page = (tmp_path / "newsletter.html").read_text(encoding="utf-8")
    assert page.count('data-state="finished"') == 6


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL, which this platform has not")
def test_the_phases_of_a_recoverable_function_are_done_as_often_as_they_must_be_also_over_a_kill():
    first = example("durable_checkpoints.py", "--kill")
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert first.stdout.count("phase 1: fetch") == 1
    assert "hallucinated_state: AssertionError" in first.stdout
    assert "rollback, try 2" in first.stdout
    second = example("durable_checkpoints.py")
    assert second.stdout.splitlines()[-1] == "Done. Processed 42 records for task: Analyse Q1 sales data", second.stderr
    assert "phase 1: fetch" not in second.stdout
    assert second.stdout.count("phase 2: process 42 records, told what was wrong") == 1
    with History("durable.db") as history:
        assert [type(one.remedy).__name__ for one in history.run("q1").attempts] == ["Rollback"]


def test_the_what_if_study_compares_its_variants_and_pays_once():
    first = example("what_if_study.py")
    table = first.stdout.splitlines()
    assert [line.split()[:3] for line in table[1:6]] == [
        ["as-it-was", "finished", "7"],
        ["large-model", "finished", "7"],
        ["one-line", "finished", "8"],
        ["two-towns", "finished", "2"],
        ["porto-is-closed", "finished", "2"],
    ], first.stderr
    assert table[-1] == "The best is one-line. To go on: crewlite checkpoint show berths/explore/main/one-line"
    with History() as history:
        before = history.run("berths").digest
    assert example("what_if_study.py").stdout == first.stdout
    with History() as history:
        assert history.run("berths").digest == before, "the second time nothing runs, and nobody judges"
