"""How ssh would reach a node: asked of OpenSSH itself, so that Include, Match and tokens hold.

`ssh -G` prints the settings that apply to a host after all files and options were read. Where no
ssh program is installed the caller gives a reader of its own for the configuration file.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Host
from rdmabench.orchestrator import knownhosts

_ASK_SECONDS = 20.0
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
_IDENTITIES = "~/.ssh/id_ed25519 ~/.ssh/id_ecdsa ~/.ssh/id_rsa"

ConfigReader = Callable[[str, str], Mapping[str, Sequence[str]]]


@dataclass(frozen=True)
class Settings:
    """The effective ssh settings of one host."""

    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...]
    identities_only: bool
    identity_agent: str  # "": none to be used
    user_known_hosts: tuple[str, ...]
    global_known_hosts: tuple[str, ...]
    host_key_alias: str = ""
    hash_known_hosts: bool = False
    proxy_jump: str = ""
    proxy_command: str = ""
    connect_timeout_s: float = 0.0  # 0: not set
    config_file: str = ""

    @property
    def known_name(self) -> str:
        """The name to look up in known_hosts."""
        return self.host_key_alias or knownhosts.lookup_name(self.hostname, self.port)

    @property
    def plain_name(self) -> str:
        """The name without its port, tried second for a host off port 22; empty elsewhere."""
        off_port = self.port != knownhosts.DEFAULT_PORT and not self.host_key_alias
        return self.hostname.lower() if off_port else ""

    @property
    def known_hosts_files(self) -> tuple[str, ...]:
        """All files that are searched for host keys."""
        return self.user_known_hosts + self.global_known_hosts

    @property
    def target(self) -> str:
        """`user@host port N`, for messages."""
        return f"{self.user}@{self.hostname} port {self.port}"


def effective(host: Host, config_file: str, read_without_ssh: ConfigReader) -> Settings:
    """The settings ssh would use for the host.

    Raises:
        InputError: ssh refuses the configuration or the host's ssh arguments.
        SetupError: no ssh program, and the host needs one.
    """
    if shutil.which("ssh"):
        found = _ask_ssh(host, config_file)
    elif host.ssh_args:
        raise SetupError(
            f"ssh arguments {shlex.join(host.ssh_args)!r} need the OpenSSH client",
            host=host.name,
            remedy="install openssh-client on this machine",
        )
    else:
        found = read_without_ssh(host.address, config_file)
    return _explicit(_settings(host, found, config_file), host)


def _ask_ssh(host: Host, config_file: str) -> Mapping[str, Sequence[str]]:
    argv = ["ssh", "-G", *(["-F", config_file] if config_file else [])]
    argv += ["-p", str(host.port)] if host.port else []
    argv += ["-l", host.user] if host.user else []
    argv += ["-i", host.identity_file] if host.identity_file else []
    argv += [*host.ssh_args, "--", host.address]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SetupError(
            f"`{shlex.join(argv)}` did not end within {_ASK_SECONDS:.0f} s",
            host=host.name,
            remedy="look for a Match exec in the ssh configuration that waits",
        ) from exc
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise InputError(
            f"ssh refuses its configuration: {said}",
            host=host.name,
            remedy=f"run `{shlex.join(argv)}` and mend what it names",
        )
    return _parse(done.stdout.decode(errors="replace"))


def _parse(text: str) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def _settings(host: Host, found: Mapping[str, Sequence[str]], config_file: str) -> Settings:
    def one(key: str, default: str = "") -> str:
        value = found.get(key, [default])[0]
        return "" if value == "none" else value

    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": one("hostname", host.address),
        "n": host.address,
        "p": one("port", str(host.port or knownhosts.DEFAULT_PORT)),
        "r": one("user", host.user or getpass.getuser()),
        "u": getpass.getuser(),
        "i": str(os.getuid()),
        "l": socket.gethostname(),
        "L": socket.gethostname().partition(".")[0],
        "k": one("hostkeyalias") or host.address,
    }
    tokens["k"] = _expand(tokens["k"], tokens)

    def paths(key: str, default: str) -> tuple[str, ...]:
        words = " ".join(found.get(key, [default])).split()
        return tuple(_path(word, tokens) for word in words if word != "none")

    timeout = one("connecttimeout")
    return Settings(
        hostname=tokens["h"],
        port=int(tokens["p"]),
        user=tokens["r"],
        identity_files=tuple(
            _path(file, tokens) for file in found.get("identityfile", _IDENTITIES.split())
        ),
        identities_only=one("identitiesonly") == "yes",
        identity_agent=_agent(found, tokens),
        user_known_hosts=paths("userknownhostsfile", _USER_KNOWN_HOSTS),
        global_known_hosts=paths("globalknownhostsfile", _GLOBAL_KNOWN_HOSTS),
        host_key_alias=_expand(one("hostkeyalias"), tokens),
        hash_known_hosts=one("hashknownhosts") == "yes",
        proxy_jump=one("proxyjump"),
        proxy_command=_expand(one("proxycommand"), tokens),
        connect_timeout_s=float(timeout) if timeout.isdigit() else 0.0,
        config_file=config_file,
    )


def _explicit(settings: Settings, host: Host) -> Settings:
    """The inventory's own values stand above the configuration's."""
    files = settings.identity_files
    if host.identity_file:
        first = str(Path(host.identity_file).expanduser())
        files = (first, *(file for file in files if file != first))
    return replace(
        settings,
        port=host.port or settings.port,
        user=host.user or settings.user,
        identity_files=files,
    )


def _agent(found: Mapping[str, Sequence[str]], tokens: Mapping[str, str]) -> str:
    value = found.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if value == "none":
        return ""
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if value.startswith("$"):
        return os.environ.get(value.strip("${}"), "")
    return _path(value, tokens)


def _path(text: str, tokens: Mapping[str, str]) -> str:
    return str(Path(_expand(text, tokens)).expanduser())


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    parts = text.split("%")
    out = parts.pop(0)
    while parts:
        part = parts.pop(0)
        if not part:  # %% leaves an empty part
            out += "%" + (parts.pop(0) if parts else "")
        else:
            out += tokens.get(part[0], "%" + part[0]) + part[1:]
    return out
