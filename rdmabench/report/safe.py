"""Text that came from a node, an inventory or a journal, made fit for a terminal."""

from __future__ import annotations


def clean(text: object) -> str:
    """The text on one line without escape sequences, control, format or bidirectional characters.

    White space of any kind becomes a space; what else cannot be printed is left out, so that of an
    escape sequence only its harmless, visible rest stays.
    """
    return "".join(
        char if char.isprintable() else (" " if char.isspace() else "") for char in str(text)
    )
