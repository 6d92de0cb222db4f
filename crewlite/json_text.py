"""Encoders of JSON, built once: `JSONEncoder.encode` builds one for each call, which takes as long as encoding."""

from __future__ import annotations

from collections.abc import Callable
from json import JSONEncoder, encoder
from typing import Any


def encoder_of(how: JSONEncoder) -> Callable[[Any], str]:
    """Return a function that does what `how.encode` does for data that do not contain themselves."""
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # a Python without its C part
        return how.encode
    text = encoder.encode_basestring_ascii if how.ensure_ascii else encoder.encode_basestring
    separators = how.key_separator, how.item_separator
    chunks = make(None, how.default, text, how.indent, *separators, how.sort_keys, how.skipkeys, how.allow_nan)
    return lambda data: "".join(chunks(data, 0))
