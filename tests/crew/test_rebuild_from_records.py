"""What a record must not do as a crew is rebuilt: fail without a typed error, import code, keep or send a key."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from crewlite import LLM, Agent, BaseTool, CheckpointConfig, Crew, History, Task
from crewlite.errors import BindMissing, CrewliteError, JournalCorrupt
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests import children
from tests.crew.rebuilt import Moody, cut, live_crew, ref, search
from tests.parts import Stop


class Keyed(BaseTool):
    name: str = "keyed"
    description: str = "Has a key."
    api_key: str

    def _run(self) -> str:
        return "x"


def test_secrets_are_not_stored_and_a_text_that_held_one_is_asked_for(on_disk, tmp_path):
    key = "sk-canary-123"
    who = Agent(role="A", goal=f"use {key}", llm="offline", tools=[Keyed(api_key=key)])
    Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=on_disk()).kickoff(run_id="r")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if key.encode() in path.read_bytes()]
    with pytest.raises(BindMissing, match="its text, which held a secret") as caught:
        Crew.from_checkpoint(ref(on_disk))
    assert caught.value.missing == ("agents.A.goal", "agents.A.tools.keyed")
    crew = Crew.from_checkpoint(ref(on_disk), bind={"goal": f"use {key}", "keyed": Keyed(api_key=key)})
    assert crew.agents[0].goal == f"use {key}"


class Tampered:
    """A provider whose runs say that they are of another definition than they are."""

    name = "tampered"

    def __init__(self, inner):
        self.inner, self.definition = inner, None

    def open(self, location):
        return TamperedStore(self.inner.open(location), self.definition)


class TamperedStore:
    def __init__(self, inner, definition):
        self._inner, self._definition = inner, definition

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def read(self, *args):
        return [self._with(entry) for entry in self._inner.read(*args)]

    def _with(self, entry):
        if "run" not in entry.commit:
            return entry
        return entry._replace(commit={**entry.commit, "run": {**entry.commit["run"], "definition": self._definition}})


@pytest.fixture(scope="module")
def tampered():
    """What a run of each kind recorded, and a way to have it say something else."""
    provider = Tampered(InMemoryProvider())
    config = CheckpointConfig(location="x", provider=provider.inner)
    live_crew(ScriptedLLM(["a", '{"text": "b"}']), checkpoint=config).kickoff(run_id="c")
    agent = Agent(role="A", goal="g", llm=ScriptedLLM(["a"]), tools=[search], checkpoint=config)
    agent.kickoff("What?", run_id="a")
    with History("x", provider.inner) as history:
        recorded = {run: json.loads(json.dumps(history.run(run).definition)) for run in ("c", "a")}

    def rebuild(kind, definition, bind=None):
        provider.definition = definition
        place = CheckpointConfig(location="x", provider=provider, restore_from="c" if kind is Crew else "a")
        return kind.from_checkpoint(place, bind=bind)

    return recorded, rebuild


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "x", "self", "live"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["self", "live", "x"]), inner),
    max_leaves=4,
)


def paths_in(data, way=()):
    yield way
    for key, item in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from paths_in(item, (*way, key))


def replaced(data, way, value):
    if not way:
        return value
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return copy


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.data())
def test_a_record_that_says_anything_else_is_a_typed_error_or_a_crew(tampered, drawn):
    recorded, rebuild = tampered
    kind, run = drawn.draw(st.sampled_from([(Crew, "c"), (Agent, "a")]))
    way = drawn.draw(st.sampled_from(list(paths_in(recorded[run]))))
    added = drawn.draw(st.sampled_from([(), ("self",), ("x",), ("checkpoint",), ("live",), ("context",), ("class",)]))
    target = recorded[run]
    for key in way:
        target = target[key]
    changed = replaced(recorded[run], (*way, *(added if isinstance(target, dict) else ())), drawn.draw(JSON))
    bind = drawn.draw(st.sampled_from([None, {"llm": ScriptedLLM([]), "search": search, "class": Moody}]))
    try:
        assert isinstance(rebuild(kind, changed, bind), kind)
    except CrewliteError as error:
        assert str(error)


def test_damage_is_named(tampered):
    recorded, rebuild = tampered
    live = {"llm": ScriptedLLM([]), "search": search, "callback": None, "output_pydantic": None}
    for changed, said in [
        (replaced(recorded["c"], ("tasks", 0, "agent"), 9), "or without its agent"),
        (replaced(recorded["c"], ("tasks", 0, "context"), ["task#1"]), "builds on a task that is not listed before it"),
        (replaced(recorded["c"], ("tasks",), {}), "no list of tasks"),
        (replaced(recorded["c"], ("agents", 0, "max_iter"), {"a": [1]}), "agents.Researcher.max_iter is dict"),
        (replaced(recorded["c"], ("agents", 0, "self"), 1), r"fields that Agent does not have: self"),
        (
            replaced(recorded["c"], ("checkpoint",), {"x": "y"}),
            r"checkpoint has recorded fields that CheckpointConfig does not have: x",
        ),
    ]:
        with pytest.raises(JournalCorrupt, match=said):
            rebuild(Crew, changed, live)
    elsewhere = {"provider": "os.system", "location": "/elsewhere", "restore_from": "x"}
    crew = rebuild(Crew, replaced(recorded["c"], ("checkpoint",), elsewhere), live)
    assert (crew.checkpoint.location, crew.checkpoint.restore_from) == ("x", None)
    assert isinstance(crew.checkpoint.provider, Tampered)
    with pytest.raises(JournalCorrupt, match="agents"):
        rebuild(Crew, {"kind": "crew", "name": "crew", "tasks": [{"address": "task#1", "description": "d"}]})
    with pytest.raises(JournalCorrupt, match="holds no fields"):
        rebuild(Agent, {"kind": "agent", "name": "A", "model": "m"})


NOTHING_IMPORTED = """
    import sys
    sys.path.insert(0, {tests!r})
    from test_rebuild_from_records import *
    from tests.crew.rebuilt import Report

    def evil(output):
        pass

    evil.__name__, evil.__qualname__, evil.__module__ = "antigravity.fly", "fly", "antigravity"

    class Llm(ScriptedLLM):
        model = "antigravity:fly"

    def crew(location):
        who = Agent(role="antigravity", goal="import antigravity", llm=Llm(["a"]))
        Evil = type("antigravity", (Report,), {{"__module__": "antigravity"}})
        task = Task(description="__import__('antigravity')", expected_output="x", agent=who, callback=evil)
        shaped = Task(description="d", expected_output="x", agent=who, output_json=Evil)
        return Crew(tasks=[task, shaped], checkpoint=CheckpointConfig(location=location))

    location = sys.argv[1]
    try:
        crew(location).kickoff(run_id="r")
    except Exception:
        pass
    def rebuild():
        try:
            Crew.from_checkpoint(CheckpointConfig(location=location, restore_from="r"))
        except BindMissing as error:
            return len(error.missing)
    rebuild()
    seen = []
    sys.addaudithook(lambda event, args: seen.append((event, args)) if event in ("import", "exec", "compile") else None)
    assert rebuild() == 3
    bind = {{"llm": Llm([]), "callback": None, "output_json": None}}
    Crew.from_checkpoint(CheckpointConfig(location=location, restore_from="r"), bind=bind)
    print([event for event in seen if event[0] != "import" or event[1][0].partition(".")[0] not in ("encodings",)])
    print("antigravity" in sys.modules)
