"""What failed and was handled has failed in every life; what failed the run is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import threading
import urllib.error
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from crewlite import History
from crewlite.errors import ConfigError, InDoubt, NonDeterminism, StepRaised, StepTimeout, Suspended
from crewlite.flow import ask, bound, flow, step
from crewlite.runtime.steps.failures import ReportedFailure, raised, written


class Declined(Exception):
    def __init__(self, card: str, code: int) -> None:
        super().__init__(f"{card} was declined")
        self.card, self.code = card, code


class Odd(Exception):
    """Holds what nobody can write down."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())


@pytest.fixture
def shop(on_disk, ran):
    """A flow that pays with a card, else otherwise, and then asks."""
    trouble = [Declined("visa", 51)]

    @step
    def card():
        if trouble:
            raise trouble[0]
        ran.append("card")
        return "card"

    @step
    def voucher():
        ran.append("voucher")
        return "voucher"

    def pay():
        try:
            return card()
        except (Declined, ConnectionError, StepTimeout) as error:
            return f"{voucher()} after {type(error).__name__} {error.args} {getattr(error, 'card', '')}".strip()

    @flow(checkpoint=on_disk())
    def order():
        return pay(), ask("Ship?", bool, name="ship")

    order.trouble = trouble
    return order


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Declined("visa", 51), "voucher after Declined ('visa was declined',) visa"),
        (ConnectionError(111, "no line"), "voucher after ConnectionError (111, 'no line')"),
        (TimeoutError("late"), "voucher after TimeoutError ('late',)"),
    ],
    ids=["own", "of the system", "built in"],
)
def test_a_failure_that_the_flow_has_handled_is_raised_again_and_not_tried_again(shop, ran, error, told):
    if isinstance(error, TimeoutError):
        error = StepTimeout("card", 3)
        told = f"voucher after StepTimeout {error.args}"
    shop.trouble[0] = error
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    shop.trouble.clear()
    assert shop.kickoff(run_id="one", answers={"human:ship": True}) == (told, True)
    assert ran == ["voucher"]


def test_a_fork_hears_of_it_too_and_may_have_it_tried_again(shop, ran):
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    shop.trouble.clear()
    answers = {"human:ship": True}
    assert shop.fork("one", branch="as-it-was").kickoff(answers=answers)[0].startswith("voucher")
    assert "Declined" in str(shop.fork("one", branch="seen").preview())
    assert shop.fork("one", branch="anew", rerun=["step:card"]).kickoff(answers=answers) == ("card", True)
    assert shop.kickoff(run_id="one", rerun=["step:card"], answers=answers) == ("card", True)


def test_an_error_that_cannot_be_written_down_comes_back_as_one_that_stands_for_it(on_disk, ran):
    broken = [True]

    @step
    def odd():
        if broken:
            raise Odd
        return "never"

    @flow(checkpoint=on_disk())
    def pipeline():
        try:
            odd()
        except Odd:
            ran.append("odd")
        except StepRaised as error:
            assert error.error_type == "Odd"
            ran.append("stood for")
        return ask("On?", name="on")

    with pytest.raises(Suspended):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one", answers={"human:on": "yes"}) == "yes"
    assert ran == ["odd", "stood for"]


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
    data = {"cls": f"{__name__}:InDoubt", "args": ["x"], "fields": {}}
    assert type(raised("a", ReportedFailure("InDoubt", "x", "", data))) is StepRaised


@pytest.mark.parametrize("name", ["__main__:Declined", "elsewhere.test_failures:Slotted"])
def test_a_class_of_a_script_is_found_whether_the_script_was_run_or_imported(monkeypatch, name):
    step(lambda: None)  # which makes this module one of the program's own
    if not name.startswith("__main__"):
        monkeypatch.setattr(Slotted, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], "__file__", "/home/me/test_failures.py", raising=False)
        monkeypatch.setattr(sys.modules["__main__"], "Slotted", Slotted, raising=False)
    again = raised("a", ReportedFailure("X", "x", "", {"cls": name, "args": ["x"], "fields": {}}))
    assert type(again) in (Declined, Slotted)


@pytest.mark.parametrize("how", ["itself", "from", "while handling", "group", "of others that nobody heard of"])
def test_what_the_run_has_failed_with_is_tried_again(on_disk, ran, how):
    broken = [True]

    @step
    def fetch(n):
        ran.append(n)
        if broken and n > 1:
            raise ConnectionError(n)
        return n

    @flow(checkpoint=on_disk())
    def pipeline():
        found = fetch.map([1, 2, 3])
        try:
            return found.result()
        except ConnectionError as error:
            if how == "from":
                raise RuntimeError("no figures") from error
            if how == "while handling":
                raise RuntimeError("no figures")
            if how == "group":
                raise ExceptionGroup("no figures", [error])
            raise

    with pytest.raises((ConnectionError, RuntimeError, ExceptionGroup)):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [1, 2, 3]
    assert sorted(ran) == [1, 2, 2, 3, 3]


