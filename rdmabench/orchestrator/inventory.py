"""Who takes part: host inventories and lists become `Host` values.

An inventory is read by ansible-core itself, so that groups, ranges, group_vars, plugins and
expressions mean here what they mean to the playbooks.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Host
from rdmabench.orchestrator import hostlists

_ANSIBLE_SECONDS = 120.0
_INVENTORY_SUFFIXES = (".yml", ".yaml", ".json", ".ini", ".cfg", ".toml", ".py", ".sh")
_DEFAULT_PYTHON = "/usr/bin/python3"
_SSH_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")
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
    if not source.strip(" ,"):
        raise InputError("the host list is empty", remedy="name an inventory with -i")
    return hostlists.from_text(source, source=source)


def _is_inventory(path: Path) -> bool:
    if path.is_dir() or path.suffix in _INVENTORY_SUFFIXES or os.access(path, os.X_OK):
        return True
    return not hostlists.is_hostfile(hostlists.read(path))


def _from_list(hosts: hostlists.HostList, source: str, limit: str) -> tuple[Host, ...]:
    names = hostlists.select(hosts, limit, source=source) if limit else hosts.names
    split = ((name, *name.rpartition("@")[::2]) for name in names)
    return tuple(Host(name=name, address=address, user=user) for name, user, address in split)


def _refuse_twins(hosts: Sequence[Host], source: str) -> None:
    """Two names for one sshd would measure a node against itself."""
    seen: dict[tuple[str, int], str] = {}
    for host in hosts:
        first = seen.setdefault((host.address, host.port), host.name)
        if first != host.name:
            port = f" port {host.port}" if host.port else ""
            raise InputError(
                f"{source}: {first} and {host.name} are both {host.address}{port}",
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
    return tuple(_host(name, variables[name], str(path)) for name in names)


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
        if _is_ours(key) and "{{" in json.dumps(value)
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


# ---- variables ----


def _text(value: object) -> object:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _words(value: object) -> object:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _texts(value: object) -> object:
    """Numbers in an environment become text; a YAML yes/no is refused, for it lost its spelling."""
    if isinstance(value, Mapping):
        return {key: _text(item) for key, item in value.items()}
    return value


Text = Annotated[str, BeforeValidator(_text)]


class _Variables(BaseModel):
    """The host variables that are read; others belong to the playbooks."""

    model_config = ConfigDict(extra="ignore")

    address: str = Field("", validation_alias=AliasChoices("ansible_host", "ansible_ssh_host"))
    port: int = Field(
        0, ge=0, le=65535, validation_alias=AliasChoices("ansible_port", "ansible_ssh_port")
    )
    user: str = Field("", validation_alias=AliasChoices("ansible_user", "ansible_ssh_user"))
    python: str = Field(_DEFAULT_PYTHON, validation_alias="ansible_python_interpreter")
    identity_file: str = Field(
        "",
        validation_alias=AliasChoices("ansible_ssh_private_key_file", "ansible_private_key_file"),
    )
    ansible_connection: str = "ssh"
    ansible_ssh_args: str = ""
    ansible_ssh_common_args: str = ""
    ansible_ssh_extra_args: str = ""
    rdma_devices: str = ""
    rdma_gid_index: int | None = Field(None, ge=0, le=255)
    rdma_rail_order: Annotated[list[str], BeforeValidator(_words)] = []
    rdma_tcp_netdev: str = ""
    rdma_torch_python: str = ""
    rdma_env: Annotated[dict[str, str], BeforeValidator(_texts)] = {}
    rdma_rack: Text = ""


_OURS = tuple(name for name in _Variables.model_fields if name.startswith("rdma_"))


def _is_ours(key: str) -> bool:
    return key.startswith(("rdma_", "ansible_"))


def _host(name: str, variables: Mapping[str, Any], source: str) -> Host:
    _refuse_misspelt(name, variables, source)
    try:
        found = _Variables.model_validate(dict(variables))
        ssh_args = tuple(
            word
            for text in (
                found.ansible_ssh_args,
                found.ansible_ssh_common_args,
                found.ansible_ssh_extra_args,
            )
            for word in shlex.split(text)
        )
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        given = f"{first['input']!r:.80}"
        raise InputError(f"{source}: host {name}: {key}: {first['msg']}, found {given}") from exc
    except ValueError as exc:
        raise InputError(f"{source}: host {name}: ansible_ssh_*_args: {exc}") from exc
    if found.ansible_connection not in _SSH_CONNECTIONS:
        raise InputError(
            f"{source}: host {name}: ansible_connection: {found.ansible_connection!r}: every node, "
            "this machine too, is reached over SSH",
            remedy=f"set it to ssh for {name}, or leave the host out with --limit 'all:!{name}'",
        )
    return Host(
        name=name,
        address=found.address or name,
        port=found.port,
        user=found.user,
        python=_DEFAULT_PYTHON if found.python.startswith("auto") else found.python,
        identity_file=found.identity_file,
        ssh_args=ssh_args,
        rdma_devices=found.rdma_devices,
        gid_index=found.rdma_gid_index,
        rail_order=tuple(found.rdma_rail_order),
        tcp_netdev=found.rdma_tcp_netdev,
        torch_python=found.rdma_torch_python,
        env=found.rdma_env,
        rack=found.rdma_rack,
    )


def _refuse_misspelt(name: str, variables: Mapping[str, Any], source: str) -> None:
    """A name near one of ours would be passed over in silence; one far from all is the site's."""
    for key in variables:
        if key.startswith("rdma_") and key not in _OURS:
            close = [ours for ours in _OURS if ours.startswith(key) or key.startswith(ours)]
            close += difflib.get_close_matches(key, _OURS, n=1, cutoff=0.75)
            if close:
                raise InputError(
                    f"{source}: host {name}: {key} is no variable of rdmabench",
                    remedy=f"write {close[0]}, or give a variable of your own another name",
                )
