"""Flows, questions to people and edits from the terminal alone: nothing is done twice, and there is always a way on."""

import json
import signal

import pytest

from tests.children import posix


def test_a_start_method_is_given_an_input_as_the_type_that_its_argument_has(shop):
    code = """from crewlite import Flow, start

class Count(Flow):
    @start()
    def begin(self, limit: int, days: list[str] | None = None, name="x"):
        return [limit, days, name]
"""
    (shop.path / "counting.py").write_text(code, encoding="utf-8")
    done = shop.do("run", "counting:Count", "--input", "limit=3", "--input", 'days:=["mon"]', "--input", "name=4")
    assert done.stdout.split() == ["[3,", '["mon"],', '"4"]'], done.stderr
    refused = shop.do("run", "counting:Count", "--input", "limit=three")
    assert (refused.returncode, "limit" in refused.stderr) == (2, True)


def test_a_flow_takes_its_parameters_and_prints_what_it_returns(flows):
    done = flows.do("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    assert (done.returncode, done.stdout) == (0, "30\n")
    told = [line.strip() for line in done.stderr.splitlines() if "checkpoint" not in line]
    assert told[:3] == ["▸ flow sums begins (run s)", "▸ step fetch (fetch)", "✓ step fetch (fetch)"]
    assert told[-3:] == ["▸ step add", "✓ step add", "✓ flow sums has finished"]
    assert flows.calls() == ["fetch 1", "fetch 2", "add 10 20"]


def test_a_class_of_flows_is_run_and_gone_on_with(flows):
    (flows.path / "shoal").write_text("")
    done = flows.do("run", "flows:Sound", "--input", "fathoms=3", "--run-id", "deep")
    assert (done.returncode, "✗ method read failed: ConnectionError: aground" in done.stderr) == (1, True), done.stderr
    assert "▸ method read, by lower" in done.stderr
    asked = ("checkpoint", "fork", "deep", "--crew", "flows:Sound", "--preview", "--rerun", "method:read@lower")
    assert (
        "--preview: method:read@lower has not finished, so only a fork that runs can rerun it"
        in flows.do(*asked).stderr
    )
    (flows.path / "shoal").unlink()
    for _ in range(2):
        done = flows.do("checkpoint", "resume", "deep", "--crew", "flows:Sound")
        assert (done.returncode, done.stdout) == (0, '{"title": "feet", "pages": 18}\n'), done.stderr
    assert flows.calls() == ["lower", "read", "read"]
    stored = flows.do("checkpoint", "resume", "deep")
    assert (stored.returncode, json.loads(stored.stdout)) == (0, {"title": "feet", "pages": 18}), stored.stderr
    done = flows.do("run", "flows:Sound", "--input", "fathoms=many")
    assert (done.returncode, "--input fathoms: Input should be a valid integer" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("what=as it is", "as it is\n"),
        ('what:="text"', "text\n"),
        ("what:=null", ""),
        ('what:={"a": [1, "\\u00e9"]}', '{"a": [1, "é"]}\n'),
        ("what:=7", "7\n"),
    ],
)
def test_text_is_printed_as_it_is_data_as_json_and_nothing_for_none(flows, given, printed):
    done = flows.ask("run", "flows:says", "--input", given)
    assert (done.returncode, done.stdout) == (0, printed)


def test_the_last_line_of_json_has_the_value(flows):
    last = flows.lines("run", "flows:says", "--input", "what:=[1, null]", "--run-id", "r")[-1]
    assert (last["type"], last["run_id"], last["value"], last["durability"]) == ("result", "r", [1, None], "sync")
    assert last["usage"]["requests"] == 0
    assert flows.lines("checkpoint", "resume", "r")[-1]["value"] == [1, None]


