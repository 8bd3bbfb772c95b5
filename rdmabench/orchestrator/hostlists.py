"""Hosts from what schedulers and launchers use: nodesets, MPI hostfiles, plain lists, genders.

These name hosts and groups, and carry no variables; how to reach a host is the ssh
configuration's to say.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ClusterShell.NodeSet import NodeSet, NodeSetException

from rdmabench.errors import InputError

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_TERMS = re.compile(r"[,:](?![^\[]*\])")
_NODESET = re.compile(r"\[[^\]]*[-,][^\]]*\]")
_SLOTS = re.compile(r"(?:slots|max[-_]slots)\s*=\s*\d+", re.IGNORECASE)
_NODE = re.compile(r"[A-Za-z0-9@._\-\[\],]+")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostList:
    """Host names in the order given, with the groups that a limit may name."""

    names: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def from_text(text: str, *, source: str) -> HostList:
    """The hosts of a comma list of names and nodesets: `gpu[001-128,130],login`.

    Raises:
        InputError: it is not one.
    """
    names: list[str] = []
    for part in _OUTSIDE_BRACKETS.split(text):
        word = part.strip()
        if ":" in word:
            raise InputError(
                f"{source}: {word!r} has a port or a slot count, which a list of hosts cannot have",
                remedy="use an inventory with ansible_port, or Port in the ssh configuration",
            )
        names += expand(word, source=source) if word else []
    return HostList(_unique(names, source))


def expand(nodeset: str, *, source: str) -> tuple[str, ...]:
    """The nodes of one nodeset, in its order.

    Raises:
        InputError: ClusterShell cannot read it.
    """
    try:
        return tuple(str(node) for node in NodeSet(nodeset))
    except NodeSetException as exc:
        raise InputError(
            f"{source}: {nodeset!r} is no host list: {exc}",
            remedy="write it as `gpu[001-128,130]`, or give the path of an inventory",
        ) from exc


def is_hostfile(text: str) -> bool:
    """Whether every line is a host with at most a slot count: an MPI hostfile or a plain list."""
    lines = list(_lines(text))
    return bool(lines) and all(_host_of_line(line) for line in lines)


def from_hostfile(text: str, *, source: str) -> HostList:
    """The hosts of an MPI hostfile (`host`, `host slots=8`, `host:8`) or a plain list."""
    names: list[str] = []
    for line in _lines(text):
        names += expand(_host_of_line(line), source=source)
    return HostList(_unique(names, source))


def from_genders(text: str, *, source: str) -> HostList:
    """The hosts of a genders file; groups are its attributes, `attr` and `attr=value`."""
    names: list[str] = []
    groups: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise InputError(f"{source}:{number}: blanks in the attribute list: {line.strip()!r}")
        nodes = [
            name
            for part in _OUTSIDE_BRACKETS.split(words[0])
            for name in expand(part, source=source)
        ]
        names += nodes
        for attribute in words[1].split(",") if len(words) == 2 else []:
            for group in {attribute, attribute.partition("=")[0]}:
                groups.setdefault(group, []).extend(nodes)
    unique = {group: tuple(dict.fromkeys(nodes)) for group, nodes in groups.items()}
    return HostList(tuple(dict.fromkeys(names)), unique)


def select(hosts: HostList, limit: str, *, source: str) -> tuple[str, ...]:
    """The hosts that a limit names: groups, wildcards, nodesets, with `!` and `&` as in Ansible.

    genders' own `&&`, `||` and `--` are understood too.

    Raises:
        InputError: a term matches nothing, or nothing is left.
    """
    chosen: set[str] | None = None
    for term in _TERMS.split(_in_ansible_words(limit)):
        sign, pattern = (term[:1], term[1:]) if term[:1] in "!&" else ("", term)
        if not pattern.strip():
            continue
        matched = _matching(hosts, pattern.strip(), source=source)
        if chosen is None:
            chosen = set() if not sign else set(hosts.names)
        if sign == "!":
            chosen -= matched
        elif sign == "&":
            chosen &= matched
        else:
            chosen |= matched
    left = tuple(name for name in hosts.names if chosen is None or name in chosen)
    if not left:
        raise InputError(f"{source}: --limit {limit!r} leaves no host")
    return left


def expand_limit(limit: str) -> str:
    """An Ansible limit in which nodesets (`gpu[001-004,7]`) became names; slices stay.

    A range with a dash is a nodeset here; Ansible's slice of a group is written `gpu[0:3]`.
    """
    return ",".join(term for part in _TERMS.split(limit) for term in _ansible_terms(part.strip()))


def _ansible_terms(term: str) -> Sequence[str]:
    sign, pattern = (term[:1], term[1:]) if term[:1] in ("!", "&") else ("", term)
    if _NODESET.search(pattern) is None:
        return [term] if term else []
    nodes = expand(pattern, source="--limit")
    if sign == "&":  # each & narrows further, so that all names must be in one pattern
        return [f"&~^({'|'.join(map(re.escape, nodes))})$"]
    return [f"{sign}{node}" for node in nodes]


def _in_ansible_words(limit: str) -> str:
    for theirs, ours in (("&&", ":&"), ("||", ":"), ("--", ":!")):
        limit = limit.replace(theirs, ours)
    return limit


def _matching(hosts: HostList, pattern: str, *, source: str) -> set[str]:
    if pattern in hosts.groups:
        return set(hosts.groups[pattern])
    if pattern in ("all", "*"):
        return set(hosts.names)
    wanted = [pattern] if set("*?") & set(pattern) else expand(pattern, source="--limit")
    matched = {name for name in hosts.names if any(fnmatchcase(name, want) for want in wanted)}
    if not matched:
        raise InputError(f"{source}: no host matches {pattern!r} of --limit")
    return matched


def _lines(text: str) -> Iterable[str]:
    for line in text.splitlines():
        stripped = line.partition("#")[0].strip()
        if stripped:
            yield stripped


def _host_of_line(line: str) -> str:
    """The nodeset of a hostfile line; empty where the line is something else."""
    node, _, slots = _SLOTS.sub("", line).strip().partition(":")
    rest_is_slots = not slots or slots.isdigit()
    return node if rest_is_slots and _NODE.fullmatch(node) and not node.startswith("[") else ""


def _unique(names: Sequence[str], source: str) -> tuple[str, ...]:
    unique = tuple(dict.fromkeys(names))
    if len(unique) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        _log.warning("%s: named more than once, taken once: %s", source, ", ".join(twice))
    return unique


def read(path: Path) -> str:
    """The text of a host list file.

    Raises:
        InputError: it cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"{path}: cannot be read: {exc}") from exc
