"""Who a node's host key says it is: OpenSSH's known_hosts files, read whole and appended to.

paramiko's own reader passes over wildcards, negations and `@revoked` lines, keeps one key per type
and stops at a line it cannot decode; a check of identity must not. Standard library only.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import threading
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

DEFAULT_PORT = 22
_append_lock = threading.Lock()


class Verdict(Enum):
    """What the files say about a key that a node offered."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entry:
    """One line: who, with which key, and where it is written."""

    marker: str  # "" | @cert-authority | @revoked
    patterns: tuple[str, ...]
    key_type: str
    key: str  # base64, as in the file
    path: str
    line: int

    @property
    def where(self) -> str:
        """`FILE:LINE`."""
        return f"{self.path}:{self.line}"

    def names(self, name: str) -> bool:
        """Whether the line is about this name (as `lookup_name` writes it)."""
        matched = False
        for pattern in self.patterns:
            negated = pattern.startswith("!")
            if _matches(pattern.removeprefix("!"), name):
                if negated:
                    return False
                matched = True
        return matched


@dataclass(frozen=True)
class Judgement:
    """The verdict on an offered key, and the lines it rests on."""

    verdict: Verdict
    entries: tuple[Entry, ...] = ()


def lookup_name(host: str, port: int) -> str:
    """The name under which OpenSSH keeps a host's key: `host`, or `[host]:port` off port 22."""
    plain = host.lower()
    return plain if port == DEFAULT_PORT else f"[{plain}]:{port}"


def fingerprint(key: str) -> str:
    """`SHA256:...` of a base64 key, as ssh-keygen -l prints it."""
    try:
        blob = base64.b64decode(key, validate=True)
    except Base64Error:
        return "(a key that cannot be decoded)"
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read(paths: Iterable[str]) -> tuple[Entry, ...]:
    """Every usable line of the files, in order; a file that does not exist has none.

    Raises:
        OSError: a file exists and cannot be read.
    """
    entries: list[Entry] = []
    for path in paths:
        if not Path(path).exists():
            continue
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            entry = _entry(line, path, number)
            if entry is not None:
                entries.append(entry)
    return tuple(entries)


def key_types(entries: Sequence[Entry], names: Sequence[str]) -> tuple[str, ...]:
    """The key types by which one of the names is known, in the files' order."""
    known = (e.key_type for e in entries if not e.marker and any(map(e.names, names)))
    return tuple(dict.fromkeys(known))


def judge(entries: Sequence[Entry], name: str, key: str, *, plain_name: str = "") -> Judgement:
    """What the entries say about the base64 `key` offered by `name`.

    A key found under `plain_name` (the name without its port) is known too, as in OpenSSH; but
    only lines about `name` itself can make it a changed one. A host that is known by keys of other
    types alone counts as changed: its true key would have been negotiated.
    """
    about = [e for e in entries if e.marker != "@cert-authority" and e.names(name)]
    if plain_name:
        about += [e for e in entries if e.key == key and e.names(plain_name)]
    revoked = tuple(e for e in about if e.marker == "@revoked" and e.key == key)
    if revoked:
        return Judgement(Verdict.REVOKED, revoked)
    same = tuple(e for e in about if not e.marker and e.key == key)
    if same:
        return Judgement(Verdict.KNOWN, same)
    others = tuple(e for e in about if not e.marker)
    return Judgement(Verdict.CHANGED, others) if others else Judgement(Verdict.UNKNOWN)


def append(path: str, name: str, key_type: str, key: str, *, hashed: bool) -> None:
    """Add a key to a file, made 0600 if absent; safe against other threads and processes.

    Raises:
        OSError: the file cannot be written.
    """
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = _hashed(name, os.urandom(20)) if hashed else name
    line = f"{written} {key_type} {key}\n".encode()
    with _append_lock:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line if _ends_its_line(file.fileno()) else b"\n" + line)


def _ends_its_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _entry(line: str, path: str, number: int) -> Entry | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if len(words) < 3:
        return None
    names = words[0]
    patterns = (names,) if names.startswith("|1|") else tuple(names.lower().split(","))
    return Entry(marker, patterns, words[1], words[2], path, number)


def _matches(pattern: str, name: str) -> bool:
    if not pattern.startswith("|1|"):
        # fnmatch reads [..] as a set of characters; here it is the address part of [host]:port
        return fnmatchcase(name, pattern.replace("[", "[[]"))
    try:
        salt = base64.b64decode(pattern.split("|")[2], validate=True)
    except (Base64Error, IndexError):
        return False
    return hmac.compare_digest(_hashed(name, salt), pattern)


def _hashed(name: str, salt: bytes) -> str:
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
