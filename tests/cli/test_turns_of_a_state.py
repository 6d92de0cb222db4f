"""`crewlite run` of a flow with `@persist`: the same command with the same operation is the same turn."""

import pytest

from crewlite import History
from tests import children

from .conftest import CREWLITE

CHAT = """
import pathlib
import time

from crewlite.flow import Flow, persist, start


@persist
class Chat(Flow[dict]):
    @start()
    def hear(self):
        while pathlib.Path("hold").exists():
            time.sleep(0.01)
        self.state["said"] = [*self.state.get("said", []), self.state["message"]]
        return " ".join(self.state["said"])
"""


@pytest.fixture
def say(flows):
    (flows.path / "chat.py").write_text(CHAT)
    return lambda message, *words: flows.do("run", "chat.py:Chat", *of(message), *words)


def of(message):
    return ["--input", "id=mine", "--input", f"message={message}"]


def test_a_command_that_is_repeated_with_its_operation_is_the_same_turn(say):
    for operation in ("one", "two", "one", "two"):
        said = {"one": "yes\n", "two": "yes yes\n"}[operation]
        assert say("yes", "--operation-id", operation).stdout == said
    assert say("yes").stdout == "yes yes yes\n", "without an operation it is a turn of its own"
    other = say("no", "--operation-id", "one")
    assert (other.returncode, other.stdout) == (1, "")
    assert other.stderr.rstrip().endswith("for the next turn, pass another --operation-id")


def test_resume_changes_nothing_beside_the_id_of_a_state(say):
    assert say("a", "--resume", "--wait").stdout == "a\n"
    assert say("b", "--resume", "--run-id", "mine.2").stdout == "a b\n"


def test_a_prune_names_the_fork_that_keeps_old_turns(say, flows):
    for message in "abc":
        say(message)
    with History(flows.path / ".checkpoints") as history:
        history.fork(history.run("mine").checkpoints()[0], branch="begun")
    done = flows.do("checkpoint", "prune", "--older-than", "0s")
    assert done.stdout == (
        "nothing to take away\n"
        "old turns are kept, because earlier ones of their states stay: mine/begun. Finish, repair or delete these\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["chat.py:Chat", "--run-id", "mine"], 2, "--operation-id and --run-id both say which turn is meant"),
        (["chat.py:Chat", "--input", "message=a"], 1, "names a turn of a state: give the flow @persist"),
        (["flows:publish", "--input", "text=a"], 1, "names a turn of a state: give the flow @persist"),
    ],
)
def test_an_operation_that_names_no_turn_is_refused(say, flows, words, code, told):
    done = flows.do("run", *words, "--operation-id", "one")
    assert done.returncode == code
    assert told in done.stderr
    assert not (flows.path / ".checkpoints").exists()


def test_another_turn_is_told_how_to_wait_for_the_one_that_is_at_work(say, flows):
    (flows.path / "hold").touch()
    first = [*CREWLITE, "run", "chat.py:Chat", *of("a")]
    child = children.Child(first, cwd=flows.path, env=flows.environment(), stdout=children.PIPE, stderr=children.PIPE)
    with History(flows.path / ".checkpoints", make=True) as history:
        children.until(lambda: any(run.at_work for run in history.runs()))
    refused = say("b", "--operation-id", "two")
    assert refused.stderr.rstrip().endswith(
        ": it is a turn of the state 'mine', and the next one begins when it has ended. To wait for that, add --wait"
    )
    (flows.path / "hold").unlink()
    assert say("b", "--operation-id", "two", "--wait").stdout == "a b\n"
    child.communicate()
