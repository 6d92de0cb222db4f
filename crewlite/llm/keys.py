"""As whom a service is asked: which want a key and where it is looked for, so that a missing one is told beforehand.

Only services that always want one, each with all the names litellm looks for; about the others nothing is claimed.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

NAMES: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY", "MISTRAL_AZURE_API_KEY"),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
_ADDRESSES = {"openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE")}
_ANY = "no-key-needed"  # a server of one's own takes any; the client insists on one


def missing(provider: str, api_key: str | None, base_url: str | None) -> tuple[str, ...]:
    """The environment variables one of which would be needed; () if a key is there, or need not be."""
    names = NAMES.get(provider, ())
    there = api_key or _elsewhere(provider, base_url) or any(os.environ.get(name) for name in names)
    return () if there else names


def key_for(provider: str, api_key: str | None, base_url: str | None) -> str | None:
    """The key to send: the one that was passed; None lets litellm look into the environment."""
    if api_key or provider != "openai" or os.environ.get("OPENAI_API_KEY"):
        return api_key
    return _ANY if _elsewhere(provider, base_url) else None


def _elsewhere(provider: str, base_url: str | None) -> bool:
    """Whether it is asked at an address of the user's own, where a key may not be wanted."""
    return bool(base_url) or any(os.environ.get(name) for name in _ADDRESSES.get(provider, ()))


@dataclass(frozen=True)
class Login:
    """The login of `http://name:password@host`, sent as the header it means: clients refuse it beside a key."""

    address: str
    token: SecretStr
    passwords: tuple[SecretStr, SecretStr]
    """As in the address, and as it is: held so that both are masked."""

    @classmethod
    def of(cls, base_url: str | None) -> Login | None:
        """The login in an address; None if there is none."""
        where = urlsplit(base_url or "")
        login, at, host = where.netloc.rpartition("@")
        if not at:
            return None
        token = base64.b64encode(unquote(login).encode()).decode()
        password = where.password or ""
        passwords = (SecretStr(password), SecretStr(unquote(password)))
        return cls(urlunsplit(where._replace(netloc=host)), SecretStr(token), passwords)

    @property
    def headers(self) -> dict[str, str]:
        """What to send."""
        return {"Authorization": f"Basic {self.token.get_secret_value()}"}
