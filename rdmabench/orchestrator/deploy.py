"""The worker onto a node and into life: pushed once, verified, started, removed on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import HostError, StorageError
from rdmabench.model import Endpoint, Fabric, Host, NodeFacts
from rdmabench.orchestrator import bundle
from rdmabench.orchestrator.agent import Agent
from rdmabench.orchestrator.ssh import Connection, RemoteProcess, SshOptions
from rdmabench.wire import EndpointList, ListEndpoints

BASE = ".cache/rdmabench"
_HELLO_LIMIT_S = 60.0
_COMMAND_LIMIT_S = 30.0

# One line of Python without a single quote or an exclamation mark, which login shells take for
# their own: refuses a directory of another user or open to others, and files other than those sent.
_BOOTSTRAP = (
    "import hashlib,os,runpy,sys; d,h=sys.argv[1:3]; "
    "sys.version_info >= (3,9) or "
    'sys.exit("the worker needs Python 3.9 or later, this is "+sys.version.split()[0]); '
    'f=[os.path.join(d,n) for n in ("worker.pyz","hotloop.so")]; s=os.stat(d); '
    'b=hashlib.sha256(); [b.update(open(n,"rb").read()) for n in f]; '
    "ok=s.st_uid==os.getuid() and s.st_mode&0o22==0 and b.hexdigest()==h; "
    'ok or sys.exit("the worker in "+d+" is not the one that was sent: remove it"); '
    'sys.argv=[f[0],"--hotloop",f[1],"--sha256",h]+sys.argv[3:]; '
    'runpy.run_path(f[0],run_name="__main__")'
)


@dataclass(frozen=True)
class Node:
    """One node that takes part: its connection, its worker, what it has."""

    host: Host
    connection: Connection
    agent: Agent
    facts: NodeFacts
    endpoints: tuple[Endpoint, ...]

    def close(self, *, clean: bool) -> None:
        """End the worker and the connection; with `clean` remove what was pushed."""
        self.agent.close()
        if clean and self.connection.alive:
            _remove(self.connection, self.facts.worker_sha256)
        self.connection.close()


def directory_of(sha256: str) -> str:
    """Where a bundle lies on a node, relative to the login directory."""
    return f"{BASE}/worker-{sha256[:32]}"


def bring_up(host: Host, *, fabric: Fabric, options: SshOptions, logs: Path) -> Node:
    """Connect, push, start, and ask for the endpoints of the fabric.

    Raises:
        HostError: this node cannot take part; what was opened is closed again.
    """
    connection = Connection.open(host, options)
    try:
        agent, facts = start(connection, host, logs)
        try:
            return Node(
                host=host,
                connection=connection,
                agent=agent,
                facts=facts,
                endpoints=_endpoints(agent, host, fabric),
            )
        except BaseException:
            agent.close()
            raise
    except BaseException:
        connection.close()
        raise


def start(connection: Connection, host: Host, logs: Path) -> tuple[Agent, NodeFacts]:
    made = bundle.build(_machine(connection))
    directory = directory_of(made.sha256)
    _push(connection, made, directory)
    log = logs / f"{_file_name(host.name)}.log"
    silence = ("--silence-limit-s", f"{host.silence_limit_s:g}")
    argv = (host.python, "-I", "-c", _BOOTSTRAP, directory, made.sha256, *silence)
    agent = Agent(_started(connection, argv, log), host=host.name, log=log)
    try:
        return agent, agent.hello(
            dict(host.env), silence_limit_s=host.silence_limit_s, deadline_s=_HELLO_LIMIT_S
        )
    except BaseException:
        agent.close()
        raise


def _started(connection: Connection, argv: Sequence[str], log: Path) -> RemoteProcess:
    try:
        return connection.start(argv, stderr_log=log)
    except OSError as exc:
        raise StorageError(
            f"{log}: {exc.strerror or exc}", remedy="free space, or choose another --results"
        ) from exc


def _machine(connection: Connection) -> str:
    done = connection.run(("uname", "-m"), deadline_s=_COMMAND_LIMIT_S)
    machine = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
    if done.exit_status or not machine or not machine[0].replace("_", "").isalnum():
        raise HostError(
            f"`uname -m` did not say what this node is: {done.stdout[-200:]!r}",
            host=connection.host.name,
        )
    return machine[0]


def _push(connection: Connection, made: bundle.Bundle, directory: str) -> None:
    """Files under a name made of their hash: one that is there is the right one, or is refused."""
    if connection.exists(f"{directory}/{bundle.ZIPAPP}"):
        return
    connection.mkdir(directory, mode=0o700)
    connection.put(made.hotloop, f"{directory}/{bundle.HOTLOOP}", mode=0o700)
    connection.put(made.zipapp, f"{directory}/{bundle.ZIPAPP}", mode=0o600)


def _remove(connection: Connection, sha256: str) -> None:
    directory = directory_of(sha256)
    for name in (bundle.ZIPAPP, bundle.HOTLOOP):
        connection.remove(f"{directory}/{name}")
    connection.remove(directory)


def _endpoints(agent: Agent, host: Host, fabric: Fabric) -> tuple[Endpoint, ...]:
    request = ListEndpoints(
        fabric=fabric,
        selector=host.rdma_devices,
        gid_index=host.gid_index,
        rail_order=host.rail_order,
        netdev=host.tcp_netdev,
    )
    answer: EndpointList = agent.ask(request, deadline_s=_COMMAND_LIMIT_S)
    return answer.endpoints


def _file_name(host: str) -> str:
    """A host's name as a file's: nothing of it can leave the directory."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in host).lstrip(".") or "_"
