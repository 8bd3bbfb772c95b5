"""Values that may not be there: each is read by itself, and what fails leaves its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, TypeVar

Value = TypeVar("Value")


class UnknownError(ValueError):
    """A fact that this node does not tell, and why."""


class Gathering:
    """Collects the fields of a section of an audit: `Pci(**gathering.fields)`."""

    def __init__(self) -> None:
        self.unknown: dict[str, str] = {}
        self.fields: dict[str, Any] = {"unknown": self.unknown}

    def add(self, name: str, read: Callable[[], Value]) -> Optional[Value]:
        """The value that `read` returns, kept as a field; None with its reason where it fails."""
        try:
            value = read()
        except (OSError, ValueError) as exc:
            self.unknown[name] = reason(exc)
            return None
        self.fields[name] = value
        return value


def reason(error: Exception) -> str:
    """One line of why something could not be read."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
