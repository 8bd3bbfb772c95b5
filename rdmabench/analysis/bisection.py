"""Which nodes slow a collective, in as few runs as possible.

Pure: a person, or the orchestrator, makes the runs and says whether each was slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Phase = Literal["halving", "confirming", "rest", "verifying", "done"]


@dataclass(frozen=True)
class Bisection:
    """The search, a state that only moves forward.

    `next_run` names the nodes of the next run, or none when it has ended; `after` is the state once
    that run was slow or not. One culprit among N nodes takes at most ceil(log2 N) runs and two to
    confirm: one of it with another node, one of all others. Of several, each is then run once more
    with a node that is known to be well, so that nobody is accused for a partner.
    """

    nodes: tuple[str, ...]
    suspected: tuple[str, ...]
    culprits: tuple[str, ...] = ()
    healthy: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    phase: Phase = "halving"
    verdict: str = ""
    runs: int = 0

    @classmethod
    def start(cls, nodes: Sequence[str]) -> Bisection:
        """The whole group was slow.

        Raises:
            ValueError: fewer than three nodes: no group without the culprit could be run.
        """
        if len(nodes) < 3:
            raise ValueError(f"{len(nodes)} nodes: bisection needs three or more")
        return cls(nodes=tuple(nodes), suspected=tuple(nodes))

    @property
    def next_run(self) -> tuple[str, ...]:
        """The nodes of the next run; a group of one is joined by another node, a healthy one."""
        if self.phase == "done":
            return ()
        if self.phase == "rest":
            return self._others
        if self.phase == "verifying":
            return self._joined(self.unverified[:1])
        return self._joined(self._half)

    @property
    def _half(self) -> tuple[str, ...]:
        if self.phase == "confirming":
            return self.suspected
        return self.suspected[: (len(self.suspected) + 1) // 2]

    @property
    def _others(self) -> tuple[str, ...]:
        return tuple(node for node in self.nodes if node not in self.culprits)

    def _joined(self, group: tuple[str, ...]) -> tuple[str, ...]:
        if len(group) > 1:
            return group
        doubted = {*self.suspected, *self.culprits, *group}
        outside = [node for node in self.nodes if node not in doubted]
        anyone = [node for node in self.nodes if node not in (*group, *self.culprits)]
        choice = [node for node in self.healthy if node not in group] or outside or anyone
        return (*group, *choice[:1])

    def after(self, *, slow: bool) -> Bisection:
        """The state once `next_run` was made."""
        if self.phase == "done":
            return self
        well = self.healthy if slow else tuple(dict.fromkeys((*self.healthy, *self.next_run)))
        step = replace(self, runs=self.runs + 1, healthy=well)
        if self.phase == "halving":
            left = self._half if slow else tuple(n for n in self.suspected if n not in self._half)
            return replace(step, suspected=left, phase="halving" if len(left) > 1 else "confirming")
        if self.phase == "confirming":
            return step._confirmed(slow=slow)
        if self.phase == "rest":
            return step._rested(slow=slow)
        return step._verified(slow=slow)

    def _confirmed(self, *, slow: bool) -> Bisection:
        if not slow:
            what = "no single node: slow only together, which points at the paths between them"
            return replace(self, phase="done", verdict=what)
        found = replace(self, culprits=(*self.culprits, *self.suspected))
        if len(found._others) < 2:
            return replace(found, phase="done", verdict=_named(found.culprits))
        return replace(found, phase="rest")

    def _rested(self, *, slow: bool) -> Bisection:
        left = self._others
        if slow and len(left) > 2:
            return replace(self, suspected=left, phase="halving")
        if slow:
            verdict = f"{_named(self.culprits)}, and one of {', '.join(left)}"
            return replace(self, phase="done", verdict=verdict)
        if len(self.culprits) == 1:
            return replace(self, phase="done", verdict=_named(self.culprits))
        return replace(self, phase="verifying", unverified=self.culprits)

    def _verified(self, *, slow: bool) -> Bisection:
        node, *left = self.unverified
        culprits = self.culprits if slow else tuple(n for n in self.culprits if n != node)
        step = replace(self, unverified=tuple(left), culprits=culprits)
        return step if left else replace(step, phase="done", verdict=_named(culprits))


def _named(culprits: tuple[str, ...]) -> str:
    return "slow: " + ", ".join(culprits)
