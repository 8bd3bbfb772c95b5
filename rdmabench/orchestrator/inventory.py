"""Who takes part: host inventories and lists become `Host` values.

An inventory is read by ansible-core itself, so that groups, ranges, group_vars, plugins and
expressions mean here what they mean to the playbooks.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Host
from rdmabench.orchestrator import hostlists
from rdmabench.orchestrator.hostvars import host_of, is_read

_ANSIBLE_SECONDS = 120.0
_INVENTORY_SUFFIXES = (".yml", ".yaml", ".json", ".ini", ".cfg", ".toml", ".py", ".sh")
_QUIET = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "0",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
    "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
    "ANSIBLE_LOAD_CALLBACK_PLUGINS": "0",
    "ANSIBLE_GATHERING": "explicit",
}
_RESOLVE = (
    "{% set ns = namespace(values=[]) %}"
    "{% for host, key in rdmabench_wanted %}"
    "{% set ns.values = ns.values + [hostvars[host][key]] %}"
    "{% endfor %}{{ ns.values }}"
)


def load(source: str, *, limit: str = "") -> tuple[Host, ...]:
    """The hosts of an inventory (file, directory, executable), hostfile, nodeset or comma list.

    Raises:
        InputError: it cannot be read, a value is wrong, or no host is left.
        SetupError: ansible-core is not installed beside this program.
    """
    if not source.strip(" ,"):
        raise InputError("the host list is empty", remedy="name an inventory with -i")
    path = Path(source).expanduser()
    if not path.exists():
        hosts = _from_list(_list_text(source), source, limit)
    elif path.name == "genders":
        text = hostlists.read(path)
        hosts = _from_list(hostlists.from_genders(text, source=source), source, limit)
    elif _is_inventory(path):
        hosts = _from_ansible(path, limit)
    else:
        text = hostlists.read(path)
        hosts = _from_list(hostlists.from_hostfile(text, source=source), source, limit)
    if not hosts:
        raise InputError(f"{source}: the inventory has no host")
    _refuse_twins(hosts, source)
    return hosts


def _list_text(source: str) -> hostlists.HostList:
    if "/" in source or source.endswith((*_INVENTORY_SUFFIXES, ".txt")):
        raise InputError(
            f"{source}: there is no such file",
            remedy="give the path of an inventory, or a host list such as gpu[001-128,130]",
        )
    return hostlists.from_text(source, source=source)


def _is_inventory(path: Path) -> bool:
    if path.is_dir() or path.suffix in _INVENTORY_SUFFIXES or os.access(path, os.X_OK):
        return True
    return not hostlists.is_hostfile(hostlists.read(path))


def _from_list(hosts: hostlists.HostList, source: str, limit: str) -> tuple[Host, ...]:
    names = hostlists.select(hosts, limit, source=source) if limit else hosts.names
    split = (name.rpartition("@")[::2] for name in names)
    return tuple(Host(name=address, address=address, user=user) for user, address in split)


def _refuse_twins(hosts: Sequence[Host], source: str) -> None:
    """Two entries for one sshd would measure a node against itself."""
    seen: dict[tuple[str, int], Host] = {}
    for host in hosts:
        first = seen.setdefault((host.address, host.port), host)
        if first is not host:
            port = f" port {host.port}" if host.port else ""
            raise InputError(
                f"{source}: {first.name} and {host.name} are both {host.address}{port}",
                remedy="correct ansible_host or ansible_port, or leave one out with --limit "
                f"'all:!{host.name}'",
            )


# ---- Ansible ----


def _from_ansible(path: Path, limit: str) -> tuple[Host, ...]:
    argv = ["-i", str(path), "--list"]
    argv += ["--limit", hostlists.expand_limit(limit)] if limit else []
    try:
        document = json.loads(_ansible("ansible-inventory", argv, path, limit))
    except ValueError as exc:
        raise InputError(f"{path}: ansible-inventory wrote no JSON: {exc}") from exc
    hostvars: Mapping[str, Mapping[str, Any]] = document.get("_meta", {}).get("hostvars", {})
    names = tuple(dict.fromkeys(_names(document, "all")))
    variables = {name: dict(hostvars.get(name, {})) for name in names}
    _resolve(path, variables)
    return tuple(host_of(name, variables[name], source=str(path)) for name in names)


def _names(document: Mapping[str, Any], group: str) -> Iterator[str]:
    body = document.get(group, {})
    yield from body.get("hosts", ())
    for child in body.get("children", ()):
        yield from _names(document, child)


def _ansible(program: str, argv: Sequence[str], path: Path, limit: str) -> str:
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if not found:
        raise SetupError(f"{program} is not installed", remedy="pip install ansible-core")
    try:
        done = subprocess.run(
            [found, *argv],
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSIBLE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise InputError(
            f"{path}: {program} did not end within {_ANSIBLE_SECONDS:.0f} s",
            remedy=f"run `{shlex.join([program, *argv])}` and see what it waits for",
        ) from exc
    if done.returncode != 0:
        raise _ansible_error(path, limit, done.stderr + done.stdout)
    return done.stdout


def _ansible_error(path: Path, limit: str, said: str) -> InputError:
    lines = [line.strip() for line in said.splitlines()]
    if limit and any("Could not match supplied host pattern" in line for line in lines):
        missing = next(line.rpartition(": ")[2] for line in lines if "supplied host" in line)
        return InputError(
            f"{path}: nothing in the inventory matches {missing!r} of --limit {limit!r}",
            remedy=f"see the names with `ansible-inventory -i {path} --graph`",
        )
    plain = [line for line in lines if line and "caused by" not in line]
    words = "\n  ".join(line.removeprefix("[WARNING]: ") for line in dict.fromkeys(plain[:10]))
    return InputError(f"{path}: Ansible cannot read it:\n  {words}")


def _resolve(path: Path, variables: dict[str, dict[str, Any]]) -> None:
    """Replace the expressions in the values we use by what Ansible makes of them."""
    wanted = [
        (host, key)
        for host, values in variables.items()
        for key, value in values.items()
        if is_read(key) and "{{" in json.dumps(value)
    ]
    if not wanted:
        return
    message = json.dumps({"msg": _RESOLVE})
    argv = ["localhost", "-i", str(path), "-c", "local", "-m", "ansible.builtin.debug"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as extra:
        json.dump({"rdmabench_wanted": wanted}, extra)
        extra.flush()
        said = _ansible("ansible", [*argv, "-a", message, "-e", f"@{extra.name}"], path, "")
    try:
        values = json.loads(said.partition("=>")[2])["msg"]
        found = list(zip(wanted, values, strict=True))
    except (ValueError, KeyError, TypeError) as exc:
        raise InputError(
            f"{path}: the expression in {wanted[0][1]} of {wanted[0][0]} cannot be resolved"
        ) from exc
    for (host, key), value in found:
        variables[host][key] = value
