"""A real SSH server in this process, on a port of its own, with exec, SFTP and forwarding."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rdmabench.model import Host
from rdmabench.orchestrator import ssh
from rdmabench.orchestrator.ssh import SshOptions

_RELAY = """
import os, socket, sys, threading
out = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := out.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    out.sendall(data)
"""


def new_key() -> paramiko.PKey:
    """A fresh Ed25519 key."""
    return paramiko.Ed25519Key.from_private_key(io.StringIO(private_text()))


def private_text(password: bytes = b"") -> str:
    """A fresh private key in OpenSSH's format."""
    lock = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, lock)
        .decode()
    )


class _Files(paramiko.SFTPServerInterface):
    """The real file system; relative paths are under the server's home."""

    def __init__(self, server: _Session, *args: object, **kwargs: object) -> None:
        super().__init__(server)
        self.home = server.site.home

    def _do(self, action: Callable[[], object]) -> int:
        try:
            action()
        except OSError as exc:
            return paramiko.SFTPServer.convert_errno(exc.errno)
        return paramiko.SFTP_OK

    def _at(self, path: str) -> Path:
        return self.home / path

    def canonicalize(self, path: str) -> str:
        return str(self._at(path))

    def open(self, path: str, flags: int, attr: object) -> paramiko.SFTPHandle | int:
        try:
            fd = os.open(self._at(path), flags, 0o644)
        except OSError as exc:
            return paramiko.SFTPServer.convert_errno(exc.errno)
        file = os.fdopen(fd, "r+b" if flags & os.O_RDWR else "wb" if flags & os.O_WRONLY else "rb")
        handle = _Handle(flags)
        handle.readfile = handle.writefile = file
        return handle

    def stat(self, path: str) -> paramiko.SFTPAttributes | int:
        return self._attributes(path, follow=True)

    def lstat(self, path: str) -> paramiko.SFTPAttributes | int:
        return self._attributes(path, follow=False)

    def _attributes(self, path: str, *, follow: bool) -> paramiko.SFTPAttributes | int:
        try:
            return paramiko.SFTPAttributes.from_stat(self._at(path).stat(follow_symlinks=follow))
        except OSError as exc:
            return paramiko.SFTPServer.convert_errno(exc.errno)

    def chattr(self, path: str, attr: paramiko.SFTPAttributes) -> int:
        return self._do(lambda: self._at(path).chmod(attr.st_mode & 0o7777))

    def mkdir(self, path: str, attr: object) -> int:
        return self._do(lambda: self._at(path).mkdir())

    def rmdir(self, path: str) -> int:
        return self._do(lambda: self._at(path).rmdir())

    def remove(self, path: str) -> int:
        return self._do(lambda: self._at(path).unlink())

    def posix_rename(self, old: str, new: str) -> int:
        return self._do(lambda: self._at(old).replace(self._at(new)))


class _Handle(paramiko.SFTPHandle):
    def stat(self) -> paramiko.SFTPAttributes:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))

    def chattr(self, attr: paramiko.SFTPAttributes) -> int:
        os.fchmod(self.readfile.fileno(), attr.st_mode & 0o7777)
        return paramiko.SFTP_OK


class _Session(paramiko.ServerInterface):
    """What one connection may do."""

    def __init__(self, site: SshServer) -> None:
        self.site = site

    def get_allowed_auths(self, username: str) -> str:
        return self.site.auths

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.site.offered.append(key.fingerprint)
        taken = key == self.site.client_key
        return paramiko.AUTH_SUCCESSFUL if taken else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        self.site.forwarded.append(destination)
        self.site.destinations[chanid] = destination
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.site.commands.append(command.decode())
        self.site.spawn(self.site.execute, channel, command.decode())
        return True


