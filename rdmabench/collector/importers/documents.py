"""JSON of other tools, with its numbers as printed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rdmabench.collector.importers.text import Source, quoted

_START = re.compile(r"\s*(?:\{|\[\s*\{)")


def is_json(text: str) -> bool:
    """Whether the text means to be JSON; a rank's tag in brackets is none."""
    return bool(_START.match(text))


def load(source: Source, text: str) -> Any:
    """The document; every number in it is the text it was printed as.

    Raises:
        InputError: it is not JSON, is cut, or says a key twice in one object.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            source.refuse(1, "a key appears twice in one object", expected="each key once")
        return found

    try:
        return json.loads(
            text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=once
        )
    except json.JSONDecodeError as exc:
        source.refuse(
            exc.lineno, f"not JSON: {exc.msg}", expected="the whole file as it was written"
        )
    except RecursionError:
        source.refuse(1, "JSON that is nested too deep", expected="what the tool writes")


def objects(source: Source, document: Any) -> list[Mapping[str, Any]]:
    """The document as a list of objects: one, or the members of a list.

    Raises:
        InputError: it is something else.
    """
    found = document if isinstance(document, list) else [document]
    if not found or not all(isinstance(each, dict) for each in found):
        source.refuse(1, "a document without objects", expected="what the tool writes")
    return found


def part(source: Source, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object inside of the document.

    Raises:
        InputError: it is absent, or is none.
    """
    found = document.get(key)
    if not isinstance(found, dict):
        source.refuse(1, f"no object {quoted(key)}", expected="what the tool writes")
    return found


def text_of(source: Source, document: Mapping[str, Any], key: str) -> str:
    """A number or a word as printed; empty where the key is absent or null.

    Raises:
        InputError: a list or an object.
    """
    found = document.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        source.refuse(1, f"{quoted(key)} is no number and no word", expected="one of these")
    if not (found.isprintable() and key.isprintable()):
        source.refuse(1, f"{quoted(key)} is {quoted(found)}", expected="printable text")
    return found.strip(" \t")
