"""API keys and logins: which services want a key and where it is looked for, so that a missing one is found early.

Listed are only services that always want a key, each with all the names that litellm looks for. A key that was given to
litellm itself, or by one of its own arguments (`extra`), counts as well.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from crewlite.errors import ConfigError
from crewlite.texts.wording import what_is

_AZURE = ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_PASSWORD")
NAMES: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure": _AZURE,
    "azure_ai": ("AZURE_AI_API_KEY", *_AZURE),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cloudflare": ("CLOUDFLARE_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "cohere_chat": ("COHERE_API_KEY", "CO_API_KEY"),
    "databricks": ("DATABRICKS_API_KEY", "DATABRICKS_CLIENT_SECRET"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "github": ("GITHUB_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY", "MISTRAL_AZURE_API_KEY"),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITY_API_KEY", "PERPLEXITYAI_API_KEY"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "snowflake": ("SNOWFLAKE_JWT",),
    "together_ai": ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    "watsonx": ("WATSONX_API_KEY", "WATSONX_APIKEY", "WX_API_KEY", "WATSONX_ZENAPIKEY", "WATSONX_TOKEN"),
    "xai": ("XAI_API_KEY",),
}
ACCOUNTS = frozenset({"azure", "azure_ai", "cloudflare", "databricks", "snowflake", "watsonx"})
"""Services at an address of the account's own: with them, a `base_url` still wants the service's key."""
_ADDRESSES = {"nvidia_nim": ("NVIDIA_NIM_API_BASE",), "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE")}
_BY_ARGUMENT = {"azure_ad_token", "azure_ad_token_provider", "client_secret", "azure_password", "token", "zen_api_key"}
_ANY = "no-key-needed"  # a user's own server accepts any key, and the client insists on one


def checked(api_key: object) -> SecretStr | None:
    """Return a key that was passed, without the white space around it. Raises ConfigError, which does not show it."""
    text = api_key.get_secret_value() if isinstance(api_key, SecretStr) else "" if api_key is None else api_key
    if not isinstance(text, str):
        raise ConfigError(f"LLM: api_key is {what_is(api_key)}; wanted text")
    key = text.strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            "LLM: api_key holds a character that no key has; wanted ASCII. Copy the key from its service again"
        )
    return SecretStr(key) if key else None


def missing(
    provider: str, api_key: str | None, base_url: str | None, arguments: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the environment variables of which one is needed; () if a key was found or none is needed.

    `arguments` are the names of litellm's own arguments that are passed on.
    """
    names = NAMES.get(provider, ())
    there = api_key or has_own_address(provider, base_url) or any(os.environ.get(name) for name in names)
    return () if there or not _BY_ARGUMENT.isdisjoint(arguments) or _by_library(provider) else names


def key_for(provider: str, api_key: str | None, base_url: str | None) -> str | None:
    """Return the key to send: the one that was passed, or None to let litellm look in the environment."""
    names = NAMES.get(provider, ())
    if api_key or not names or any(os.environ.get(name) for name in names) or _by_library(provider):
        return api_key
    return _ANY if has_own_address(provider, base_url) else None


def has_own_address(provider: str, base_url: str | None) -> bool:
    """Return whether the provider is asked at an address of the user's own, where no key may be wanted."""
    own = bool(base_url) and provider not in ACCOUNTS
    return own or any(os.environ.get(name) for name in _ADDRESSES.get(provider, ()))


def _by_library(provider: str) -> bool:
    """Return whether the program gave a key to litellm itself, or has a library installed that finds one."""
    if provider == "databricks" and find_spec("databricks"):
        return True
    names: tuple[str, ...] = ("api_key", f"{provider}_key", f"{provider.replace('_', '')}_api_key")
    names += ("azure_key", "enable_azure_ad_token_refresh") if provider.startswith("azure") else ()
    return any(getattr(sys.modules.get("litellm"), name, None) for name in names)


def is_address(value: object) -> bool:
    """Return whether a value is an address of http or https with a host."""
    try:
        where = urlsplit(value) if isinstance(value, str) else None
        return bool(where and where.scheme in ("http", "https") and where.hostname and where.port != 0)
    except ValueError:
        return False


def is_here(base_url: object) -> bool:
    """Return whether an address is on this machine and contains no login."""
    where = urlsplit(base_url) if is_address(base_url) and isinstance(base_url, str) else None
    return bool(where and where.hostname in ("localhost", "127.0.0.1", "::1") and not where.username)


@dataclass(frozen=True)
class Login:
    """The login of `http://name:password@host`, sent as the header it means: clients refuse it beside a key."""

    address: str
    token: SecretStr

    @classmethod
    def of(cls, base_url: str | None) -> Login | None:
        """Return the login in an address; None if there is none."""
        where = urlsplit(base_url or "")
        login, at, host = where.netloc.rpartition("@")
        if not at:
            return None
        token = base64.b64encode(unquote(login).encode()).decode()
        return cls(urlunsplit(where._replace(netloc=host)), SecretStr(token))

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers to send."""
        return {"Authorization": f"Basic {self.token.get_secret_value()}"}
