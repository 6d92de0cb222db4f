"""Configuration secrets are found wherever a definition or the environment holds them, and nothing else is."""

from __future__ import annotations

import json
import os
from collections import deque

import pytest
from pydantic import BaseModel, PrivateAttr, SecretBytes, SecretStr

from crewlite import BaseLLM, BaseTool
from crewlite.llm import keys
from crewlite.texts.masking import MASK
from crewlite.texts.secrets import Secrets

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


class Account(BaseModel):
    user: str
    password: str


class Toolbox(BaseTool):
    """Fields whose types say what is in them."""

    name: str = "toolbox"
    description: str = "Many things."
    clients: list[Account] = []
    by_name: dict[str, Account] = {}
    typed: dict[str, SecretStr] = {}
    proxy_headers: list[tuple[str, str]] = []
    proxy_urls: list[str] = []
    rows: list[str] = []

    def _run(self) -> str:
        return ""


class Private(BaseModel):
    _token: str = PrivateAttr(default=KEY)


@pytest.fixture(autouse=True)
def _no_secrets_of_ours(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "holder",
    [
        SecretStr(KEY),
        SecretBytes(KEY.encode()),
        Search(key=SecretStr(KEY)),
        Search(options={"nested": {"deep": SecretStr(KEY)}}),
        Search(options={"api_key": KEY}),
        Search(options={"api_keys": {"openai": KEY, "other": "another one"}}),
        Toolbox(clients=[Account(user="ann", password=KEY)]),
        Toolbox(by_name={"one": Account(user="ann", password=KEY)}),
        Toolbox(typed={"one": SecretStr(KEY)}),
        Toolbox(rows=["a"], proxy_headers=[("X-Anything", KEY)]),
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
        Model(api_keys=deque([KEY])),
        Private(),
        {"api_key": KEY},
        Model(base_url=f"https://ann:{KEY}@host/v1"),
        Model(base_url=f"https://host/v1?page=2&api_key={KEY}"),
        Model(proxy=f"http://0ann1bob2cid3dan4:{KEY}@proxy:80"),
        Search(options={"dsn": f"host=db user=ann password={KEY} port=5432"}),
        Search(options={"connectionString": f"AccountName=ann;AccountKey={KEY};EndpointSuffix=core"}),
        Search(options={"servers": {"proxies": {"http": f"http://ann:{KEY}@proxy:80"}}}),
        Toolbox(proxy_urls=[f"http://ann:{KEY}@proxy:80"]),
        Model(api_key_prod=KEY),
        Model(credentials=json.dumps({"user": "ann", "private_key": KEY})),
        Model(api_keys=f"another one,{KEY}"),
    ],
    ids=lambda holder: repr(getattr(holder, "__dict__", holder))[:60],
)
def test_a_secret_is_found_wherever_a_definition_holds_it(holder):
    secrets = Secrets.of(holder)
    assert KEY not in secrets.mask(f"401: the key {KEY} is wrong")
    assert KEY not in str(secrets.mask_data({"a": [f"x{KEY}y"], KEY: None}))


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "CLIENT_SECRET", "API_KEY", "TOKEN", "SMTP_PASS", "DB_PWD"),
        *("SSHPASS", "OPENAI_API_KEY_2", "API_KEY1", "API_KEY_PROD", "DB_PASSWORD_STAGING", "BOT_TOKEN_B"),
        *sorted({name for names in keys.NAMES.values() for name in names}),
    ],
)
def test_a_secret_of_the_environment_is_known(name, monkeypatch):
    monkeypatch.setenv(name, KEY)
    assert Secrets.of().mask(KEY) == MASK


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "KEYBOARD", "TOKENIZER", "LANG", "SECRETARY", "PATH", "SORT_KEY", "PARTITION_KEY", "CACHE_KEY"),
        *("TOKEN_TYPE", "PASSWORD_FIELD", "SECRET_NAME", "TOKEN_URL", "AWS_ACCESS_KEY_ID", "MAX_TOKENS", "EOS_TOKEN"),
        *("PWD", "OLDPWD", "COMPASS", "DATABASE_URL", "MY_PAT", "MAX_TOKENS_2"),
    ],
)
@pytest.mark.parametrize("value", ["ordinary text", "created_at", "customer-2026-orders"])
def test_the_rest_of_the_environment_is_not_masked(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    assert Secrets.of().mask(value) == value


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("postgres://app:s3cret-pw@db.local:5432/shop", ["s3cret-pw"]),
        ("postgres://app:s3cret%2Fpw@db.local/shop", ["s3cret%2Fpw", "s3cret/pw"]),
        ("https://host/hook?page=summary-2026&token=abc-123-def#top", ["abc-123-def"]),
        ("https://ghp0123456789abcdef@github.com/ann/shop", ["ghp0123456789abcdef"]),
        ("Server=db.local;Database=shop;User Id=app;Password=s3cret-pw;", ["s3cret-pw"]),
        ("postgres://postgres:postgres@db.local/shop", []),
        ("https://ann-2026@host/v1?sort_key=created_at&token_type=bearer-1", []),
        ("mail ann:s3cret-pw@host, not an address", []),
    ],
)
def test_of_an_address_the_password_is_a_secret_and_nothing_else(address, secrets, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", address)
    known = Secrets.of()
    assert [known.mask(one) for one in secrets] == [MASK] * len(secrets)
    words = "postgres app ann-2026 db.local db.local:5432/shop summary-2026 created_at bearer-1"
    assert known.mask(words) == words
    assert known.mask(address) == (address if not secrets else address.replace(secrets[0], MASK))


GENERATED = "sk-proj-4f9aQ81zP0bL77Xe2w"


@pytest.mark.parametrize("name", ["ELSEWHERE_KEY", "MY_PAT", "SECRET_KEY_BASE", "GITHUB_TOKENS", "STRIPE_KEY_FOR_SHOP"])
def test_a_generated_value_is_known_under_any_name_that_mentions_a_secret(name, monkeypatch):
    in_field, in_list = Model(**{name.lower(): GENERATED}), Model(**{name.lower(): ["another one", GENERATED]})
    for holder in (in_field, in_list):
        assert Secrets.of(holder).mask(GENERATED) == MASK
    monkeypatch.setenv(name, GENERATED)
    assert Secrets.of().mask(GENERATED) == MASK


def test_of_a_text_under_a_name_that_mentions_a_secret_only_what_is_generated_is_masked(monkeypatch):
    text = f"Write to the co-author, e.g. about {GENERATED}."
    for secrets in (Secrets.of(Model(key_points=text)), Secrets.of(Model(key_points=[text]))):
        assert secrets.mask("The co-author, e.g. of the tides") == "The co-author, e.g. of the tides"
        assert GENERATED not in secrets.mask(text)


CODE = "abcdEFGH1234ijklMNOP"


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        (f"https://hooks.slack.com/services/T0001/B0001/{CODE}", CODE),
        ("https://discord.com/api/webhooks/123456789012345678/Ab-cD_ef-12_gh-34_ij", "Ab-cD_ef-12_gh-34_ij"),
        ("https://api.telegram.org/bot123456:ABC-DEF_GHI-jkl_mno/sendMessage", "123456:ABC-DEF_GHI-jkl_mno"),
        (f"https://example.org/trigger/with/key/{CODE}", CODE),
        (f"https://mainnet.example.org/v3/{CODE}", CODE),
        (f"https://maps.example.org/tiles?key={CODE}", CODE),
    ],
)
@pytest.mark.parametrize("name", ["NOTIFY_URL", "NOTIFY_WEBHOOK", "endpoints"])
def test_a_code_in_the_path_of_an_address_that_lets_in_is_a_secret(name, address, secret, monkeypatch):
    masked = address.replace(secret, MASK)
    assert Secrets.of(Model(**{name: [address]})).mask(address) == masked
    monkeypatch.setenv(name.upper(), address)
    assert Secrets.of().mask(address) == masked


