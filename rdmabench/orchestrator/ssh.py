"""One SSH connection to a node: the only module that knows paramiko.

Everything that waits has a limit, every failure becomes one of our errors at `_translated`, and a
node whose host key is not the known one is never talked to.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import logging
import os
import random
import shlex
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentSSH
from paramiko.pkey import UnknownKeyType

from rdmabench.errors import ConnectError, DeadlineError, HostError, InputError, RdmabenchError
from rdmabench.model import Host
from rdmabench.orchestrator import dial, files, hostkey, remote, sshconfig
from rdmabench.orchestrator.dial import Proxy
from rdmabench.orchestrator.remote import Completed as Completed
from rdmabench.orchestrator.remote import RemoteProcess as RemoteProcess
from rdmabench.orchestrator.sshconfig import Settings

POLICIES = ("strict", "accept-new")

_ATTEMPTS = 6  # where the node hangs up before its banner: sshd's MaxStartups
_FIRST_PAUSE_S = 0.4
_KEEPALIVE_S = 15
_CHANNEL_S = 30.0
_AGENT_S = 10.0
_log = logging.getLogger(__name__)
if logging.getLogger("paramiko").level == logging.NOTSET:
    # paramiko logs a traceback for each refused handshake; the error we raise says it in a line
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class SshOptions:
    """How to connect; `config_file` empty means OpenSSH's default files.

    `host_key_policy` stands above StrictHostKeyChecking of the ssh configuration, ConnectTimeout
    of the configuration above `connect_timeout_s`.
    """

    host_key_policy: str = "strict"  # strict | accept-new
    connect_timeout_s: float = 10.0
    banner_timeout_s: float = 30.0
    auth_timeout_s: float = 15.0
    config_file: str = ""

    def __post_init__(self) -> None:
        if self.host_key_policy not in POLICIES:
            raise InputError(
                f"host key policy {self.host_key_policy!r}: choose {' or '.join(POLICIES)}"
            )


class _BannerError(ConnectError):
    """The node hung up before the handshake was done: worth another attempt."""


@contextlib.contextmanager
def _translated(host: str, doing: str) -> Iterator[None]:
    """Turn paramiko's and the system's errors into ours, with their own words."""
    try:
        yield
    except RdmabenchError:
        raise
    except TimeoutError as exc:
        raise DeadlineError(f"{doing}: no answer before the deadline", host=host) from exc
    except (paramiko.SSHException, EOFError, OSError) as exc:
        words = str(exc) or "the connection was closed"
        raise ConnectError(f"{doing}: {words}", host=host) from exc


@contextlib.contextmanager
def _remote_file(host: str, doing: str) -> Iterator[None]:
    """As `_translated`; but a refusal by the node's file system is not a lost connection."""
    with _translated(host, doing):
        try:
            yield
        except (TimeoutError, ConnectionError):
            raise
        except OSError as exc:
            raise HostError(
                f"{doing}: {exc.strerror or exc}",
                host=host,
                remedy="look at the permissions and the free space of that directory on the node",
            ) from exc


