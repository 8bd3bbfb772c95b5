"""Verdicts as JUnit XML, one test case per rule and subject, for a CI system to show.

FAIL is a failure. INCONCLUSIVE and NOT TESTED are errors: JUnit's `skipped` counts as well in every
CI system, and what was not tested has not passed.
"""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree as ET

from rdmabench.analysis.acceptance import FAIL, INCONCLUSIVE, NOT_TESTED, PASS, Acceptance
from rdmabench.report.safe import clean


def junit(result: Acceptance) -> str:
    """The whole document; text from nodes and runs is escaped, what XML cannot hold left out."""
    root = ET.Element("testsuites", name=_text(f"rdmabench accept {result.run}"))
    for rule, group in result.rows.groupby("rule", sort=False):
        rows = group.to_dict("records")
        suite = ET.SubElement(root, "testsuite", {"name": _text(rule), **_counts(rows)})
        for row in rows:
            _case(suite, row)
    if result.rows.empty:
        suite = ET.SubElement(root, "testsuite", name="rules", tests="1", failures="0", errors="1")
        case = ET.SubElement(suite, "testcase", classname="rdmabench", name="rules")
        ET.SubElement(case, "error", type=NOT_TESTED, message="no rule had anything to judge")
    for key, count in _counts(result.rows.to_dict("records")).items():
        root.set(key, count if not result.rows.empty else {"skipped": "0"}.get(key, "1"))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(rows: list[dict[Any, Any]]) -> dict[str, str]:
    verdicts = [row["verdict"] for row in rows]
    errors = sum(verdict in (INCONCLUSIVE, NOT_TESTED) for verdict in verdicts)
    counts = {"tests": len(rows), "failures": verdicts.count(FAIL), "errors": errors}
    return {name: str(count) for name, count in {**counts, "skipped": 0}.items()}


def _case(suite: ET.Element, row: dict[Any, Any]) -> None:
    name = " ".join(part for part in (str(row["subject"]), str(row["measurement"])) if part)
    case = ET.SubElement(
        suite, "testcase", classname=_text(f"rdmabench.{row['rule']}"), name=_text(name)
    )
    said = said_of(row)
    if row["verdict"] == PASS:
        if row["remark"]:
            ET.SubElement(case, "system-out").text = _text(row["remark"])
        return
    tag = "failure" if row["verdict"] == FAIL else "error"
    found = ET.SubElement(case, tag, type=str(row["verdict"]), message=_text(said))
    found.text = _text(f"{said}\nlimit from: {row['source']}", lines=True)


def said_of(row: dict[Any, Any]) -> str:
    """`0.871 of attainable, limit >= 0.9: limit missed`."""
    value = row["value"]
    parts = []
    if isinstance(value, float) and math.isfinite(value):
        parts.append(f"{value:.4g} {row['unit']}".strip())
    if row["limit"]:
        parts.append(f"limit {row['limit']}")
    head = ", ".join(parts)
    return ": ".join(part for part in (head, str(row["remark"])) if part) or str(row["verdict"])


def _text(value: object, *, lines: bool = False) -> str:
    """Printable text: XML 1.0 has no way to write a control character or half a surrogate pair."""
    if lines:
        return "\n".join(clean(each) for each in str(value).split("\n"))
    return clean(value)
