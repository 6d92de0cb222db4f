"""What is recorded of an error, and comes back: all that can be recorded, but no secret, and not without bound."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import urllib.error
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from crewlite import History
from crewlite.errors import StepRaised
from crewlite.flow import flow, step
from crewlite.runtime.steps.failures import ReportedFailure, raised, written
from tests.flow.failing import Declined


class Slotted(Exception):
    __slots__ = ("code",)


def _grouped():
    return ExceptionGroup("two", [ValueError("a"), ExceptionGroup("deep", [Declined("visa", 51)])])


def _http():
    return urllib.error.HTTPError("http://x", 404, "not found", {}, io.BytesIO(b"body"))


def _inside():
    class Inner(Exception):
        pass

    return Inner("x")


def _slotted():
    error = Slotted("x")
    error.code = 7
    return error


def _with_object():
    error = RuntimeError("x")
    error.code, error.client = 7, object()
    return error


def _caused():
    error = RuntimeError("x")
    error.__cause__, error.__context__ = Declined("visa", 51), None
    error.__cause__.__context__ = KeyError("k")
    return error


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (_grouped, lambda error: (repr(error), error.exceptions[1].exceptions[0].card)),
        (_http, lambda error: (type(error), error.code, error.reason, str(error))),
        (_inside, lambda error: (type(error).__qualname__, error.args)),
        (_slotted, lambda error: (type(error), error.args, error.code)),
        (_with_object, lambda error: (type(error), error.args, error.code)),
        (_caused, lambda error: (repr(error.__cause__), error.__cause__.card, repr(error.__cause__.__context__))),
        (lambda: ImportError("no", name="n", path="p"), lambda error: (error.name, error.path)),
        (lambda: NameError("no", name="n"), lambda error: error.name),
        (lambda: AttributeError("no", name="n", obj=None), lambda error: error.name),
    ],
    ids=["group", "http", "made in a function", "slots", "an object", "causes", "import", "name", "attribute"],
)
def test_an_error_comes_back_from_the_record_with_all_that_can_be_recorded(make, shown):
    error = make()
    data = json.loads(json.dumps(written(error)))
    again = raised("a", ReportedFailure(type(error).__name__, str(error), "", data))
    assert shown(again) == shown(error)
    getattr(error, "close", lambda: None)()  # one of urllib holds the body


class Client:
    def __init__(self):
        self.key = "MARK"

    def __repr__(self):
        return "Client()"


def test_a_missing_attribute_does_not_record_the_object():
    @dataclass
    class Known:
        key: str = "MARK"

    for client in (Client(), Known(), {"key": "MARK"}):
        with pytest.raises(AttributeError) as caught:
            client.sned()
        data = written(caught.value)
        assert "MARK" not in json.dumps(data)
        assert raised("a", ReportedFailure("AttributeError", "x", "", data)).name == "sned"


def test_no_mask_of_a_secret_comes_back_in_an_error():
    error = ValueError("x")
    error.key, error.code = SecretStr("MARK"), 7
    again = raised("a", ReportedFailure("ValueError", "x", "", written(error)))
    assert vars(again) == {"code": 7, "__notes__": ["Could not be recorded: key (a SecretStr)"]}
    again = raised("a", ReportedFailure("ValueError", "x", "", written(ValueError(SecretStr("MARK")))))
    assert type(again) is StepRaised


def _chained(length):
    error = None
    for number in range(length):
        newer = ValueError(number)
        newer.__cause__, error = error, newer
    return error


def _with_field():
    error = ValueError("x")
    error.body, error.code = "b" * 1_000_001, 7
    return error


@pytest.mark.parametrize(
    ("make", "kind", "omitted"),
    [
        (lambda: _chained(10_000), ValueError, "the errors before it"),
        (lambda: ExceptionGroup("many", [ValueError(n) for n in range(2_000)]), StepRaised, "the 2,000 members"),
        (lambda: ValueError("x" * 1_000_001), StepRaised, "the arguments"),
        (_with_field, ValueError, "body"),
    ],
    ids=["causes", "members", "arguments", "a field"],
)
def test_the_record_of_an_error_is_bounded_and_what_comes_back_says_so(make, kind, omitted):
    data = json.loads(json.dumps(written(make())))
    assert len(json.dumps(data)) < 1_000
    again = raised("a", ReportedFailure("X", "x", "", data))
    assert type(again) is kind
    while again.__cause__:
        again = again.__cause__
    assert again.__notes__ == [f"Too large to be recorded: {omitted}"]


def test_errors_inside_others_are_bounded_all_together():
    def tree(depth):
        return ExceptionGroup("g", [tree(depth - 1) if depth else ValueError("x" * 20_000) for _ in range(12)])

    data = json.dumps(written(tree(3)))
    assert len(data) < 1_500_000
    assert "20,000 characters, which are not recorded" in data


def test_the_recorded_text_of_an_error_is_bounded_and_no_part_of_a_secret_is_left_at_the_end(on_disk, monkeypatch):
    monkeypatch.setenv("ODD_API_KEY", "MARK" * 10)

    @step
    def odd(text):
        raise RuntimeError(text)

    @flow(checkpoint=on_disk())
    def pipeline():
        for text in ("x" * 1_000_000, "MARK" * 10 + "y" * 3980, "z" * 9980 + "MARK" * 10 + "z" * 100_000):
            with contextlib.suppress(RuntimeError):
                odd(text)

    pipeline.kickoff(run_id="one")
    with History(pipeline.checkpoint.location) as history:
        attempts = history.run("one").attempts
    assert attempts[0].message == "x" * 10_000 + "... (990,000 more characters are not recorded)"
    assert all(len(each.message) < 10_100 and "MARK" not in each.message + each.traceback for each in attempts)


def test_a_class_that_a_module_only_imports_is_not_taken_for_one_of_its_own():
    data = {"cls": f"{__name__}:Declined", "args": ["x"], "fields": {}}
    assert type(raised("a", ReportedFailure("Declined", "x", "", data))) is StepRaised


@pytest.mark.parametrize("name", ["__main__:Slotted", "elsewhere.test_errors_on_record:Slotted"])
def test_a_class_of_a_script_is_found_whether_the_script_was_run_or_imported(monkeypatch, name):
    step(lambda: None)  # which makes this module one of the program's own
    if not name.startswith("__main__"):
        monkeypatch.setattr(Slotted, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], "__file__", "/home/me/test_errors_on_record.py", raising=False)
        monkeypatch.setattr(sys.modules["__main__"], "Slotted", Slotted, raising=False)
    again = raised("a", ReportedFailure("X", "x", "", {"cls": name, "args": ["x"], "fields": {}}))
    assert type(again) is Slotted
