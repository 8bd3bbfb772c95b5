"""What a person sees while a command runs: progress, notices, errors. All of it on stderr.

On a terminal a bar with the time that is left; elsewhere plain lines, a few a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rdmabench.errors import RdmabenchError
from rdmabench.model import Host, Notice, Outcome, Record
from rdmabench.orchestrator.deploy import Node
from rdmabench.units import duration_text

_PLAIN_EVERY_S = 15.0
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def clean(text: str) -> str:
    """Text from elsewhere without control characters and without markup of its own."""
    return escape(
        "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
    )


def say(text: str) -> None:
    """A line for the person, as it is."""
    stderr.print(clean(text))


def complain(error: RdmabenchError) -> None:
    """One error: what failed, on what, and what to try."""
    stderr.print(f"[bold red]error:[/] {clean(str(error))}")


class SweepProgress:
    """`orchestrator.run.Progress` for a person; a context manager around the sweep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=stderr,
            transient=True,
        )
        self._live = stderr.is_terminal
        self._task = self._bar.add_task("connecting", total=None)
        self._total = self._done = self._bad = 0
        self._why = ""
        self._started = self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._bar.stop()

    def bringing_up(self, hosts: Sequence[Host]) -> None:
        """Connections are being made."""
        say(f"connecting to {len(hosts)} hosts")

    def node_up(self, node: Node) -> None:
        """A node takes part."""
        devices = ", ".join(f"{e.device} ({e.rate_text or 'rate unknown'})" for e in node.endpoints)
        say(f"{node.host.name}: {devices}")

    def planned(self, count: int, *, already: int, estimate_s: float) -> None:
        """So many cases are to be measured."""
        before = f", {already} were measured before" if already else ""
        say(f"{count} cases to measure{before}; about {duration_text(estimate_s)}")
        self._total, self._started = count, time.monotonic()
        self._bar.update(self._task, total=count, description="measuring")

    def recorded(self, record: Record) -> None:
        """A case has ended."""
        with self._lock:
            self._done += 1
            self._bar.update(self._task, completed=self._done)
            if record.outcome in (Outcome.FAILED, Outcome.SKIPPED):
                self._bad += 1
                if record.outcome is Outcome.FAILED or self._bad == 1:
                    why = "as the one before" if record.reason == self._why else record.reason
                    self._why = record.reason
                    stderr.print(
                        f"[bold red]{record.outcome.value}[/] {clean(record.case.id)}: {clean(why)}"
                    )
            self._plain_line(record)

    def _plain_line(self, record: Record) -> None:
        now = time.monotonic()
        last = self._done == self._total
        if self._live or (now - self._said < _PLAIN_EVERY_S and not last):
            return
        self._said = now
        left = (now - self._started) / self._done * (self._total - self._done)
        tail = "" if last else f", about {duration_text(left)} left"
        say(f"{self._done} of {self._total} cases{tail} ({record.case.parameters.what})")

    def noticed(self, notice: Notice) -> None:
        """Something a reader must know."""
        subject = " ".join(part for part in (notice.host, notice.device) if part)
        style = _STYLES.get(notice.severity, "")
        remedy = f"\n  try: {clean(notice.remedy)}" if notice.remedy else ""
        head = f"{clean(subject)}: " if subject else ""
        stderr.print(f"[{style}]{notice.severity}:[/] {head}{clean(notice.text)}{remedy}")
