"""The journal of a run: append-only, one event a line, the source of truth for every table.

An event counts when `append` has returned: it is then on the disk. A line that was cut in the
middle (power, kill, full disk) never counted, so it is set aside and nothing else is lost.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from rdmabench import wire
from rdmabench.collector.files import FILE_MODE, make_directory, storing, write_all
from rdmabench.errors import InputError, ProtocolError, StorageError
from rdmabench.model import Notice, Outcome, Record
from rdmabench.wire import Envelope

log = logging.getLogger(__name__)

JOURNAL_NAME = "journal.jsonl"
TORN_NAME = "journal.torn"
_FINAL = (Outcome.MEASURED, Outcome.UNSUPPORTED)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def now_text() -> str:
    """The time as every journal line carries it: ISO 8601, UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Content:
    """What a journal holds; `torn` is the part of a last line that never counted."""

    envelopes: tuple[Envelope, ...]
    torn: bytes = b""


class Journal:
    """One writer's open journal; made by `create` or `reopen`, closed by `close` or `with`.

    `torn` is what `reopen` cut off the end, empty where the file ended with a whole line.
    """

    def __init__(self, path: Path, descriptor: int, *, torn: bytes = b"") -> None:
        self.path = path
        self.torn = torn
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._ends_torn = False
        self._lock = threading.Lock()

    @classmethod
    def create(cls, directory: Path) -> Journal:
        """A new journal in the directory, which is made if absent.

        Raises:
            StorageError: the directory has a journal already, or cannot be written.
        """
        make_directory(directory)
        path = directory / JOURNAL_NAME
        with storing(path, remedy="continue that run with `rdmabench sweep --resume RUN`"):
            return cls(path, _open_locked(path, os.O_CREAT | os.O_EXCL))

    @classmethod
    def reopen(cls, directory: Path) -> Journal:
        """The journal of an earlier session, cut back to its last whole line.

        What is cut off is kept in `journal.torn`, in `torn`, and as a Notice in the journal.

        Raises:
            InputError: the directory has no journal.
            StorageError: another process writes it, or it cannot be written.
        """
        path = directory / JOURNAL_NAME
        _require(path)
        with storing(path):
            descriptor = _open_locked(path, 0)
        try:
            torn = _set_aside_torn_line(path, descriptor)
            journal = cls(path, descriptor, torn=torn)
            if torn:
                journal.append(_torn_notice(torn))
        except BaseException:
            os.close(descriptor)
            raise
        return journal

    def append(self, event: Any) -> None:
        """Adds one event; it is on the disk when this returns.

        Raises:
            StorageError: it could not be written. The journal then ends as it did before.
        """
        self.append_all((event,))

    def append_all(self, events: Iterable[Any]) -> None:
        """Adds several events with one synchronisation: all of them, or none.

        Raises:
            StorageError: as `append`.
        """
        lines = b"".join(self._line(event) for event in events)
        remedy = f"free space, then `rdmabench sweep --resume {self.path.parent.name}`"
        with self._lock, storing(self.path, remedy=remedy):
            self._append_line(lines)

    def _line(self, event: Any) -> bytes:
        try:
            return wire.encode(Envelope(body=event, at=now_text())) + b"\n"
        except (TypeError, ValueError) as exc:
            raise StorageError(
                f"{self.path}: a {type(event).__name__} cannot be written as JSON: {exc}"
            ) from exc

    def _append_line(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the journal is closed")
        if self._ends_torn:
            self._cut_back()
        whole = False
        try:
            write_all(self._descriptor, line)
            os.fsync(self._descriptor)
            self._size += len(line)
            whole = True
        finally:
            if not whole:
                self._ends_torn = True
                with suppress(OSError):  # the next append tries again, and so does reopen
                    self._cut_back()

    def _cut_back(self) -> None:
        os.ftruncate(self._descriptor, self._size)
        self._ends_torn = False

    def close(self) -> None:
        """Ends writing and lets another process resume the run. A second call does nothing."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_locked(path: Path, flags: int) -> int:
    """A descriptor that no other rdmabench writes through: two writers would mix their lines."""
    mode = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags
    descriptor = os.open(path, mode, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise StorageError(
            f"{path}: another rdmabench is writing this run",
            remedy="wait for it, or end it, then resume",
        ) from exc
    except OSError as exc:
        if exc.errno not in _NO_LOCKS:
            os.close(descriptor)
            raise
        log.warning("%s: this file system has no locks; write it from one process only", path)
    return descriptor


def _set_aside_torn_line(path: Path, descriptor: int) -> bytes:
    with storing(path):
        data = path.read_bytes()
        whole_bytes = data.rfind(b"\n") + 1
        torn = data[whole_bytes:]
        if not torn:
            return b""
        with _appending(path.with_name(TORN_NAME)) as aside:
            write_all(aside, torn + b"\n")
            os.fsync(aside)
        os.ftruncate(descriptor, whole_bytes)
        os.fsync(descriptor)
    log.warning("%s: %d bytes of an incomplete last line are set aside", path, len(torn))
    return torn


@contextmanager
def _appending(path: Path) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _torn_notice(torn: bytes) -> Notice:
    return Notice(
        severity="warning",
        text=f"the journal ended in the middle of a line; its {len(torn)} bytes are in {TORN_NAME}",
        remedy="nothing to do: that case is measured again",
    )


def _require(path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"{path.parent}: no {JOURNAL_NAME}, so this is not a run",
            remedy="`rdmabench runs list` shows the runs",
        )


def is_being_written(directory: Path) -> bool:
    """Whether some process holds the run's journal open for writing, as far as locks can tell."""
    try:
        with (directory / JOURNAL_NAME).open("rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read(directory: Path) -> tuple[Envelope, ...]:
    """Every event of the run in order; an incomplete last line is left out, with a warning.

    Raises:
        InputError: the directory has no journal.
        StorageError: it cannot be read, or a line that is not the last is damaged.
    """
    return inspect(directory).envelopes


def inspect(directory: Path) -> Content:
    """As `read`, with the bytes of an incomplete last line."""
    path = directory / JOURNAL_NAME
    _require(path)
    with storing(path):
        lines = path.read_bytes().split(b"\n")
    torn = lines.pop()
    if torn:
        log.warning("%s: the last line is incomplete and is left out", path)
    return Content(
        envelopes=tuple(_decode(path, number, line) for number, line in enumerate(lines, 1)),
        torn=torn,
    )


def _decode(path: Path, number: int, line: bytes) -> Envelope:
    try:
        return wire.decode(line)
    except ProtocolError as exc:
        raise StorageError(
            f"{path}: line {number}: {exc.what}",
            remedy=exc.remedy or "restore the file, or move that line to another one by hand",
        ) from exc


def finished_case_ids(envelopes: Iterable[Envelope]) -> frozenset[str]:
    """Cases that a resumed run leaves as they are.

    Their last record has numbers, or says that the device cannot; what failed or was skipped is
    measured again.
    """
    last = {e.body.case.id: e.body.outcome for e in envelopes if isinstance(e.body, Record)}
    return frozenset(case_id for case_id, outcome in last.items() if outcome in _FINAL)