@dataclass
class SshServer:
    """One node: knobs for what it does wrong, lists of what it saw."""

    home: Path
    host_key: paramiko.PKey
    client_key: paramiko.PKey
    key_file: Path
    auths: str = "publickey"
    banner_noise: bytes = b""
    banner_delay_s: float = 0.0
    drop_above: int = 0  # connections closed before the banner while so many are logging in
    drop_first: int = 0  # connections closed before the banner, as MaxStartups does
    offered: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    forwarded: list[tuple[str, int]] = field(default_factory=list)
    destinations: dict[int, tuple[str, int]] = field(default_factory=dict)
    accepted: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    transports: list[paramiko.Transport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.port: int = self._listener.getsockname()[1]
        self.spawn(self._accept)

    def spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self.accepted += 1
                crowded = self.drop_above and self.logging_in() >= self.drop_above
                if self.accepted <= self.drop_first or crowded:
                    connection.close()
                    continue
                self.spawn(self._serve, connection)

    def logging_in(self) -> int:
        """As sshd counts for MaxStartups: connections that are not authenticated yet."""
        return sum(t.is_active() and not t.is_authenticated() for t in list(self.transports))

    def _serve(self, connection: socket.socket) -> None:
        if self._stop.wait(self.banner_delay_s):
            connection.close()
            return
        connection.sendall(self.banner_noise)
        transport = paramiko.Transport(connection)
        self.transports.append(transport)
        transport.add_server_key(self.host_key)
        transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=_Session(self))
            while transport.is_active() and not self._stop.is_set():
                channel = transport.accept(0.1)
                if channel is not None and channel.get_id() in self.destinations:
                    self.spawn(self._forward, channel, self.destinations[channel.get_id()])
        transport.close()
        connection.close()

    def _forward(self, channel: paramiko.Channel, destination: tuple[str, int]) -> None:
        with socket.create_connection(destination) as out:
            self.spawn(_pump, out.recv, channel.sendall, channel.shutdown_write)
            _pump(channel.recv, out.sendall, lambda: out.shutdown(socket.SHUT_WR))
            while not channel.closed and not self._stop.is_set():
                time.sleep(0.02)

    def execute(self, channel: paramiko.Channel, command: str) -> None:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdin, process.stdout, process.stderr:
            self.spawn(_pump, channel.recv, process.stdin.write, process.stdin.close, process.stdin)
            err = threading.Thread(
                target=_pump, args=(process.stderr.read1, channel.sendall_stderr, lambda: None)
            )
            err.start()
            _pump(process.stdout.read1, channel.sendall, lambda: None)
            err.join()
            status = process.wait()
            with contextlib.suppress(OSError, EOFError):
                if status >= 0:
                    channel.send_exit_status(status)
                channel.shutdown_write()
        channel.close()

    def close(self) -> None:
        self._stop.set()
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for transport in self.transports:
            transport.close()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def host(self, name: str = "node1", **values: object) -> Host:
        plain: dict[str, object] = {
            "name": name,
            "address": "127.0.0.1",
            "port": self.port,
            "user": "bench",
            "identity_file": str(self.key_file),
        }
        return Host(**{**plain, **values})  # type: ignore[arg-type]

    def known_line(self, key: paramiko.PKey | None = None, *, name: str = "") -> str:
        shown = key or self.host_key
        who = name or f"[127.0.0.1]:{self.port}"
        return f"{who} {shown.get_name()} {shown.get_base64()}\n"


def _pump(
    receive: Callable[[int], bytes],
    send: Callable[[bytes], object],
    end: Callable[[], object],
    flushed: io.BufferedIOBase | None = None,
) -> None:
    with contextlib.suppress(OSError, EOFError, ValueError):
        while chunk := receive(32768):
            send(chunk)
            if flushed is not None:
                flushed.flush()
    with contextlib.suppress(OSError, EOFError, ValueError):
        end()


@dataclass
class Site:
    """A control host's ssh files in a temporary directory; nobody's own ~/.ssh is read."""

    directory: Path
    servers: list[SshServer] = field(default_factory=list)

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def config(self) -> Path:
        return self.directory / "config"

    def server(self, *, known: bool = True) -> SshServer:
        number = len(self.servers)
        home = self.directory / f"home{number}"
        home.mkdir()
        key_file = self.directory / f"id_{number}"
        text = private_text()
        key_file.write_text(text)
        key_file.chmod(0o600)
        client_key = paramiko.Ed25519Key.from_private_key(io.StringIO(text))
        made = SshServer(home, new_key(), client_key, key_file)
        self.servers.append(made)
        if known:
            self.learn(made.known_line())
        return made

    @staticmethod
    def private_text(password: bytes = b"") -> str:
        return private_text(password)

    @property
    def relay(self) -> str:
        """A program that joins its stdin and stdout to a TCP port."""
        path = self.directory / "relay.py"
        path.write_text(_RELAY)
        return f"{shlex.quote(sys.executable)} {shlex.quote(str(path))}"

    @contextlib.contextmanager
    def agent(self, key_file: Path) -> Iterator[str]:
        """An ssh-agent of its own that holds the key."""
        if shutil.which("ssh-agent") is None:
            pytest.skip("no ssh-agent here")
        path = str(self.directory / "agent")
        with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
            try:
                while not Path(path).exists():
                    time.sleep(0.01)
                env = {**os.environ, "SSH_AUTH_SOCK": path}
                subprocess.run(["ssh-add", "-q", str(key_file)], env=env, check=True)
                yield path
            finally:
                agent.terminate()

    def learn(self, line: str) -> None:
        with self.known_hosts.open("a") as file:
            file.write(line)

    def options(self, **values: object) -> SshOptions:
        return SshOptions(config_file=str(self.config), **values)  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(ssh, "_FIRST_PAUSE_S", 0.05)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    made = Site(tmp_path)
    made.config.write_text(
        f"Host *\n  UserKnownHostsFile {shlex.quote(str(made.known_hosts))}\n"
        f"  GlobalKnownHostsFile {tmp_path}/global_known_hosts\n  HashKnownHosts no\n"
        f"  IdentityFile {tmp_path}/no-such-key\n"
    )
    yield made
    for server in made.servers:
        server.close()