def test_a_failure_behind_many_others_is_found_at_once(on_disk, ran):
    broken = [True]

    @step
    def fetch():
        ran.append("fetch")
        if broken:
            raise ConnectionError
        return "fetched"

    def through(layers):  # each tells the one below as its cause, and as its context
        if not layers:
            return fetch()
        try:
            return through(layers - 1)
        except Exception as error:
            raise RuntimeError(layers) from error

    @flow(checkpoint=on_disk())
    def pipeline():
        return through(60)

    with pytest.raises(RuntimeError):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert (pipeline.kickoff(run_id="one"), ran) == ("fetched", ["fetch", "fetch"])


def test_a_flow_that_is_tried_again_keeps_what_it_has_handled(ran):
    broken = [True]

    @step
    def first():
        if len(broken) == 1:
            raise ConnectionError
        return "first"

    @step
    def last():
        broken.append(True)
        if len(broken) < 3:
            raise ConnectionError
        return "last"

    @flow(retries=1)
    def pipeline():
        try:
            found = first()
        except ConnectionError:
            found = "second"
        return found, last()

    assert pipeline.kickoff() == ("second", "last")


def test_other_code_is_told_before_it_does_something_new(on_disk, ran):
    @step
    def pay():
        ran.append("pay")

    @step
    def refund():
        ran.append("refund")

    @flow(checkpoint=on_disk(), name="order")
    def before():
        pay()
        return ask("On?", name="on")

    @flow(checkpoint=on_disk(), name="order")
    def after():
        refund()
        return ask("On?", name="on")

    with pytest.raises(Suspended):
        before.kickoff(run_id="one")
    with pytest.raises(NonDeterminism, match="step:pay.*step:refund"):
        after.kickoff(run_id="one", answers={"human:on": "yes"})
    assert ran == ["pay"]


@pytest.mark.parametrize("threads", [False, True], ids=["coroutines", "threads"])
def test_helpers_that_ask_alike_side_by_side_keep_what_is_theirs(on_disk, threads):
    order, numbers, charged = ["alice", "bob"], iter(range(9)), []

    @step
    def number():
        return next(numbers)

    @step
    def charge(who, key):
        charged.append((who, key))
        return who, key

    async def one(who):
        while order[0] != who:
            await asyncio.sleep(0.001)
        key = await number.submit()
        order.append(order.pop(0))
        return await charge.submit(who, key)

    def one_in_a_thread(who):
        while order[0] != who:
            threading.Event().wait(0.001)
        key = number()
        order.append(order.pop(0))
        return charge(who, key)

    if threads:
        from concurrent.futures import ThreadPoolExecutor

        @flow(checkpoint=on_disk())
        def shop():
            with ThreadPoolExecutor(2) as pool:
                found = list(pool.map(bound(one_in_a_thread), ["alice", "bob"]))
            return found, ask("Ship?", name="ship")
    else:

        @flow(checkpoint=on_disk())
        async def shop():
            found = await asyncio.gather(one("alice"), one("bob"))
            return found, await ask("Ship?", name="ship")

    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    order.reverse()
    found, _ = shop.kickoff(run_id="one", answers={"human:ship": "yes"})
    assert sorted(charged) == sorted([tuple(each) for each in found]) == [("alice", 0), ("bob", 1)]


def test_a_step_that_nobody_awaits_is_told():
    @step
    async def write():
        return 1

    @flow
    async def pipeline():
        forgotten.append(write())
        return 2

    forgotten = []
    with pytest.raises(ConfigError, match="step:write was requested in .* not awaited"):
        pipeline.kickoff()
    forgotten[0].close()


def test_history_shows_a_failure_that_was_handled(shop):
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    with History(shop.checkpoint.location) as history:
        (card,) = [each for each in history.run("one").steps if each.address == "step:card"]
    assert (card.status, [attempt.error_type for attempt in card.attempts]) == ("failed", ["Declined"])


@pytest.mark.parametrize("ends", ["raises", "exceeds its time"])
def test_a_flow_that_is_tried_again_makes_no_call_again_that_may_happen_only_once(config, ends):
    made, over = [], threading.Event()

    @step(effect="once", timeout=0.3 if ends == "exceeds its time" else None)
    def pay():
        made.append(1)
        if ends == "raises":
            raise ConnectionError("no answer")
        over.wait(20)

    pipeline = flow(name="pipeline", checkpoint=config(), retries=2)(lambda: pay())
    for _ in range(2):
        with pytest.raises(InDoubt, match="step pay"):
            pipeline.kickoff(run_id="one")
    over.set()
    assert made == [1]
    assert pipeline.kickoff(run_id="one", answers={"step:pay": "paid by hand"}) == "paid by hand"
