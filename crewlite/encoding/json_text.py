"""Encoders of JSON, built once: `JSONEncoder.encode` builds one for each call, which takes as long as encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from json import JSONEncoder, encoder
from typing import Any


def encoder_of(how: JSONEncoder) -> Callable[[Any], str]:
    """Return a function that does what `how.encode` does for data that do not contain themselves."""
    chunks = chunks_of(how)
    return lambda data: "".join(chunks(data, 0))


def chunks_of(how: JSONEncoder) -> Callable[[Any, int], Iterable[str]]:
    """Return a function whose results are the pieces of what `how.encode` returns. Its second argument is always 0."""
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # a Python without its C part
        return lambda data, level: [how.encode(data)]
    text = encoder.encode_basestring_ascii if how.ensure_ascii else encoder.encode_basestring
    separators = how.key_separator, how.item_separator
    made: Callable[[Any, int], Iterable[str]] = make(
        None, how.default, text, how.indent, *separators, how.sort_keys, how.skipkeys, how.allow_nan
    )
    return made