class Connection:
    """An authenticated connection; made by `open`, ended by `close`, usable from any thread.

    `attempts` tells how often it was tried: more than 1 where the node's sshd was overrun.
    """

    def __init__(
        self, host: Host, transport: paramiko.Transport, proxy: Proxy | None, *, attempts: int = 1
    ) -> None:
        """Take over what `open` made."""
        self.host = host
        self.attempts = attempts
        self._transport = transport
        self._proxy = proxy
        self._sftp: paramiko.SFTPClient | None = None
        self._sftp_lock = threading.Lock()

    @classmethod
    def open(cls, host: Host, options: SshOptions) -> Self:
        """Connect, check the host key, authenticate.

        Raises:
            ConnectError, HostKeyError, DeadlineError: as their names say.
            InputError, SetupError: the ssh configuration cannot be used.
        """
        settings = sshconfig.effective(host, options.config_file, _read_config)
        transport, proxy, attempts = _connected(host, settings, options)
        connection = cls(host, transport, proxy, attempts=attempts)
        try:
            with _translated(host.name, f"log in to {settings.target}"):
                key = transport.get_remote_server_key()
                hostkey.check(
                    host,
                    settings,
                    policy=options.host_key_policy,
                    key_type=key.get_name(),
                    key=key.get_base64(),
                )
                _Login(host, settings, transport, options.auth_timeout_s, []).run()
                transport.set_keepalive(_KEEPALIVE_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return self._transport.is_active()

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: bytes = b"") -> Completed:
        """Run a command to its end and return all that it wrote.

        Raises:
            DeadlineError: it did not end in time; its channel is closed.
            ConnectError: the connection ended first.
        """
        with _translated(self.host.name, f"`{shlex.join(argv)}`"):
            done = remote.finish(self._execute(argv), stdin=stdin, deadline_s=deadline_s)
            if done.exit_status < 0 and not self.alive:
                raise EOFError
            return done

    def start(self, argv: Sequence[str], *, stderr_log: Path) -> RemoteProcess:
        """Start a command that is spoken to while it runs; its stderr goes to the file (0600).

        Raises:
            ConnectError, DeadlineError: it could not be started.
            OSError: the log file cannot be written.
        """
        descriptor = os.open(stderr_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with _translated(self.host.name, f"start `{shlex.join(argv)}`"):
                channel = self._execute(argv)
        except BaseException:
            os.close(descriptor)
            raise
        door = functools.partial(_translated, self.host.name)
        return RemoteProcess(self.host.name, channel, descriptor, door)

    def _execute(self, argv: Sequence[str]) -> paramiko.Channel:
        channel = self._transport.open_session(timeout=_CHANNEL_S)
        with _closed_when_late(channel):
            channel.exec_command(shlex.join(argv))
        return channel

    def put(self, data: bytes, path: str, *, mode: int) -> None:
        """Write a file on the node: under that path it is whole or not there at all."""
        with self._files(f"write {path}") as sftp:
            files.put(sftp, data, path, mode)

    def get(self, path: str) -> bytes:
        """The content of a file on the node."""
        with self._files(f"read {path}") as sftp:
            return files.get(sftp, path)

    def exists(self, path: str) -> bool:
        """Whether the path is there; a symbolic link to nowhere is not."""
        with self._files(f"look at {path}") as sftp:
            return files.exists(sftp, path)

    def remove(self, path: str) -> None:
        """Remove a file, or an empty directory; one that is gone already is no error."""
        with self._files(f"remove {path}") as sftp:
            files.remove(sftp, path)

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """Make a directory and its parents; one that exists must be ours, and gets this mode."""
        with self._files(f"make directory {path}") as sftp:
            files.mkdir(sftp, path, mode)

    @contextlib.contextmanager
    def _files(self, doing: str) -> Iterator[paramiko.SFTPClient]:
        """The SFTP client, kept open, for one caller at a time: it is not safe for more."""
        with _remote_file(self.host.name, doing), self._sftp_lock:
            if self._sftp is None:
                channel = self._transport.open_session(timeout=_CHANNEL_S)
                channel.settimeout(_CHANNEL_S)
                with _closed_when_late(channel):
                    channel.invoke_subsystem("sftp")
                    self._sftp = paramiko.SFTPClient(channel)
            try:
                yield self._sftp
            except (TimeoutError, EOFError):
                self._sftp.close()  # a late answer must not be taken for the next request's
                self._sftp = None
                raise

    def close(self) -> None:
        """End the connection and with it every blocked call; from any thread, more than once."""
        self._transport.close()
        if self._proxy is not None:
            self._proxy.close()


@contextlib.contextmanager
def _closed_when_late(channel: paramiko.Channel) -> Iterator[None]:
    """paramiko waits for ever for the answer to a channel request: bound it."""
    late = threading.Event()

    def close() -> None:
        late.set()
        channel.close()

    timer = threading.Timer(_CHANNEL_S, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    except paramiko.SSHException as exc:
        if late.is_set():
            raise TimeoutError from exc
        raise
    finally:
        timer.cancel()


def _connected(
    host: Host, settings: Settings, options: SshOptions
) -> tuple[paramiko.Transport, Proxy | None, int]:
    """The transport after key exchange, its proxy, and the number of attempts it took."""
    started = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return (*_handshake(host, settings, options), attempt)
        except _BannerError as exc:
            pause = _FIRST_PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
            spent = time.monotonic() - started
            if attempt == _ATTEMPTS or spent + pause > options.banner_timeout_s:
                tried = f"{exc.what} ({attempt} attempts in {spent:.1f} s)"
                raise ConnectError(tried, host=host.name, remedy=exc.remedy) from exc
            _log.info("%s: %s; again in %.1f s", host.name, exc.what, pause)
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _handshake(
    host: Host, settings: Settings, options: SshOptions
) -> tuple[paramiko.Transport, Proxy | None]:
    timeout_s = settings.connect_timeout_s or options.connect_timeout_s
    accept_new = options.host_key_policy == "accept-new"
    argv = dial.proxy_argv(settings, accept_new=accept_new, timeout_s=timeout_s)
    proxy = Proxy(argv, host.name) if argv else None
    started = time.monotonic()
    try:
        link = proxy.socket if proxy else dial.dial(host, settings, timeout_s)
        return _negotiated(link, settings, options), proxy
    except BaseException as exc:
        late = time.monotonic() - started >= options.banner_timeout_s
        said = proxy.said() if proxy else ""
        if proxy is not None:
            proxy.close()
        if not isinstance(exc, (paramiko.SSHException, EOFError, OSError)):
            raise
        if late:
            raise dial.too_late(host, settings) from exc
        hung_up = isinstance(exc, (EOFError, ConnectionError)) or "protocol banner" in str(exc)
        error, again = dial.failed(host, settings, words=str(exc), hung_up=hung_up, said=said)
        if again:
            raise _BannerError(error.what, host=host.name, remedy=error.remedy) from exc
        raise error from exc


def _negotiated(link: socket.socket, settings: Settings, options: SshOptions) -> paramiko.Transport:
    """The transport after banner and key exchange; closed, and `link` with it, if they fail."""
    transport = paramiko.Transport(link)
    transport.banner_timeout = transport.handshake_timeout = options.banner_timeout_s
    transport.auth_timeout = options.auth_timeout_s
    transport.channel_timeout = _CHANNEL_S
    try:
        _prefer(transport, hostkey.known_types(settings))
        limit_s = 2 * options.banner_timeout_s
        transport.start_client(timeout=limit_s)
        if transport.initial_kex_done:
            return transport
    except BaseException:
        transport.close()
        link.close()
        raise
    transport.close()
    raise TimeoutError(f"no key exchange within {limit_s:g} s")


def _prefer(transport: paramiko.Transport, known: Sequence[str]) -> None:
    """Ask first for a host key of a type that can be checked."""
    security = transport.get_security_options()
    offered = list(security.key_types)
    first = [name for kind in known for name in offered if _is_type(name, kind)]
    security.key_types = (*first, *(name for name in offered if name not in first))


def _is_type(algorithm: str, key_type: str) -> bool:
    return algorithm == key_type or (key_type == "ssh-rsa" and algorithm.startswith("rsa-sha2-"))


class _Agent(AgentSSH):
    """An ssh agent, by the path of its socket; with an empty path, one that holds no key."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if path:
            try:
                self._socket.settimeout(_AGENT_S)
                self._socket.connect(path)
                self._connect(self._socket)  # type: ignore[attr-defined]
            except BaseException:
                self._socket.close()
                raise

    def close(self) -> None:
        self._socket.close()


@dataclass
class _Login:
    """One attempt to authenticate: what was offered, and what became of it."""

    host: Host
    settings: Settings
    transport: paramiko.Transport
    timeout_s: float
    notes: list[str]

    def run(self) -> None:
        """Offer the keys that ssh would, in its order; ConnectError if none is taken."""
        try:
            self.transport.auth_none(self.settings.user)
        except paramiko.BadAuthenticationType as exc:
            if "publickey" not in exc.allowed_types:
                raise self._refused(f"it takes only {', '.join(exc.allowed_types)}") from exc
        else:
            return
        with contextlib.closing(self._agent()) as agent:
            for label, key in self._keys(agent.get_keys()):
                if self._accepted(label, key):
                    return
        raise self._refused("; ".join(self.notes) or "there is no key to offer")

    def _accepted(self, label: str, key: paramiko.PKey) -> bool:
        started = time.monotonic()
        try:
            further = self.transport.auth_publickey(self.settings.user, key)
        except paramiko.AuthenticationException as exc:
            if time.monotonic() - started >= self.timeout_s:
                raise TimeoutError from exc
            self.notes.append(f"{label} refused")
            if not self.transport.is_active():
                raise self._refused("; ".join([*self.notes, "then it hung up"])) from exc
            return False
        if further:
            raise self._refused(f"{label} taken, but it also wants {', '.join(further)}")
        return True

    def _keys(self, held: Sequence[paramiko.PKey]) -> Iterator[tuple[str, paramiko.PKey]]:
        """The inventory's own key, then the agent's, then the identity files."""
        held_blobs = {key.asbytes(): key for key in held}
        files = list(self.settings.identity_files)
        first = [files.pop(0)] if self.host.identity_file else []
        offered: set[bytes] = set()
        yield from self._from_files(first, held_blobs, offered)
        if not self.settings.identities_only:
            for key in held:
                if key.asbytes() not in offered:
                    offered.add(key.asbytes())
                    yield f"agent key {key.fingerprint}", key
        yield from self._from_files(files, held_blobs, offered)

    def _from_files(
        self, files: Sequence[str], held: Mapping[bytes, paramiko.PKey], offered: set[bytes]
    ) -> Iterator[tuple[str, paramiko.PKey]]:
        for file in files:
            key = held.get(_public_blob(file)) or self._load(file)
            if key is not None and key.asbytes() not in offered:
                offered.add(key.asbytes())
                yield file, key

    def _load(self, file: str) -> paramiko.PKey | None:
        if not Path(file).exists():
            if file == self.host.identity_file:
                self.notes.append(f"{file} does not exist")
            return None
        try:
            return paramiko.PKey.from_path(file)
        except (TypeError, paramiko.PasswordRequiredException):
            self.notes.append(f"{file} needs its passphrase (ssh-add it)")
        except (ValueError, OSError, UnsupportedAlgorithm) as exc:
            self.notes.append(f"{file} cannot be read: {exc}")
        except (paramiko.SSHException, UnknownKeyType) as exc:
            self.notes.append(f"{file} is no key paramiko can use: {exc}")
        return None

    def _agent(self) -> _Agent:
        path = self.settings.identity_agent
        try:
            return _Agent(path)
        except (OSError, EOFError, paramiko.SSHException) as exc:
            self.notes.append(f"the agent at {path} does not answer ({type(exc).__name__})")
            return _Agent("")

    def _refused(self, why: str) -> ConnectError:
        return ConnectError(
            f"authentication as {self.settings.target} failed: {why}",
            host=self.host.name,
            remedy=f"let `ssh -p {self.settings.port} {self.settings.user}@{self.host.address}` "
            "work without a question first: ansible_user, ansible_ssh_private_key_file, ssh-add, "
            "or IdentitiesOnly where an agent offers too many keys",
        )


def _public_blob(file: str) -> bytes:
    """The public half of an identity file, b"" where there is none to read."""
    public = Path(file if file.endswith(".pub") else f"{file}.pub")
    with contextlib.suppress(OSError, ValueError):
        return base64.b64decode(public.read_text().split()[1:2][0])
    return b""


def _read_config(address: str, config_file: str) -> Mapping[str, Sequence[str]]:
    """paramiko's reading of the configuration, for machines without an ssh program."""
    path = Path(config_file or "~/.ssh/config").expanduser()
    if not config_file and not path.exists():
        return {}
    try:
        found = paramiko.SSHConfig.from_path(str(path)).lookup(address)
    except (OSError, paramiko.ConfigParseError) as exc:
        raise InputError(f"{path}: {exc}") from exc
    words: Mapping[str, str | list[str] | None] = dict(found)
    return {
        key: [value] if isinstance(value, str) else value
        for key, value in words.items()
        if value is not None
    }
