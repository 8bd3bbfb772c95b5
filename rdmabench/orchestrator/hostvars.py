"""Host variables, Ansible's and ours, validated into a `Host`."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rdmabench.errors import InputError
from rdmabench.model import Host

_DEFAULT_PYTHON = "/usr/bin/python3"
_SSH_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")


def is_read(key: str) -> bool:
    """Whether a variable of this name may be read here; others belong to the playbooks."""
    return key.startswith(("rdma_", "ansible_"))


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
    rdma_silence_limit_s: float = Field(60.0, ge=10, le=1e9)


_OURS = tuple(name for name in _Variables.model_fields if name.startswith("rdma_"))


def host_of(name: str, variables: Mapping[str, object], *, source: str) -> Host:
    """The host that these variables describe.

    Raises:
        InputError: names source, host and key of what is wrong.
    """
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
        silence_limit_s=found.rdma_silence_limit_s,
    )


def _refuse_misspelt(name: str, variables: Mapping[str, object], source: str) -> None:
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
