"""The decision whether to talk to a node: its host key against known_hosts, under a policy."""

from __future__ import annotations

import logging
import shlex

from rdmabench.errors import HostKeyError
from rdmabench.model import Host
from rdmabench.orchestrator import knownhosts
from rdmabench.orchestrator.knownhosts import Judgement, Verdict
from rdmabench.orchestrator.sshconfig import Settings

_ON_CONSOLE = "`ssh-keygen -lf /etc/ssh/ssh_host_TYPE_key.pub` on the node's console"
_log = logging.getLogger(__name__)


def known_types(settings: Settings) -> tuple[str, ...]:
    """The key types by which the node is known: to be asked for first."""
    names = [name for name in (settings.known_name, settings.plain_name) if name]
    return knownhosts.key_types(knownhosts.read(settings.known_hosts_files), names)


def check(host: Host, settings: Settings, *, policy: str, key_type: str, key: str) -> None:
    """Return if the node may be talked to; `accept-new` adds an unknown key, never a changed one.

    Raises:
        HostKeyError: it may not.
    """
    entries = knownhosts.read(settings.known_hosts_files)
    judgement = knownhosts.judge(entries, settings.known_name, key, plain_name=settings.plain_name)
    if judgement.verdict is Verdict.KNOWN:
        return
    offered = f"{_type_name(key_type)} {knownhosts.fingerprint(key)}"
    if judgement.verdict is Verdict.UNKNOWN and policy == "accept-new":
        _accept(host, settings, key_type, key)
        return
    if judgement.verdict is Verdict.UNKNOWN:
        raise _unknown(host, settings, offered)
    raise _not_the_known_one(host, settings, offered, judgement)


def _accept(host: Host, settings: Settings, key_type: str, key: str) -> None:
    if not settings.user_known_hosts:
        raise HostKeyError(
            "its key is unknown and there is no known_hosts file to add it to",
            host=host.name,
            remedy="set UserKnownHostsFile in the ssh configuration",
        )
    path, name = settings.user_known_hosts[0], settings.known_name
    try:
        knownhosts.append(path, name, key_type, key, hashed=settings.hash_known_hosts)
    except OSError as exc:
        raise HostKeyError(f"its new key cannot be added to {path}: {exc}", host=host.name) from exc
    _log.info("%s: added its %s key to %s", host.name, key_type, path)


def _unknown(host: Host, settings: Settings, offered: str) -> HostKeyError:
    file = settings.user_known_hosts[0] if settings.user_known_hosts else "known_hosts"
    direct = not (settings.proxy_jump or settings.proxy_command or settings.host_key_alias)
    learn = f"ssh-keyscan -p {settings.port} {settings.hostname} >> {shlex.quote(file)}"
    if not direct:
        learn = f"ssh -p {settings.port} {settings.user}@{host.address} true"
    return HostKeyError(
        f"the host key of {settings.hostname} port {settings.port} is not known: it offers "
        f"{offered}, and no line for {settings.known_name} is in "
        f"{', '.join(settings.known_hosts_files) or 'any file'}",
        host=host.name,
        remedy=f"compare the fingerprint with {_ON_CONSOLE}, then `{learn}`; "
        "or use --host-key-policy accept-new on a network you trust",
    )


def _not_the_known_one(
    host: Host, settings: Settings, offered: str, judgement: Judgement
) -> HostKeyError:
    entry = judgement.entries[0]
    if judgement.verdict is Verdict.REVOKED:
        return HostKeyError(
            f"the host key of {settings.hostname} port {settings.port}, {offered}, is marked "
            f"@revoked in {entry.where}",
            host=host.name,
            remedy="give the node a new host key; do not trust this one",
        )
    known = ", ".join(
        f"{_type_name(e.key_type)} {knownhosts.fingerprint(e.key)} ({e.where})"
        for e in judgement.entries[:4]
    )
    forget = f"ssh-keygen -R {shlex.quote(settings.known_name)} -f {shlex.quote(entry.path)}"
    return HostKeyError(
        f"the host key of {settings.hostname} port {settings.port} has CHANGED: it offers "
        f"{offered}, known is {known}. The node was reinstalled, or something in between answers "
        "for it",
        host=host.name,
        remedy=f"if it was reinstalled: compare the fingerprint with {_ON_CONSOLE}, then "
        f"`{forget}` and add the new key",
    )


def _type_name(key_type: str) -> str:
    return key_type.removeprefix("ssh-").upper().partition("-SHA2")[0]
