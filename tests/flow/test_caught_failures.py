"""A failure that code caught comes back from a resume as what it was; what cannot come back is told at once."""

from __future__ import annotations

import json
import threading
from decimal import Decimal

import httpx
import pydantic
import pytest
from pydantic_core import PydanticCustomError, PydanticKnownError

from crewlite.errors import StepRaised, Suspended
from crewlite.flow import ask, flow, step
from crewlite.runtime.steps.failures import ReportedFailure, raised, written


class ApiError(Exception):
    def __init__(self, text: str, response: object) -> None:
        super().__init__(text)
        self.response = response


class Order(pydantic.BaseModel):
    number: int
    price: Decimal = pydantic.Field(default=Decimal(2), gt=Decimal("1.5"))
    items: list[int] = []
    how: str = "card"

    @pydantic.field_validator("how")
    @classmethod
    def known(cls, how: str) -> str:
        if how == "custom":
            raise PydanticCustomError("unpaid", "{who} has not paid", {"who": "Ann"})
        if how == "plain":
            raise PydanticCustomError("unpaid", "nobody {paid}")
        if how == "known":
            raise PydanticKnownError("greater_than", {"gt": 3})
        assert how != "asserted", "not so"
        if how == "raised":
            raise ValueError("bad", how)
        return how


class Discreet(Order):
    model_config = pydantic.ConfigDict(hide_input_in_errors=True)


def _refused(data, model=Order):
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate_json(data) if isinstance(data, str) else model.model_validate(data)
    return caught.value


def _again(error):
    data = json.loads(json.dumps(written(error)))
    return raised("a", ReportedFailure(type(error).__name__, str(error), "", data))


@pytest.mark.parametrize("how", ["card", "custom", "plain", "known", "asserted", "raised"])
@pytest.mark.parametrize("as_text", [False, True], ids=["python", "json"])
def test_an_error_of_validation_comes_back_as_it_was(how, as_text):
    data = {"number": "x", "price": 1, "items": 3, "how": how}
    error = _refused(json.dumps(data) if as_text else data)
    error.add_note("at noon")
    again = _again(error)
    assert type(again) is pydantic.ValidationError
    assert (str(again), again.title, again.error_count()) == (str(error), error.title, error.error_count())
    assert repr(again.errors()) == repr(error.errors())
    assert again.__notes__ == ["at noon"]


def test_an_input_that_cannot_be_recorded_is_missing_and_the_rest_is_there():
    error = _refused({"number": threading.Lock(), "price": 1, "items": 3})
    again = _again(error)
    assert [line["loc"] for line in again.errors()] == [("number",), ("price",), ("items",)]
    assert [line["input"] for line in again.errors()] == [None, 1, 3]
    assert "input_value" not in str(again)
    assert again.__notes__ == ["Could not be recorded: input of number (a lock)"]


def test_inputs_that_a_model_hides_are_not_recorded():
    error = _refused({"number": "MARK"}, Discreet)
    assert "MARK" not in json.dumps(written(error))
    assert str(_again(error)) == str(error)


def test_a_secret_in_the_input_is_not_recorded():
    error = _refused({"number": pydantic.SecretStr("MARK")})
    assert "MARK" not in json.dumps(written(error))


def test_a_flow_that_caught_an_error_of_validation_goes_the_same_way_after_a_resume(on_disk, ran, caplog):
    @step
    def parse(text):
        ran.append("parse")
        return Order.model_validate_json(text).number

    @flow(checkpoint=on_disk())
    def pipeline():
        try:
            return parse('{"number": "x"}')
        except pydantic.ValidationError as error:
            return ask(f"{error.error_count()} mistake?", name="on")

    with pytest.raises(Suspended):
        pipeline.kickoff(run_id="one")
    assert pipeline.kickoff(run_id="one", answers={"human:on": "yes"}) == "yes"
    assert ran == ["parse"]
    assert "recorded" not in caplog.text


def _of_http():
    request = httpx.Request("GET", "http://x")
    return httpx.HTTPStatusError("404", request=request, response=httpx.Response(404, request=request))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: ApiError("down", threading.Lock()),
            "one/main: step:call failed with ApiError, of which response (a lock) cannot be recorded: after a resume, "
            "code that catches the error gets it without that. Keep the text or number that this code needs in the error "
            "instead",
        ),
        (
            lambda: ValueError("x", threading.Lock()),
            "ValueError, of which args[1] (a lock) cannot be recorded: after a resume, code that catches the error gets "
            "a StepRaised in its place.",
        ),
        (
            lambda: ExceptionGroup("two", [ValueError(1), ApiError("down", threading.Lock())]),
            "ExceptionGroup, of which response (a lock) in ApiError cannot be recorded",
        ),
        (_of_http, "HTTPStatusError, of which _request (a Request), response (a Response) cannot be recorded"),
        (lambda: ValueError("x" * 1_000_001), "ValueError, of which the arguments (too large) cannot be recorded"),
        (
            lambda: PydanticCustomError("odd", "so"),
            "PydanticCustomError, of which what its class needs cannot be recorded",
        ),
    ],
    ids=["a field", "an argument", "in a group", "of a library", "too large", "a class that needs more"],
)
def test_what_cannot_be_recorded_of_a_failure_is_told_once(on_disk, caplog, make, told):
    @step
    def call():
        raise make()

    def pipeline(config):
        @flow(checkpoint=config)
        def pipeline():
            for _ in range(3):
                try:
                    call()
                except Exception:  # any of them
                    continue

        pipeline.kickoff(run_id="one" if config else None)
        return [record.getMessage() for record in caplog.records]

    assert pipeline(None) == []
    (line,) = pipeline(on_disk())
    assert told in line


def test_a_resume_notes_on_the_error_what_is_missing(on_disk):
    @step
    def call(live):
        raise ApiError("down", threading.Lock()) if live else ValueError(threading.Lock())

    found = []

    @flow(checkpoint=on_disk())
    def pipeline():
        for live in (True, False):
            try:
                call(live)
            except (ApiError, ValueError, StepRaised) as error:
                found.append((type(error), getattr(error, "__notes__", None)))
        return ask("On?", name="on")

    with pytest.raises(Suspended):
        pipeline.kickoff(run_id="one")
    found.clear()
    pipeline.kickoff(run_id="one", answers={"human:on": "yes"})
    assert found[0][0] is ApiError
    assert "Could not be recorded: response (a lock)" in found[0][1]
    assert found[1][0] is StepRaised
    assert "Could not be recorded: args[0] (a lock)" in found[1][1]


def test_the_failure_of_a_try_that_is_made_again_and_of_the_flow_itself_are_not_told(on_disk, caplog):
    tries = []

    @step(retries=1)
    def call():
        tries.append(1)
        if len(tries) == 1:
            raise ApiError("down", threading.Lock())

    @flow(checkpoint=on_disk())
    def pipeline():
        call()
        raise ApiError("down", threading.Lock())

    with pytest.raises(ApiError):
        pipeline.kickoff(run_id="one")
    assert "cannot be recorded" not in caplog.text
