"""What a person sees of a preflight: findings, worst first; the fleet's values; what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from rdmabench.analysis.preflight import Result, Unknown
from rdmabench.analysis.preflight_fleet import Row
from rdmabench.audit import Finding, Severity
from rdmabench.report.layout import Adaptive, Field, line, table
from rdmabench.report.nodesets import some

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_SEEN_SHOWN = 3
_OTHERS_SHOWN = 2
_UNKNOWN_SHOWN = 6
_REASON_CHARS = 90


def preflight(result: Result, unreachable: Mapping[str, str]) -> RenderableType:
    """All of it; `unreachable` maps a node that could not be asked to why."""
    return Adaptive(lambda width: _parts(result, unreachable, width))


def _parts(result: Result, unreachable: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    yield line(_heading(result, unreachable), "bold")
    for host, why in unreachable.items():
        yield line(f"not asked: {host}: {why}", "bold red")
    for group in grouped(result.findings):
        yield Text()
        yield from _finding(group)
    if len(result.hosts) > 1:
        yield from _fleet(result.rows, width)
    yield from _unknown(result.unknown, len(result.hosts))
    yield Text()
    yield _verdict(result, unreachable)


def _heading(result: Result, unreachable: Mapping[str, str]) -> str:
    asked = len(result.hosts) + len(unreachable)
    counts = ", ".join(
        f"{result.count(severity)} {name}"
        for severity, name in (
            (Severity.ERROR, "errors"),
            (Severity.WARNING, "warnings"),
            (Severity.INFO, "notes"),
        )
    )
    ignored = f", {result.ignored} ignored" if result.ignored else ""
    return (
        f"preflight of fabric {result.fabric.value}: {len(result.hosts)} of {asked} nodes asked, "
        f"{counts}{ignored}"
    )


def _verdict(result: Result, unreachable: Mapping[str, str]) -> Text:
    if not result.passed:
        return line("FAILED: the errors above stand in the way of measuring.", "bold red")
    if unreachable:
        return line("INCOMPLETE: some nodes could not be asked.", "bold red")
    return line("PASSED: no errors.", "bold green")


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings of one kind and severity together, in their order; of most nodes first."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.id), []).append(finding)
    order = list(Severity)
    return sorted(groups.values(), key=lambda group: (order.index(group[0].severity), -len(group)))


def _finding(group: Sequence[Finding]) -> Iterator[RenderableType]:
    first = group[0]
    hosts = list(dict.fromkeys(f.host for f in group if f.host))
    head = Text.assemble(
        (f"{first.severity.value} {first.id}", _STYLES[first.severity]),
        f"  {line(some(hosts)).plain or 'the fleet'}",
    )
    yield head
    yield from _seen(group)
    expected = list(dict.fromkeys(f.expected for f in group))
    more = f" (and {len(expected) - 1} more)" if len(expected) > 1 else ""
    yield _indented(f"expected: {expected[0]}{more}; {first.why}")
    for remedy in list(dict.fromkeys(f.remedy for f in group))[:_OTHERS_SHOWN]:
        yield _indented(f"try: {remedy}", "bold")


def _seen(group: Sequence[Finding]) -> Iterator[RenderableType]:
    """What was seen, equal texts once with the nodes that show it."""
    texts: dict[str, list[str]] = {}
    for finding in group:
        subject = f"{finding.device}: " if finding.device else ""
        texts.setdefault(f"{subject}{finding.seen}", []).append(finding.host)
    several = len(texts) > 1
    for text, hosts in list(texts.items())[:_SEEN_SHOWN]:
        where = f"{some(hosts, 30)} " if several and any(hosts) else ""
        yield _indented(f"{where}{text}")
    if len(texts) > _SEEN_SHOWN:
        yield _indented(f"and {len(texts) - _SEEN_SHOWN} more")


def _indented(text: str, style: str = "") -> Padding:
    return Padding(line(text, style), (0, 0, 0, 4))


def _fleet(rows: Sequence[Row], width: int) -> Iterator[RenderableType]:
    """The majority's values; facts on which all agree only where they name the cluster."""
    shown = _merged([row for row in rows if row.headline or row.others])
    if not shown:
        return
    several = len({row.group for row in rows if row.group}) > 1
    yield Text()
    yield line("The fleet", "bold")
    yield table(
        [
            Field("nodes of", [(row.group or "several") if several else "" for row in shown],
                  right=False, elastic=True, drop=3),
            Field("fact", [row.fact for row in shown], right=False),
            Field("most have", [row.majority for row in shown], right=False, elastic=True),
            Field("share", [f"{row.count}/{row.total}" for row in shown], drop=4),
            Field("who differs", [_others(row) for row in shown], right=False, elastic=True,
                  style=lambda cell: "yellow" if cell != "-" else ""),
        ],
        width,
    )  # fmt: skip


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Products that have the same value share a line."""
    merged: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = merged.get((row.fact, row.majority))
        if known is None:
            merged[row.fact, row.majority] = row
        else:
            others = {
                value: (*known.others.get(value, ()), *row.others.get(value, ()))
                for value in (*known.others, *row.others)
            }
            merged[row.fact, row.majority] = replace(
                row,
                group="",
                count=known.count + row.count,
                total=known.total + row.total,
                others=others,
            )
    return list(merged.values())


def _others(row: Row) -> str:
    ranked = sorted(row.others.items(), key=lambda item: len(item[1]))
    texts = [f"{some(hosts, 24)}: {value}" for value, hosts in ranked[:_OTHERS_SHOWN]]
    if len(ranked) > _OTHERS_SHOWN:
        texts.append(f"and {len(ranked) - _OTHERS_SHOWN} more values")
    return "; ".join(texts) or "-"


def _unknown(unknown: Sequence[Unknown], nodes: int) -> Iterator[RenderableType]:
    """Reasons, each with the facts that it hides."""
    if not unknown:
        return
    by_reason: dict[tuple[str, int], list[str]] = {}
    for each in unknown:
        by_reason.setdefault((each.reason, len(each.hosts)), []).append(each.fact)
    yield Text()
    yield line("Not known, and not assumed", "bold")
    for (reason, count), facts in list(by_reason.items())[:_UNKNOWN_SHOWN]:
        where = "all nodes" if count == nodes else f"{count} of {nodes} nodes"
        names = ", ".join(dict.fromkeys(facts))
        short = names if len(names) <= _REASON_CHARS else f"{names[: _REASON_CHARS - 1]}..."
        yield _indented(f"{short} ({where}): {reason[:_REASON_CHARS]}")
    if len(by_reason) > _UNKNOWN_SHOWN:
        yield _indented(f"and {len(by_reason) - _UNKNOWN_SHOWN} more reasons; --dump FILE has all")