def test_what_a_crew_in_a_flow_paid_is_in_the_result_and_it_is_told_once(flows):
    *_, ended, last = flows.lines("run", "flows:hires")
    assert (last["value"], last["usage"]["requests"]) == ("[Do three on tides]", 3)
    assert (ended["type"], ended["usage"]) == ("flow_finished", last["usage"])
    assert flows.do("run", "flows:hires").stderr.count("▸ task one: Clerk begins") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flows:sums"], "flow 'sums': missing 'one'. Pass it: --input NAME=TEXT"),
        (["flows:sums", "--input", "two=2"], "unexpected keyword argument 'two'; it takes (one: int, other: int = 2)"),
        (["flows:sums", "--input", "one=many"], "--input one: Input should be a valid integer"),
        (["flows:sums", "--input", "one=1", "--model", "offline"], "The code of flow 'sums' chooses its own models"),
        (["flows:sums", "--message", "Well?"], "this is a flow; pass inputs: --input NAME=TEXT"),
        (["flows:nothing"], "sums"),
    ],
)
def test_what_a_flow_does_not_take_is_told(flows, words, said):
    done = flows.ask("run", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (flows.path / ".checkpoints").exists()


@posix
def test_a_killed_flow_is_resumed_and_no_step_is_made_twice(flows):
    flows.hang("2")
    process = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    process.kill()
    process.communicate()
    flows.heal()
    done = flows.do("checkpoint", "resume")
    assert done.returncode == 1
    assert (
        "s/main (flow sums) is a run of a flow, and no record holds its function or class. Name its place: --crew "
        "MODULE:sums" in done.stderr
    )
    assert flows.ask("checkpoint", "resume", "--crew", "flows:sums", "--model", "offline").returncode == 2
    assert flows.ask("checkpoint", "resume", "--crew", "crews:crew").returncode == 1
    assert flows.calls() == ["fetch 1", "fetch 2"]
    done = flows.do("checkpoint", "resume", "--crew", "flows:sums")
    assert (done.returncode, done.stdout) == (0, "30\n")
    assert flows.calls() == ["fetch 1", "fetch 2", "fetch 2", "add 10 20"]
    done = flows.do("checkpoint", "resume", "s")
    assert (done.returncode, done.stdout) == (0, "30\n")
    assert len(flows.calls()) == 4


@posix
def test_an_interrupted_flow_says_how_to_go_on(flows):
    flows.hang("2")
    process = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert f"Interrupted. To go on, in {flows.path}: crewlite checkpoint resume s --crew flows:sums" in said


def test_the_project_says_where_the_flow_is(flows):
    flows.ask("run", "flows:publish", "--input", "text=x", "--run-id", "p")
    (flows.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "flows:sums"\n')
    done = flows.ask("checkpoint", "resume", "p")
    assert done.returncode == 1
    assert "pyproject.toml names flow sums (flows:sums), and this run is of flow publish" in done.stderr
    (flows.path / "pyproject.toml").write_text('[tool.crewlite]\ncrew = "flows:publish"\n')
    done = flows.ask("checkpoint", "resume", "p", "--answer", "human:who=Ada", "--answer", "human:publish=no")
    assert (done.returncode, done.stdout) == (0, "")
    assert flows.calls() == ["fetch 1"]


@posix
def test_a_run_is_stopped_from_another_terminal_and_resumed(flows):
    flows.hang("2")
    child = flows.begin("run", "flows:sums", "--input", "one=1", "--run-id", "s")
    flows.until("fetch 2")
    done = flows.ask("checkpoint", "cancel", "s")
    assert done.stdout == "■ s/main is cancelled\n\nto go on  crewlite checkpoint resume s --crew MODULE:sums\n"
    stdout, stderr = child.communicate()
    assert (child.returncode, stdout) == (1, "")
    assert "Run 's' was cancelled" in stderr
    assert "crewlite checkpoint resume s --crew flows:sums" in stderr
    assert "■ s/main  cancelled" in flows.ask("checkpoint", "show", "s").stdout
    assert json.loads(flows.ask("checkpoint", "cancel", "s", "--json").stdout)["status"] == "cancelled"
    flows.heal()
    assert flows.do("checkpoint", "resume", "s", "--crew", "flows:sums").stdout == "30\n"
    assert flows.calls() == ["fetch 1", "fetch 2", "fetch 2", "add 10 20"]
    done = flows.ask("checkpoint", "cancel", "s")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is finished already, so there is nothing to cancel" in done.stderr


def test_show_tells_when_each_try_of_a_step_began_and_ended(flows):
    (flows.path / "fail").write_text("one")
    flows.ask("run", "flows:hires", "--run-id", "h")
    flows.heal()
    assert flows.ask("run", "flows:hires", "--run-id", "h").returncode == 0
    for words in (["h@crew:report/task:one/llm#1"], ["h", "--step", "crew:report/task:one/llm#1"]):
        said = flows.ask("checkpoint", "show", *words).stdout.splitlines()
        assert said[0] == "crew:report/task:one/llm#1  finished"
        names = [line.split()[0] for line in said if line.startswith("  ")]
        assert names.count("began") == names.count("ended") == 2
        assert "    ValueError: no paper" in said
    step = json.loads(flows.ask("checkpoint", "show", "h@crew:report", "--json").stdout)["step"]
    (attempt,) = step["attempts"]
    moments = [attempt["started_at"], attempt["ended_at"], step["started_at"], step["ended_at"]]
    assert moments == sorted(moments)
    assert all(moment.endswith("+00:00") for moment in moments)
    assert attempt["usage"]["total_tokens"] == 0


def test_a_call_in_doubt_is_told_once_and_not_with_what_is_around_it(flows):
    (flows.path / "pays.py").write_text(
        "import os\nfrom crewlite.flow import flow, step\n"
        "@step(effect='once')\ndef pay():\n    os.path.exists('go') or os._exit(9)\n    return 'paid'\n"
        "@step\ndef around():\n    return pay()\n"
        "@flow\ndef pays():\n    return around()\n"
    )
    assert flows.do("run", "pays:pays", "--run-id", "p").returncode == 9
    for _ in range(2):
        said = flows.ask("checkpoint", "show", "p").stdout
        assert [line for line in said.splitlines() if "did not finish: check" in line] == [
            "in doubt  step:around/step:pay did not finish: check whether it took effect"
        ]
        assert flows.do("run", "pays:pays", "--run-id", "p").returncode == 3
    (flows.path / "go").touch()
    done = flows.do("run", "pays:pays", "--run-id", "p", "--rerun", "step:around/step:pay")
    assert done.stdout == "paid\n", done.stderr
    for words in (["show", "p"], ["info", "p"]):
        assert "in doubt" not in flows.ask("checkpoint", *words).stdout
