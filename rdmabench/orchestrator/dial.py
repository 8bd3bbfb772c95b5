"""The bytes under an SSH connection: a TCP socket, or a process that stands for one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO

from rdmabench.errors import ConnectError, DeadlineError, HostKeyError
from rdmabench.model import Host
from rdmabench.orchestrator.sshconfig import Settings

_SILENT_PEER_MS = 45_000
_GOES_SECONDS = 2.0
_REMEDIES = {
    errno.ECONNREFUSED: "is sshd running there, and is this its port (ansible_port)?",
    errno.EHOSTUNREACH: "is the node up, and is there a route to its management network?",
    errno.ENETUNREACH: "is there a route to the node's management network?",
}
_BUSY_NODE = "its sshd may be overrun: raise MaxStartups there, or connect to fewer nodes at once"
_BUSY = re.compile(r"kex_exchange_identification|banner exchange|Connection (closed|reset) by")


def dial(host: Host, settings: Settings, timeout_s: float) -> socket.socket:
    """A TCP connection to the node's sshd, which ends when the peer falls silent.

    Raises:
        ConnectError: there is none.
    """
    where = f"{settings.hostname} port {settings.port}"
    try:
        connected = socket.create_connection((settings.hostname, settings.port), timeout_s)
    except socket.gaierror as exc:
        raise ConnectError(
            f"the name {settings.hostname} does not resolve: {exc.strerror}",
            host=host.name,
            remedy="correct ansible_host, or HostName in the ssh configuration",
        ) from exc
    except TimeoutError as exc:
        raise ConnectError(
            f"connect timeout: {where} did not answer within {timeout_s:g} s",
            host=host.name,
            remedy="is the node up, and does a firewall drop this port?",
        ) from exc
    except OSError as exc:
        remedy = _REMEDIES.get(exc.errno or 0, "")
        raise ConnectError(
            f"{where}: {exc.strerror or exc}", host=host.name, remedy=remedy
        ) from exc
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_PEER_MS)
    return connected


def too_late(host: Host, settings: Settings) -> DeadlineError:
    """The error for a node that accepts connections and then says nothing."""
    return DeadlineError(
        f"{settings.hostname} port {settings.port} was reached, and sent no SSH banner or key in "
        "time",
        host=host.name,
        remedy=f"{_BUSY_NODE}; a slow proxy or node needs a longer banner timeout",
    )


def failed(
    host: Host, settings: Settings, *, words: str, hung_up: bool, said: str
) -> tuple[ConnectError, bool]:
    """The error for a handshake that ended, and whether another attempt may help.

    `words` are the local error's, `said` the proxy's last lines.
    """
    where = f"{settings.hostname} port {settings.port}"
    if not said:
        what = f"{where}: {words or 'the connection was closed'}"
        return ConnectError(what, host=host.name, remedy=_BUSY_NODE if hung_up else ""), hung_up
    what = f"{where} through its proxy: {said}"
    jump = settings.proxy_jump.rpartition(",")[2]
    if "ost key verification failed" in said:
        remedy = f"check the host key of the proxy, with `ssh {jump} true`"
        return HostKeyError(what, host=host.name, remedy=remedy), False
    if _BUSY.search(said):
        remedy = "the proxy may be overrun: raise MaxStartups there, or use fewer connections"
        return ConnectError(what, host=host.name, remedy=remedy), True
    return ConnectError(what, host=host.name, remedy=f"try `ssh {jump} true`"), False


class Proxy:
    """A process that carries the connection: `ssh -W` for a jump host, or a ProxyCommand.

    It is given one end of a socket pair, so that timeouts and end of file work as on a socket, and
    its stderr goes to a file, so that a talkative one cannot block.
    """

    def __init__(self, argv: Sequence[str], host: str) -> None:
        """Start it; `host` names the node in errors."""
        self.argv = tuple(argv)
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as we
        self.socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                self.argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,  # a Ctrl-C is ours to handle, not the proxy's
            )
        except OSError as exc:
            self.socket.close()
            self._stderr.close()
            raise ConnectError(
                f"the proxy `{shlex.join(self.argv)}` cannot be started: {exc}", host=host
            ) from exc
        finally:
            theirs.close()

    def said(self) -> str:
        """The last lines of its stderr; empty once it is closed."""
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-500:]

    def close(self) -> None:
        """End the process; waits for it."""
        self.socket.close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_GOES_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


def proxy_argv(settings: Settings, *, accept_new: bool, timeout_s: float) -> tuple[str, ...]:
    """The proxy's command line; empty for a host that is reached directly.

    A jump host's key is checked by ssh, by the same policy, and ssh asks no question.
    """
    if settings.proxy_command:
        shell = os.environ.get("SHELL") or "/bin/sh"
        return (shell, "-c", f"exec {settings.proxy_command}")
    if not settings.proxy_jump:
        return ()
    *before, last = settings.proxy_jump.split(",")
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new" if accept_new else "yes",
        "ConnectTimeout": str(max(1, round(timeout_s))),
        "ServerAliveInterval": "15",
        "ControlMaster": "no",
    }
    argv = ["ssh", *(["-F", settings.config_file] if settings.config_file else [])]
    argv += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    argv += ["-J", ",".join(before)] if before else []
    argv += ["-W", f"[{settings.hostname}]:{settings.port}"]
    return (*argv, last if last.startswith("ssh://") else f"ssh://{last}")