@pytest.mark.parametrize(
    "address",
    [
        f"https://example.org/shop/commit/{CODE}/readme",
        f"https://example.org/v1/accounts/{CODE}/models",
        "https://hooks.example.org/customer-orders-2026",
    ],
)
def test_what_else_an_address_says_in_its_path_is_not_masked(address, monkeypatch):
    monkeypatch.setenv("SERVICE_URL", address)
    assert Secrets.of().mask(address) == address


@pytest.mark.parametrize(
    "value",
    [
        *("bearer", "Summary", "PASSWORD", "postgres", "authentication", "пароль"),
        *("111111", "123456", "xxxxxxxx", "-----"),
    ],
)
@pytest.mark.parametrize(
    "hold",
    [
        SecretStr,
        lambda value: {"password": value},
        lambda value: {"headers": {"Authorization": value}},
        lambda value: Model(api_key=SecretStr(value)),
    ],
    ids=["typed", "named", "header", "model"],
)
def test_a_word_of_a_dictionary_is_never_masked_whoever_calls_it_a_secret(hold, value, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", value)
    text = f"the {value} of an ordinary {value.lower()}"
    assert Secrets.of(hold(value)).mask(text) == text


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "letmein!",
        "correct horse battery staple",
        "84029317",
        "kqzvwxjhtrpmbnds",
        "AbCdEfGh",
        "sk-very-secret",
    ],
)
@pytest.mark.parametrize("hold", [SecretStr, lambda value: {"password": value}], ids=["typed", "named"])
def test_what_is_no_plain_word_is_a_secret_where_it_is_declared_as_one(hold, value):
    assert Secrets.of(hold(value)).mask(f"it is {value}.") == f"it is {MASK}."


