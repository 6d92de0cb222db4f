"""Which texts are secrets, by the names that they stand under.

A name may declare its value a secret, such as `api_key`: then any value that can be a secret is one. It may only
mention one, such as `key` and `tokens`: then what is plainly generated in its value is one. Or it declares an address,
which may hold some.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote

SHORTEST = 6  # characters; anything shorter occurs inside ordinary words
PARTED = re.compile(r"[\s,;]+")
"""What divides the parts of a text: "Bearer abc", a list of keys."""
_LONGEST_WORD = 15  # letters; a longer run of letters is a generated text
_SHORTEST_NUMBER = 8  # digits; shorter numbers are counts, years and amounts
_LEAST_VARIETY = 3  # different characters; "xxxxxxxx" is a placeholder
_KEYS = (
    "api|access|account|auth|client|encryption|master|private|secret|service|service_role|shared|signing|ssh|storage|"
    "subscription"
)
_NAMES = re.compile(
    rf"(?:(?:^|_)(?:{_KEYS})_keys?|api_?keys?|(?:^|_)secrets?|passw(?:or)?ds?|pass_?phrases?|(?:^|_)credentials?|"
    r"(?:^|_)authori[sz]ation|(?:^|_)cookies?|(?:^|_)bearer|(?:^|_)token|(?:auth|access|api|bot|refresh)_?tokens?|"
    r"(?:^|_|ssh)pass|_pwd|(?:^|_)jwt)$"
)
_MENTIONED = re.compile(r"(?:^|_)(?:api_?keys?|auth|jwt|keys?|pass(?:word|wd)?s?|pats?|pwd|secrets?|tokens?)(?:_|$)")
_TOLD_ABOUT = re.compile(r"_(?:dir|field|file|header|id|name|path)s?$")
_TEXT_TOKENS = re.compile(  # names of token counts, and of special tokens of a model
    r"(?:^|_)(?:bos|cached|completion|end|eos|input|mask|max|min|next|num|output|pad|page|prompt|reasoning|sep|special|"
    r"start|stop|total|unk)_tokens?$"
)
_ADDRESSES = re.compile(
    r"(?:^|_)(?:address(?:es)?|api_base|conn(?:ection)?(?:_str(?:ing)?)?|dsn|endpoints?|prox(?:y|ies)|ur[il]s?|"
    r"(?:web)?hooks?)$"
)
_ONE_OF_SEVERAL = re.compile(  # OPENAI_API_KEY_2, API_KEY_PROD
    r"(?:_*\d+|_(?:[a-z]|v\d+|backup|current|default|dev(?:elopment)?|live|local|main|new|old|previous|primary|"
    r"prod(?:uction)?|qa|read|sandbox|secondary|stag(?:e|ing)|test(?:ing)?|uat|write))+$"
)
_LOGIN = re.compile(r"://([^/?#\s:@]*)(?::([^/?#\s]*))?@")
_PAIR = re.compile(r"([A-Za-z][\w-]*)=([^&;#\s]+)")
_PATH = re.compile(r"://([^?#\s]+)")
_VERSION = re.compile(r"v\d+")
_BOT = re.compile(r"bot(\d+:[\w-]{16,})")
_WORD = re.compile(rf"(?:[^\W\d_])(?:[^\W\d_]){{0,{_LONGEST_WORD - 1}}}")
_GENERATED = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{16,}")
_GENERATED_PART = re.compile(rf"{_GENERATED.pattern}|(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{{16,}}")


def can_be_secret(text: str) -> bool:
    """Return whether a text is long and varied enough for a secret, and neither a plain word nor a short number."""
    if len(text) < SHORTEST or len(set(text)) < _LEAST_VARIETY:
        return False
    if text.isdecimal():
        return len(text) >= _SHORTEST_NUMBER
    return not (_WORD.fullmatch(text) and (text[1:].islower() or text.isupper()))


def secrets_under(name: str, value: str) -> set[str]:
    """Return the secrets that a text under this name is or holds. Not all of them can be secrets."""
    if declares_secret(name):
        return {value}
    if _is_address(name):
        return _in_address(value, of_hook="hook" in name.lower())
    return {part for part in PARTED.split(value) if _GENERATED.search(part)} if _mentions(name) else set()


def may_hold_secret(name: str) -> bool:
    """Return whether a text under this name may be a secret or hold one."""
    return declares_secret(name) or _mentions(name) or _is_address(name)


@lru_cache(maxsize=4096)
def declares_secret(name: str) -> bool:
    """Return whether a name declares its value a secret: `api_key`, `clientSecret`, DB_PASSWORD; not `token_type`."""
    plain = _plain(name)
    return bool(_NAMES.search(plain)) and not _TEXT_TOKENS.search(plain)


@lru_cache(maxsize=4096)
def _mentions(name: str) -> bool:
    """Return whether a generated text under this name is a secret: `key`, `tokens`, SECRET_KEY_BASE."""
    plain = _plain(name)
    return bool(_MENTIONED.search(plain)) and not (_TEXT_TOKENS.search(plain) or _TOLD_ABOUT.search(plain))


@lru_cache(maxsize=4096)
def _is_address(name: str) -> bool:
    """Return whether a name declares its value an address: `base_url`, DATABASE_URL, `connection_string`."""
    return bool(_ADDRESSES.search(_plain(name)))


def _plain(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    return _ONE_OF_SEVERAL.sub("", words)


def _in_address(text: str, *, of_hook: bool) -> set[str]:
    """Return what an address holds of secrets, also decoded: its password, values such as `?api_key=...`, and codes.

    A name in front of an `@` without a password is one if it is plainly generated.
    """
    found = {
        value
        for name, value in _PAIR.findall(text)
        if declares_secret(name) or (_mentions(name) and _GENERATED.search(value))
    }
    for name, password in _LOGIN.findall(text):
        found |= {password} if password else {name} if _GENERATED.search(name) else set()
    for path in _PATH.findall(text):
        found |= _in_path(path, of_hook=of_hook or "hook" in path.lower())
    return found | set(map(unquote, found))


def _in_path(path: str, *, of_hook: bool) -> set[str]:
    """Return the generated parts of a path that let in whoever has them.

    They stand in the address of a webhook, behind a word such as `token`, and at the end, behind a version: `/v3/...`.
    """
    found, parts = set(_BOT.findall(path)), path.rstrip("/").split("/")
    for before, part in pairwise(parts):
        ends = bool(_VERSION.fullmatch(before)) and part is parts[-1]
        if (of_hook or ends or declares_secret(before) or _mentions(before)) and _GENERATED_PART.search(part):
            found.add(part)
    return found
