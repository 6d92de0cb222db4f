"""Configuration secrets are found wherever a definition holds them, and masked wherever text goes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, PrivateAttr, SecretBytes, SecretStr

from crewlite import BaseLLM, BaseTool
from crewlite.codec import decode, encode
from crewlite.secrets import MASK, Secrets

KEY = "sk-0123456789"


class Model(BaseLLM):
    model = "mine"

    def __init__(self, **fields):
        super().__init__()
        self.__dict__.update(fields)

    def call(self, messages):
        return "x"


class Client:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Search(BaseTool):
    name: str = "search"
    description: str = "Search."
    key: object = None
    options: object = None

    def _run(self, query: str) -> str:
        return query


class Private(BaseModel):
    _token: str = PrivateAttr(default=KEY)


@pytest.fixture(autouse=True)
def _no_secrets_of_ours(monkeypatch):
    import os

    for name in list(os.environ):
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "holder",
    [
        SecretStr(KEY),
        SecretBytes(KEY.encode()),
        Search(key=SecretStr(KEY)),
        Search(options={"nested": [{"deep": SecretStr(KEY)}]}),
        Search(options={"api_key": KEY}),
        Search(options=[{"auth_token": KEY}]),
        Search(options=Client(apikey=KEY)),
        Search(options=Client(inner=Client(client_secret=KEY))),
        *(
            Model(**{name: KEY})
            for name in (
                *("api_key", "apiKey", "API_KEY", "openai_api_key", "access_key", "private_key", "secret", "token"),
                *("auth_token", "password", "passwd", "passphrase", "credentials", "authorization", "session_cookie"),
                "_api_key",
            )
        ),
        Model(headers={"X-Anything": KEY}),
        Model(extra_headers={"Authorization": f"Bearer {KEY}"}),
        Model(default_headers={"Authorization": f"Basic {KEY}"}),
        Model(secrets=[KEY, "another one"]),
        Private(),
        {"api_key": KEY},
        [Model(api_key=KEY)],
    ],
    ids=lambda holder: repr(getattr(holder, "__dict__", holder))[:60],
)
def test_a_secret_is_found_wherever_a_definition_holds_it(holder):
    secrets = Secrets.of(holder)
    assert KEY not in secrets.mask(f"401: the key {KEY} is wrong")
    assert KEY not in str(secrets.mask_data({"a": [f"x{KEY}y"], KEY: None}))


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "CLIENT_SECRET", "API_KEY", "TOKEN"])
def test_a_secret_of_the_environment_is_known(name, monkeypatch):
    monkeypatch.setenv(name, KEY)
    assert Secrets.of().mask(KEY) == MASK


@pytest.mark.parametrize("name", ["HOME", "KEYBOARD", "TOKENIZER", "LANG", "SECRETARY", "PATH"])
def test_the_rest_of_the_environment_is_not_masked(name, monkeypatch):
    monkeypatch.setenv(name, "ordinary text")
    assert Secrets.of().mask("ordinary text") == "ordinary text"


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": "ordinary"},
        {"max_completion_tokens": "ordinary"},
        {"num_tokens": "ordinary"},
        {"prompt_tokens": "ordinary"},
        {"tokens": 4_000_000},
        {"token_usage": "ordinary"},
        {"model": "ordinary"},
        {"base_url": "ordinary"},
        {"role": "ordinary"},
        {"keyboard": "ordinary"},
        {"options": {"max_tokens": "ordinary", "temperature": 0.25}},
    ],
    ids=str,
)
def test_what_only_counts_or_describes_is_not_masked(fields):
    text = "an ordinary text of 4000000 letters at 0.25"
    assert Secrets.of(Model(**fields)).mask(text) == text


def test_what_a_credential_says_before_the_secret_is_not_masked():
    secrets = Secrets.of(Model(headers={"Authorization": f"Bearer {KEY}"}))
    assert secrets.mask(f"Bearer of news: {KEY}") == f"Bearer of news: {MASK}"


def test_the_words_of_a_passphrase_stay_words():
    secrets = Secrets.of(Model(passphrase="correct horse battery staple"))
    assert secrets.mask("a correct battery") == "a correct battery"
    assert secrets.mask("it is: correct horse battery staple!") == f"it is: {MASK}!"


def test_values_too_short_to_be_told_from_words_are_left_alone():
    assert Secrets.of(Model(api_key="abc")).mask("abc abcabc") == "abc abcabc"


def test_the_longest_secret_is_masked_first():
    assert Secrets(["abcdef", "abcdefghi"]).mask("abcdefghi abcdef") == f"{MASK} {MASK}"


def test_masking_twice_changes_nothing_more(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "secret")
    secrets = Secrets.of(extra=["[secret", KEY])
    once = secrets.mask(f"the secret is {KEY}")
    assert secrets.mask(once) == once


@pytest.mark.parametrize("value", [UUID(int=7), Decimal("123456.789"), datetime(2026, 11, 21, tzinfo=UTC)])
def test_what_is_no_text_is_masked_as_a_whole_so_that_it_can_be_read(value):
    coded = encode({"held": value})
    masked = Secrets([coded["held"]["v"]]).mask_data(coded)
    assert decode(masked)["held"] == MASK


def test_a_path_with_a_secret_in_it_stays_a_path():
    assert decode(Secrets([KEY]).mask_data(encode(Path("run") / KEY))) == Path("run") / MASK


def test_data_keeps_its_shape():
    data = {"a": [1, 2.5, True, None, {"b": KEY}], "c": f"-{KEY}-"}
    assert Secrets([KEY]).mask_data(data) == {"a": [1, 2.5, True, None, {"b": MASK}], "c": f"-{MASK}-"}
    assert Secrets().mask_data(data) is data


def test_definitions_that_hold_themselves_are_searched_all_the_same():
    loop: dict = {"api_key": KEY}
    loop["self"] = loop
    ring = Client(token=KEY)
    ring.ring = [ring]
    for holder in (loop, ring, Model(config=loop)):
        assert Secrets.of(holder).mask(KEY) == MASK


@given(st.lists(st.text(min_size=6)), st.text(), st.text())
def test_no_known_value_survives(values, before, after):
    secrets = Secrets(values)
    for value in values:
        if value not in MASK:
            masked = secrets.mask(before + value + after)
            assert value not in masked or value in masked.replace(MASK, "") or MASK in masked
            assert masked == before + value + after or MASK in masked