@pytest.mark.parametrize(
    "name",
    [
        *("token_type", "tokenType", "password_field", "secret_name", "token_url", "api_key_id", "key", "sort_key"),
        *("key_header", "stop_token", "pad_token", "next_token", "secretary", "password_hint", "credentials_path"),
    ],
)
def test_a_name_that_only_speaks_of_a_secret_bears_none(name):
    assert Secrets.of(Model(**{name: "value-4711"})).mask("value-4711") == "value-4711"


def test_headers_that_tell_who_asks_are_no_secrets():
    told = {"HTTP-Referer": "https://example.org/2026", "X-Title": "Tide tables v2", "User-Agent": "tides/2.1"}
    text = " ".join(told.values())
    assert Secrets.of(Model(extra_headers=told)).mask(text) == text


class Counting(list):
    """A list that counts how often anything in it is looked at."""

    looked = 0

    def __iter__(self):
        self.looked += 1
        return super().__iter__()

    def __getitem__(self, at):
        self.looked += 1
        return super().__getitem__(at)


class CountingDict(dict):
    """The same for a dict."""

    looked = 0

    def items(self):
        self.looked += 1
        return super().items()

    __iter__ = keys = values = items


class Row(BaseModel):
    text: str


class Loaded(BaseTool):
    """A tool with its data in it."""

    name: str = "loaded"
    description: str = "Looks things up."
    model_config = {"arbitrary_types_allowed": True}
    rows: object = None
    listed: list[Row] = []
    _index: object = PrivateAttr(default=None)

    def _run(self) -> str:
        return ""


def test_what_a_container_of_data_holds_is_never_looked_at():
    rows, index, table = Counting(["a", "b"]), Counting(["c"]), CountingDict((str(n), "text") for n in range(1_000))
    tool = Loaded(rows=rows)
    tool._index = index
    for holder in (
        tool,
        Loaded(rows=table),
        Loaded(rows=Client(rows=rows, table=table)),
        Model(rows=rows, index=[index]),
    ):
        Secrets.of(holder)
    assert (rows.looked, index.looked, table.looked) == (0, 0, 0)


def test_a_list_of_models_that_declare_no_secret_is_not_looked_at():
    class Watched(Row):
        def __getattribute__(self, name):
            assert name != "text", "its text was read"
            return super().__getattribute__(name)

    tool = Loaded.model_construct(listed=[Watched(text="a")])
    Secrets.of(tool)


def test_objects_that_lead_to_each_other_are_followed_three_deep_and_no_further():
    assert Secrets.of(Model(client=Client(inner=Client(token=KEY)))).mask(KEY) == MASK
    deep = Client(a=Client(b=Client(c=Client(d=Client(token=KEY)))))
    assert Secrets.of(Model(client=deep)).mask(KEY) == KEY


# the value can be a secret, so that the name alone decides
@pytest.mark.parametrize(
    "fields",
    [
        *({name: "tides-4711"} for name in ("max_tokens", "max_completion_tokens", "num_tokens", "prompt_tokens")),
        *({name: "tides-4711"} for name in ("token_usage", "model", "base_url", "role", "keyboard")),
        {"tokens": 84_029_317},
        {"options": {"max_tokens": "tides-4711", "temperature": 0.25}},
    ],
    ids=str,
)
def test_what_only_counts_or_describes_is_not_masked(fields):
    text = "a text, tides-4711, of 84029317 letters at 0.25"
    assert Secrets.of(Model(**fields)).mask(text) == text
    assert Secrets.of(Model(api_keys=["tides-4711", "84029317"])).mask(text).count(MASK) == 2


def test_what_a_credential_says_before_the_secret_is_not_masked():
    secrets = Secrets.of(Model(headers={"Authorization": f"Bearer {KEY}"}))
    assert secrets.mask(f"Bearer of news: {KEY}") == f"Bearer of news: {MASK}"


def test_the_words_of_a_passphrase_stay_words():
    secrets = Secrets.of(Model(passphrase="correct horse battery staple"))
    assert secrets.mask("a correct battery") == "a correct battery"
    assert secrets.mask("it is: correct horse battery staple!") == f"it is: {MASK}!"


def test_values_too_short_to_be_told_from_words_are_left_alone():
    assert Secrets.of(Model(api_key="abc")).mask("abc abcabc") == "abc abcabc"


def test_definitions_that_hold_themselves_are_searched_all_the_same():
    loop: dict = {"api_key": KEY}
    loop["self"] = loop
    ring = Client(token=KEY)
    ring.ring = ring
    for holder in (loop, ring, Model(config=loop)):
        assert Secrets.of(holder).mask(KEY) == MASK