"""


@pytest.mark.parametrize("store", ["store", "store.db"])
def test_nothing_is_imported_or_run_for_what_is_stored(tmp_path, store):
    code = textwrap.dedent(NOTHING_IMPORTED.format(tests=str(Path(__file__).parent)))
    done = children.run(
        [sys.executable, "-c", code, str(tmp_path / store)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[]", "False"]), done.stderr


KEY = "sk-live-4f9aQ81zP0bL77Xe2w"


@pytest.fixture
def kept(on_disk, monkeypatch):
    """Cuts a crew before its second agent, which has a model of these settings; gives what is written of it."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def keep(**settings):
        first = Agent(role="First", goal="g", llm=ScriptedLLM([Stop()]))
        second = Agent(role="A", goal="g", llm=LLM("openai/gpt-4o-mini", **settings))
        tasks = [Task(description=who.role, expected_output="x", agent=who) for who in (first, second)]
        cut(Crew(tasks=tasks, checkpoint=on_disk()))
        return b"".join(path.read_bytes() for path in Path(on_disk().location).parent.rglob("*") if path.is_file())

    return keep


FIRST = {"agents.First.llm": ScriptedLLM([])}


@pytest.mark.litellm
def test_a_model_is_rebuilt_from_its_settings_and_its_key_is_never_written(kept, on_disk):
    more = {"temperature": 0.25, "fallbacks": ["offline"], "stop": ["END"], "base_url": "http://127.0.0.1:9/v1"}
    assert KEY.encode() not in kept(api_key=KEY, **more)
    for make in (Crew.from_checkpoint, Crew.fork):
        llm = make(ref(on_disk), bind=FIRST).tasks[1].agent.llm
        assert (llm.model, llm.temperature, llm.stop, llm.max_tokens) == ("openai/gpt-4o-mini", 0.25, ["END"], None)
        assert ([spare.model for spare in llm.fallbacks], llm.api_key) == (["offline"], None)
        assert llm.base_url == "http://127.0.0.1:9/v1"


@pytest.mark.litellm
def test_a_model_whose_key_is_not_there_is_to_be_passed(kept, on_disk, monkeypatch):
    kept(api_key=KEY)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(ref(on_disk), bind=FIRST)
    assert caught.value.missing == ("agents.A.llm",)
    mine = ScriptedLLM([])
    assert Crew.from_checkpoint(ref(on_disk), bind={"llm": mine}).tasks[1].agent.llm is mine


@pytest.mark.litellm
@pytest.mark.parametrize(
    "more",
    [{"extra_headers": {"X-Team": "tides"}}, {"extra": {"user": "ann"}}, {"base_url": "http://elsewhere.example/v1"}],
    ids=str,
)
def test_a_model_that_plain_settings_do_not_tell_is_to_be_passed(kept, on_disk, more):
    kept(**more)
    with pytest.raises(BindMissing, match=r"agents\.A\.llm"):
        Crew.from_checkpoint(ref(on_disk), bind=FIRST)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "openai/x", "base_url": "http://elsewhere.example/v1"},
        {"model": "openai/x", "base_url": "http://localhost@elsewhere.example/v1"},
        {"model": "openai/x", "fallbacks": [{"model": "openai/x", "base_url": "http://elsewhere.example/v1"}]},
        {"model": "openai/x", "max_tokens": "many"},
    ],
)
def test_a_record_never_sends_a_key_elsewhere(settings, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert LLM.of_settings(settings) is None
