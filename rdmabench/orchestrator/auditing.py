"""Audits of nodes: the worker is started as for a sweep, but needs neither device nor pyverbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rdmabench import wire
from rdmabench.audit import Audit
from rdmabench.errors import StorageError
from rdmabench.model import Fabric, Host
from rdmabench.orchestrator import deploy
from rdmabench.orchestrator.agent import Agent
from rdmabench.orchestrator.deploy import Node
from rdmabench.orchestrator.fanout import Ending, fanout
from rdmabench.orchestrator.ssh import Connection, SshOptions

_AUDIT_LIMIT_S = 180.0  # a node of many NICs asks several programs about each


def ask(agent: Agent, host: Host, fabric: Fabric) -> Audit:
    """The audit of a node whose worker runs; its name is the inventory's.

    Raises:
        HostError: the worker failed, or did not answer in time.
    """
    ports = wire.ListEndpoints(
        fabric=fabric,
        selector=host.rdma_devices,
        gid_index=host.gid_index,
        rail_order=host.rail_order,
        netdev=host.tcp_netdev,
    )
    answer: wire.AuditReport = agent.ask(wire.Audit(ports=ports), deadline_s=_AUDIT_LIMIT_S)
    return replace(answer.audit, host=host.name, fabric=fabric)


def audit(
    host: Host, *, fabric: Fabric, options: SshOptions, logs: Path, clean: bool = False
) -> Audit:
    """Connect, start the worker, ask, and leave.

    Raises:
        HostError: this node could not be asked.
    """
    connection = Connection.open(host, options)
    try:
        agent, facts = deploy.start(connection, host, logs)
        node = Node(host=host, connection=connection, agent=agent, facts=facts, endpoints=())
        try:
            return ask(agent, host, fabric)
        finally:
            node.close(clean=clean)
    finally:
        connection.close()


def audit_all(
    hosts: Sequence[Host],
    *,
    fabric: Fabric,
    options: SshOptions,
    logs: Path,
    limit: int,
    clean: bool = False,
    done: Callable[[], None] = lambda: None,
) -> dict[str, Ending[Audit]]:
    """All of them, `limit` at once; each keeps its own ending. `done` is called after each.

    Raises:
        StorageError: a log cannot be written here.
    """

    def one(host: Host) -> Audit:
        try:
            return audit(host, fabric=fabric, options=options, logs=logs, clean=clean)
        finally:
            done()

    endings = fanout(one, hosts, limit=limit, deadline_s=None, key=lambda host: host.name)
    for ending in endings.values():
        if isinstance(ending.error, StorageError):
            raise ending.error
    return endings
