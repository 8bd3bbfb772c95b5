"""Preflight: rules and comparisons over the audits of all nodes, and what came of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from rdmabench.analysis import preflight_fleet, preflight_link, preflight_node, preflight_roce
from rdmabench.analysis.preflight_fleet import Row
from rdmabench.analysis.preflight_kinds import KINDS, Expectations
from rdmabench.audit import Audit, Finding, Section, Severity
from rdmabench.errors import InputError
from rdmabench.model import Fabric

__all__ = ["Expectations", "Result", "Unknown", "checked_ids", "examine", "findings_frame"]

_CHECKS = (preflight_node.check, preflight_link.check, preflight_roce.check)
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}
IDS = (frozenset(KINDS) | preflight_fleet.IDS) - {"differs"}
_COLUMNS = ("severity", "id", "host", "device", "seen", "expected", "why", "remedy")


@dataclass(frozen=True)
class Unknown:
    """A fact that some nodes do not tell, for one reason."""

    fact: str
    reason: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """What preflight has to say; findings are sorted, the worst first."""

    fabric: Fabric
    hosts: tuple[str, ...]
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    unknown: tuple[Unknown, ...]
    ignored: int = 0

    def count(self, severity: Severity) -> int:
        """Findings of a severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def passed(self) -> bool:
        """No error was found."""
        return self.count(Severity.ERROR) == 0


def checked_ids(ids: Iterable[str]) -> frozenset[str]:
    """Ids of findings to pass over.

    Raises:
        InputError: there is no such finding.
    """
    wanted = frozenset(ids)
    for unknown in sorted(wanted - IDS):
        near = difflib.get_close_matches(unknown, sorted(IDS), n=1)
        raise InputError(
            f"there is no finding {unknown!r}",
            remedy=f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(IDS))}",
        )
    return wanted


def examine(
    audits: Sequence[Audit], wanted: Expectations, *, ignore: frozenset[str] = frozenset()
) -> Result:
    """All findings about these nodes."""
    found = [f for audit in audits for check in _CHECKS for f in check(audit, wanted)]
    fleet = preflight_fleet.compare(audits, found)
    everything = [*found, *fleet.findings]
    kept = [finding for finding in everything if finding.id not in ignore]
    return Result(
        fabric=wanted.fabric,
        hosts=tuple(audit.host for audit in audits),
        findings=tuple(sorted(kept, key=lambda f: _ORDER[f.severity])),
        rows=fleet.rows,
        unknown=_unknown(audits, wanted),
        ignored=len(everything) - len(kept),
    )


def _unknown(audits: Sequence[Audit], wanted: Expectations) -> tuple[Unknown, ...]:
    """What could not be read, the same fact and reason of many nodes together."""
    hosts: dict[tuple[str, str], dict[str, None]] = {}
    for audit in audits:
        for part, section in _sections(audit, wanted):
            for name, reason in section.unknown.items():
                hosts.setdefault((f"{part} {name}", reason), {})[audit.host] = None
    return tuple(
        Unknown(fact, reason, tuple(names))
        for (fact, reason), names in sorted(hosts.items(), key=lambda item: -len(item[1]))
    )


def _sections(audit: Audit, wanted: Expectations) -> Iterator[tuple[str, Section]]:
    """The sections that matter to the fabric."""
    yield "node", audit.machine
    for device, port in audit.rails:
        yield "device", device
        yield "port", port
        if device.pci is not None:
            yield "PCIe", device.pci
        netdev = audit.netdev(port.netdev)
        if netdev is not None and wanted.fabric is not Fabric.IB:
            yield "netdev", netdev
    for gpu in audit.gpus:
        yield "GPU", gpu


def findings_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """One row a finding."""
    rows = [
        [f.severity.value, f.id, f.host, f.device, f.seen, f.expected, f.why, f.remedy]
        for f in findings
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS), dtype="str")
