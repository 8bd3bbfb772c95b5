"""One function on many items at once: bounded, and every item keeps its own ending.

An error of ours is an item's ending. Anything else is a defect: no new item is begun, what runs is
cancelled, and it is raised where `fanout` was called. So is a Ctrl-C.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rdmabench.errors import DeadlineError, RdmabenchError

Item = TypeVar("Item")
Value = TypeVar("Value")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Ending(Generic[Value]):
    """How the function ended for one item: with a value, or with one of our errors."""

    value: Value | None = None
    error: RdmabenchError | None = None

    @property
    def ok(self) -> bool:
        """Whether it returned."""
        return self.error is None

    def get(self) -> Value:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # a value is there if no error is


def fanout(
    function: Callable[[Item], Value],
    items: Iterable[Item],
    *,
    limit: int,
    deadline_s: float | None,
    key: Callable[[Item], Key],
    cancel: Callable[[Item], None] | None = None,
) -> dict[Key, Ending[Value]]:
    """Call `function` for every item, `limit` at a time; the endings in the order of the items.

    `deadline_s` counts for each item from its own start. At it the item's ending is a
    `DeadlineError` and `cancel` is called with it, in this thread: it must make the blocked call
    return, by closing what that waits for, since a thread cannot be killed. A call that does not
    return even so is left behind, and its place is given to another.
    """
    listed = list(items)
    keys = [key(item) for item in listed]
    if len(set(keys)) < len(keys):
        raise ValueError(f"keys of a fan-out must differ: {keys}")
    crew = _Crew(function, listed, deadline_s, cancel)
    crew.work(max(1, limit), names=[str(each) for each in keys])
    return dict(zip(keys, (crew.endings[index] for index in range(len(listed))), strict=True))


@dataclass
class _Crew(Generic[Item, Value]):
    """The state of one fan-out; only the calling thread writes `endings` and `running`."""

    function: Callable[[Item], Value]
    items: Sequence[Item]
    deadline_s: float | None
    cancel: Callable[[Item], None] | None
    endings: dict[int, Ending[Value]] = field(default_factory=dict)
    running: dict[int, float] = field(default_factory=dict)  # item -> when it is too late
    finished: queue.SimpleQueue[tuple[int, Value | None, BaseException | None]] = field(
        default_factory=queue.SimpleQueue
    )

    def work(self, limit: int, *, names: Sequence[str]) -> None:
        waiting = list(range(len(self.items)))[::-1]
        try:
            while waiting or self.running:
                while waiting and len(self.running) < limit:
                    self._begin(waiting.pop(), names)
                self._wait(names)
        finally:
            for index in list(self.running):  # none, unless a defect or a Ctrl-C ends this
                self._cancel(index)

    def _begin(self, index: int, names: Sequence[str]) -> None:
        late = float("inf") if self.deadline_s is None else time.monotonic() + self.deadline_s
        self.running[index] = late
        name = f"fanout {names[index]}"
        threading.Thread(target=self._call, args=(index,), name=name, daemon=True).start()

    def _call(self, index: int) -> None:
        try:
            self.finished.put((index, self.function(self.items[index]), None))
        except BaseException as exc:  # noqa: BLE001 -- raised again in the caller's thread
            self.finished.put((index, None, exc))

    def _wait(self, names: Sequence[str]) -> None:
        """Until one call ended or one deadline passed."""
        first = min(self.running.values())
        timeout = None if first == float("inf") else max(0.0, first - time.monotonic())
        try:
            index, value, exc = self.finished.get(timeout=timeout)
        except queue.Empty:
            self._too_late(names)
            return
        if index not in self.running:  # the late return of a cancelled call
            return
        del self.running[index]
        if exc is not None and not isinstance(exc, RdmabenchError):
            raise exc
        self.endings[index] = Ending(value=value, error=exc)

    def _too_late(self, names: Sequence[str]) -> None:
        now = time.monotonic()
        for index in [index for index, late in self.running.items() if late <= now]:
            del self.running[index]
            what = f"did not end within {self.deadline_s:g} s"
            self.endings[index] = Ending(error=DeadlineError(what, host=names[index]))
            self._cancel(index)

    def _cancel(self, index: int) -> None:
        if self.cancel is not None:
            self.cancel(self.items[index])
