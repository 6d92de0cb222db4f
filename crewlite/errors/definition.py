"""Errors of definitions, settings and inputs that cannot work, raised before anything is paid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crewlite.errors.root import CrewliteError, meant
from crewlite.texts.wording import an, cut, without_middle


class ConfigError(CrewliteError, ValueError):
    """A definition or a setting cannot work. Raised before anything was paid."""

    code = "config"
    ends_run = True


class UnknownOption(ConfigError, TypeError):
    """A function was given keywords that it does not take."""

    code = "unknown_option"

    def __init__(self, what: str, options: Mapping[str, str], takes: Iterable[str], others: str = "") -> None:
        """`options`: the unknown keywords, each with what to write instead; "" if nothing is known.

        `others`: what to write instead of those of which nothing is known, with `{them}` in it.
        """
        missing = " and ".join(f"no option {name!r}{f' ({hint})' if hint else ''}" for name, hint in options.items())
        strange = ", ".join(f"{name!r}: ..." for name, hint in options.items() if not hint)
        advice = f"; {others.replace('{them}', f'{{{strange}}}')}" if others else ""
        listed = f"; it takes: {', '.join(takes) or 'none'}{advice}" if strange else ""
        super().__init__(f"{what} has {missing}{listed}")
        self.what, self.options = what, tuple(options)


class WrongArguments(ConfigError, TypeError):
    """A function was called without an argument that it needs, with too many without a name, or without its object."""

    code = "wrong_arguments"

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(f"{what} {found}; {wanted}")
        self.what, self.found, self.wanted = what, found, wanted


class KnowledgeMissing(ConfigError, FileNotFoundError):
    """A file of a source of knowledge is not there."""

    code = "knowledge_missing"

    def __init__(self, path: str, looked: Sequence[str], directory: str | None = None) -> None:
        """`looked`: where the file was looked for; `directory`: the one of these that is a directory."""
        ways = " and at ".join(repr(cut(way, 100)) for way in looked)
        found = f"There is no knowledge file {cut(path, 100)!r}: looked for it at {ways}, from the working directory"
        page = "For a web page, write a KnowledgeSource whose load_content fetches the text"
        text = "Pass a text as StringKnowledgeSource(content=...)"
        hint = page if path.startswith(("http://", "https://")) else text
        if directory is not None:
            found = f"{cut(directory, 100)!r} is a directory; a source of knowledge wants files"
            hint = f"Pass its files, such as [*Path({directory!r}).glob('*.md')]"
        super().__init__(f"{found}. {hint}")
        self.path, self.looked, self.directory = path, tuple(looked), directory


class NoModel(ConfigError):
    """An agent has no model. crewlite never chooses a paid model by itself."""

    code = "no_model"

    def __init__(self, agents: Sequence[str], give: str = "Give the agent or the crew an `llm=`") -> None:
        names = ", ".join(repr(agent) for agent in agents)
        super().__init__(
            f"No model for {names}. {give}, or set CREWLITE_MODEL (CREWLITE_MODEL=offline answers without a network)."
        )
        self.agents = tuple(agents)


class VariantsRefused(ConfigError):
    """Variants of a run cannot be explored. Raised before any of them is forked or run; lists every mistake.

    `mistakes`: pairs of the name of a variant and a mistake in it.
    """

    code = "variants_refused"

    def __init__(self, ref: str, mistakes: Sequence[tuple[str, str]]) -> None:
        found = "; ".join(
            f"variant {name!r}: {without_middle(mistake).removesuffix('.')}" for name, mistake in mistakes
        )
        super().__init__()
        self.args = (f"{ref} is not explored, and nothing was forked or run: {found}",)  # however many there are
        self.ref, self.mistakes = ref, tuple(mistakes)


class BindMissing(ConfigError):
    """A definition cannot be rebuilt from its record alone: the caller must pass its live parts in `bind`."""

    code = "bind_missing"

    def __init__(self, where: str, missing: Mapping[str, str], hints: Sequence[str] = ()) -> None:
        listing = ", ".join(f"{path!r}: <{wanted}>" for path, wanted in missing.items())
        also = f" Also: {'; '.join(map(without_middle, hints))}." if hints else ""
        super().__init__()
        self.args = (  # however many there are
            f"The definition of {where} has live parts, which no record holds. Pass them: bind={{{listing}}}. A key "
            f"may also be the last word of a path, for all parts of that name; None leaves a part out.{also}",
        )
        self.where, self.missing, self.wanted = where, tuple(missing), tuple(missing.values())


_PATH = 120  # characters of a path that an error shows


class NotCodable(CrewliteError, TypeError):
    """A value cannot be recorded. `path` leads to it."""

    code = "not_codable"
    ends_run = True

    def __init__(self, path: str, value: object, why: str = "") -> None:
        """`why`: what is wrong with this value; "" if no value of its type can be recorded."""
        found = type(value).__qualname__
        wanted = (
            "Wanted: plain data, a dataclass, a named tuple, an enum or a pydantic model. Pass or return the data of "
            "the live object instead."
        )
        said = f"{cut(path, _PATH) or 'the value'} is {an(found)}, which cannot be recorded"
        super().__init__(f"{said} ({why})." if why else f"{said}. {wanted}")
        self.path, self.found = path, found


class MissingInput(CrewliteError, KeyError):
    """The inputs do not fill a `{placeholder}`."""

    code = "missing_input"
    ends_run = True

    def __init__(self, name: str, *, where: str, given: Sequence[str], others: Sequence[str] = ()) -> None:
        """`others`: further placeholders, in other texts too, that the inputs do not fill."""
        self.name, self.where, self.given, self.names = name, where, tuple(given), (name, *others)
        wanted = ", ".join(f"{one!r}: ..." for one in self.names)
        self.message = (
            f"{self.found}. Pass kickoff(inputs={{{wanted}}}), or write {{{{{name}}}}} for the braces themselves."
        )
        super().__init__(self.message)

    @property
    def found(self) -> str:
        """What is missing, and where."""
        others = "".join(f", nor {{{one}}}" for one in self.names[1:])
        have = ", ".join(self.given) or "none"
        slips = [given for given in self.given if any(meant(name, [given]) for name in self.names)]
        hint = f"; is {slips[0]!r} misspelt?" if slips else ""
        return (
            f"{self.where} holds the placeholder {{{self.name}}}, which the inputs do not fill{others} "
            f"(given: {have}{hint})"
        )

    def __str__(self) -> str:
        return self.message


class UnknownProvider(ConfigError):
    """The name of a model does not begin with a known provider."""

    code = "unknown_provider"

    def __init__(self, model: str, close: Sequence[str] = ()) -> None:
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        super().__init__(
            f"No provider is known for model {model!r}.{meant} Wanted: provider/model, such as openai/gpt-4o, "
            f"anthropic/claude-sonnet-4-5 or ollama_chat/llama3; or offline. For a server of your own that speaks "
            f"OpenAI's protocol: LLM(model='openai/NAME', base_url='http://...')."
        )
        self.model, self.close = model, tuple(close)


class MissingKey(ConfigError):
    """The service of a model wants an API key, and none was found. Raised before anything was paid."""

    code = "missing_key"

    def __init__(self, model: str, names: Sequence[str]) -> None:
        super().__init__(
            f"Model {model!r} needs an API key, and none was found. Set {' or '.join(names)} in the environment, or "
            f"pass LLM(model={model!r}, api_key=...)."
        )
        self.model, self.names = model, tuple(names)
