"""Programs of tests begun in a moment: forked from a process that has imported what they all import.

The tests begin hundreds of Python programs. Each would spend half a second on importing the same modules before it does
what it is begun for, which was a third of the time of all tests. Here one process imports them once, and has pydantic make the
validators that it would make at the first use of each class; it calls nothing else in them and has no thread. A program is
forked from it, and from then on is like any other: a process of its own, with its own arguments, directory, environment and
streams. It becomes a child of the process that asked for it, as Linux lets a process adopt the orphans below it, so that
process waits for it as for any child. At its end it destroys what it has made itself and the modules of crewlite, as any
program does, and not the other modules that it was begun with, which would take longer than most of the programs do.

What a fork cannot give (flags, other settings of the interpreter, another user, another system) is begun in the
ordinary way: `fork` returns None.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

ROOT = Path(__file__).parents[1]
LARGEST = 100_000  # bytes of an order; more than that does not go through the socket at once
SET_CHILD_SUBREAPER = 36  # of prctl(2)
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else litellm asks the network for prices when it is imported
FOLLOWED = {"PYTHONPATH", "PYTHONIOENCODING", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}  # what a program obeys
IMPORTED = (
    "crewlite.agent.root",
    "crewlite.cli.checkpoint.hints",
    "crewlite.cli.checkpoint.show",
    "crewlite.cli.main",
    "crewlite.cli.run",
    "crewlite.console.progress",
    "crewlite.crew.root",
    "crewlite.events.types.agent_events",
    "crewlite.events.types.checkpoint_events",
    "crewlite.events.types.crew_events",
    "crewlite.events.types.flow_events",
    "crewlite.events.types.guardrail_events",
    "crewlite.events.types.knowledge_events",
    "crewlite.events.types.llm_events",
    "crewlite.events.types.logging_events",
    "crewlite.events.types.progress_events",
    "crewlite.events.types.signal_events",
    "crewlite.events.types.step_events",
    "crewlite.events.types.task_events",
    "crewlite.events.types.tool_events",
    "crewlite.events.types.trial_events",
    "crewlite.flow.classes.root",
    "crewlite.flow.root",
    "crewlite.llm.wire",
    "crewlite.runtime.kickoffs.engine",
    "crewlite.runtime.kickoffs.facts",
    "crewlite.runtime.kickoffs.fork",
    "crewlite.runtime.main_thread.sync_bridge",
    "crewlite.state.history",
    "crewlite.state.providers.json",
    "crewlite.state.providers.sqlite",
    "crewlite.state.providers.sqlite_tables",
    "crewlite.task",
    "crewlite.testing.scripted",
    "jinja2.sandbox",
    "jsonschema",
    "rich.console",
    "sqlite_utils",
    "yaml",
)

_warm: dict[str, WarmProcess] = {}
"""The process that programs are forked from, and one for each module that some of them need besides."""


def end() -> None:
    """End the processes that programs were forked from. They go on."""
    for process in _warm.values():
        if process.owner == os.getpid():
            process.end()
    _warm.clear()


def fork(
    command: object,
    cwd: object,
    env: Mapping[str, str] | None,
    streams: Sequence[int],
    own_session: bool,
    also: str = "",
) -> int | None:
    """Begin a program in a process group of its own; its id. None if it has to be begun in the ordinary way.

    `streams` are the descriptors of its stdin, stdout and stderr, `also` is a module that it finds imported.
    """
    if sys.platform != "linux" or not isinstance(command, list) or len(command) < 2 or command[0] != sys.executable:
        return None
    words, directory = [os.fspath(word) for word in command], os.fspath(cwd) if cwd else os.getcwd()
    if words[1].startswith("-") and (words[1] not in ("-c", "-m") or len(words) < 3) or not os.path.isdir(directory):
        return None
    if also not in _warm or _warm[also].owner != os.getpid():
        _warm[also] = WarmProcess(also)
    environment = dict(os.environ if env is None else env)
    order = json.dumps([words, directory, environment, own_session]).encode()
    if len(order) > LARGEST or _warm[also].interpreter != _interpreter(environment):
        return None
    return _warm[also].fork(order, streams)


def _interpreter(env: Mapping[str, str]) -> list[object]:
    """What a Python process is made with, and cannot change any more."""
    fixed = {k: v for k, v in env.items() if k.startswith(("PYTHON", "LC_", "LANG")) and k not in FOLLOWED}
    return [fixed, os.getresuid(), os.getresgid(), _umask()]


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


class WarmProcess:
    """The process that programs are forked from. It ends with the one that made it."""

    def __init__(self, also: str) -> None:
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.owner, self.interpreter = os.getpid(), _interpreter(os.environ)
        self._turn = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = f"from tests.warm import serve; serve({theirs.fileno()}, {also!r})"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=ROOT,
                env={k: v for k, v in os.environ.items() if k not in FOLLOWED} | OFFLINE,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    def fork(self, order: bytes, streams: Sequence[int]) -> int:
        with self._turn:
            socket.send_fds(self._line, [order], streams)
            return int(self._line.recv(32))

    def end(self) -> None:
        self._line.close()
        self._process.wait()


def serve(line: int, also: str) -> None:
    """Import what programs need, also a module besides, and fork one for each order that comes in over the socket. Returns in none of them."""
    interrupted, ended = list[bool](), dict[str, None]()
    atexit.register(_die_of, interrupted)  # the first to be registered is the last to be called
    atexit.register(sys.modules.update, ended)
    get_ready()
    if also:
        importlib.import_module(also)
    ended.update(_kept_at_the_end())
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=line) as orders:
        while True:
            order, streams, _, _ = socket.recv_fds(orders, LARGEST, 3)
            if not order:
                return  # whoever made the orders has ended
            told, tells = os.pipe()
            between = os.fork()
            if not between:
                parent = os.getpid()
                if os.fork():
                    os._exit(0)  # so that the program is an orphan
                break
            os.close(tells)
            program = os.read(told, 32)
            os.close(told)
            os.waitpid(between, 0)
            orders.send(program)
            for stream in streams:
                os.close(stream)
    words, directory, environment, own_session = json.loads(order)
    os.setsid() if own_session else os.setpgid(0, 0)
    os.write(tells, str(os.getpid()).encode())
    while os.getppid() == parent:
        os.sched_yield()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 256)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    _run(words[1:], interrupted)


def get_ready() -> None:
    """Import what programs need, and make the validators of its classes."""
    for name in IMPORTED:
        importlib.import_module(name)
    models = sys.modules["pydantic"].BaseModel.__subclasses__()
    for model in models:  # and those below it, which are put behind the others
        model.model_rebuild()
        models += model.__subclasses__()


def _kept_at_the_end() -> dict[str, None]:
    """Let no module of others that is there be destroyed. What sys.modules has to have for that when a program ends."""
    own = ("__main__", "builtins", "sys", "crewlite")
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in own}
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))  # so that this is never destroyed itself
    return dict.fromkeys(modules)  # as when Python destroys them: from then on, no module can be imported


def _run(words: list[str], interrupted: list[bool]) -> NoReturn | None:
    """Be the program of a command line: `-c CODE ARGS...`, `-m MODULE ARGS...` or `FILE ARGS...`."""
    _open_streams()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = [sys.executable, *words]
    file = "" if words[0] in ("-c", "-m") else words[0]
    sys.argv = words if file else [words[0], *words[2:]]
    path = os.environ.get("PYTHONPATH", "")
    first = str(Path(file).resolve().parent) if file else os.getcwd() if words[0] == "-m" else ""
    sys.path[:1] = [first, *(path.split(os.pathsep) if path else [])]
    program = sys.modules["__main__"] = ModuleType("__main__")
    if file:
        program.__file__, program.__loader__ = os.path.abspath(file), SourceFileLoader("__main__", file)
    try:
        if words[0] == "-m":
            runpy._run_module_as_main(words[1])  # as the interpreter does
        else:
            exec(_code(file, words), vars(program))
    except SystemExit:
        raise
    except BaseException as error:  # as the interpreter does with what a program raises
        here = error.__traceback__
        sys.excepthook(type(error), error.with_traceback(here and here.tb_next), error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            interrupted.append(True)
        raise SystemExit(1) from None


def _code(file: str, words: list[str]) -> CodeType:
    if file:
        return compile(Path(file).read_bytes(), os.path.abspath(file), "exec", dont_inherit=True)
    return compile(words[1], "<string>", "exec", dont_inherit=True)


def _open_streams() -> None:
    """Make sys.stdin, sys.stdout and sys.stderr anew, as the interpreter makes them when it starts."""
    coding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    if coding and not errors:
        errors = "strict"
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        own = getattr(sys, name)
        stream = open(  # noqa: SIM115 - as long as the program
            number,
            "w" if number else "r",
            encoding=coding or own.encoding,
            errors="backslashreplace" if name == "stderr" else errors or own.errors,
            closefd=False,
        )
        if number:
            at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
            stream.reconfigure(line_buffering=number == 2 or os.isatty(number), write_through=at_once)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _die_of(interrupted: list[bool]) -> None:
    """End by the signal, as an interrupted program does."""
    if interrupted:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
