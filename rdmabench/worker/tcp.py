"""The TCP baseline's link: connected sockets over the data network, no verbs.

The responder listens on its data address only, for the one peer that knows the link's token, and
closes the listener as soon as all streams are there.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from typing import Optional

from rdmabench.errors import DeviceError
from rdmabench.model import Endpoint, LinkAddress, LinkParameters, Role
from rdmabench.worker.memory import LaneSpec, Memory, lane_stride

_TOKEN_BYTES = 32
_CONNECT_LIMIT_S = 20.0


class TcpLink:
    """One end of `parameters.qps` TCP streams."""

    transport = "TCP"
    inline_bytes = 0
    mtu_bytes = 0

    def __init__(self, *, endpoint: Endpoint, role: Role, parameters: LinkParameters) -> None:
        self.endpoint = endpoint
        self.role = role
        self.parameters = parameters
        self.mtu_bytes = endpoint.active_mtu_bytes
        self.memory = Memory(parameters.buffer_bytes)
        self.streams: list[socket.socket] = []
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener: Optional[socket.socket] = None
        self._acceptor: Optional[threading.Thread] = None
        self._accept_error = ""
        if role is Role.RESPONDER:
            self._listen()

    def _listen(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener = listener
        try:
            listener.bind((self.endpoint.address, 0))
            listener.listen(self.parameters.qps)
        except OSError as exc:
            listener.close()
            raise DeviceError(
                f"cannot listen on {self.endpoint.address}: {exc.strerror}",
                device=self.endpoint.device,
            ) from exc
        listener.settimeout(_CONNECT_LIMIT_S)
        self._acceptor = threading.Thread(target=self._accept, daemon=True, name="accept")
        self._acceptor.start()

    @property
    def address(self) -> LinkAddress:
        """What the other end needs."""
        port = self._listener.getsockname()[1] if self._listener else 0
        return LinkAddress(
            mtu_bytes=self.endpoint.active_mtu_bytes,
            tcp_address=self.endpoint.address,
            tcp_port=port,
            tcp_token=self._token.hex(),
        )

    def connect(self, remote: LinkAddress) -> None:
        """The initiator connects every stream; the responder waits until all have come.

        Raises:
            DeviceError: they did not.
        """
        if self.role is Role.INITIATOR:
            for index in range(self.parameters.qps):
                self.streams.append(self._dial(remote, index))
        elif self._acceptor is not None:
            self._acceptor.join(_CONNECT_LIMIT_S)
            if self._accept_error or len(self.streams) < self.parameters.qps:
                raise DeviceError(
                    self._accept_error or "the peer's streams did not arrive",
                    device=self.endpoint.device,
                    remedy="check that the data network carries TCP between the two nodes",
                )

    def _dial(self, remote: LinkAddress, index: int) -> socket.socket:
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            stream.settimeout(_CONNECT_LIMIT_S)
            stream.bind((self.endpoint.address, 0))
            stream.connect((remote.tcp_address, remote.tcp_port))
            stream.sendall(bytes.fromhex(remote.tcp_token) + bytes([index]))
        except OSError as exc:
            stream.close()
            raise DeviceError(
                f"no TCP connection from {self.endpoint.address} to {remote.tcp_address}: {exc}",
                device=self.endpoint.device,
                remedy="check addresses and routes of the data network, and firewalls on it",
            ) from exc
        return _ready(stream)

    def _accept(self) -> None:
        listener = self._listener
        if listener is None:
            return
        arrived: dict[int, socket.socket] = {}
        deadline = time.monotonic() + _CONNECT_LIMIT_S
        try:
            while len(arrived) < self.parameters.qps and time.monotonic() < deadline:
                stream, _peer = listener.accept()
                self._admit(stream, arrived)
        except OSError as exc:
            self._accept_error = f"waiting for the peer's streams: {exc}"
        finally:
            listener.close()
        self.streams = [arrived[index] for index in sorted(arrived)]

    def _admit(self, stream: socket.socket, arrived: dict[int, socket.socket]) -> None:
        """Only the peer knows the token; anybody else is hung up on."""
        stream.settimeout(5.0)
        greeting = b""
        try:
            while len(greeting) < _TOKEN_BYTES + 1:
                piece = stream.recv(_TOKEN_BYTES + 1 - len(greeting))
                if not piece:
                    break
                greeting += piece
        except OSError:
            greeting = b""
        if hmac.compare_digest(greeting[:_TOKEN_BYTES], self._token):
            arrived[greeting[_TOKEN_BYTES]] = _ready(stream)
        else:
            stream.close()

    def lanes(self, *, size_bytes: int, count: int, reads_remote: bool) -> tuple[LaneSpec, ...]:
        """Buffers of the first `count` streams; there is no remote memory."""
        if reads_remote or count > len(self.streams):
            raise DeviceError(
                f"a case of {count} streams on a link of {len(self.streams)}",
                device=self.endpoint.device,
            )
        stride, half = lane_stride(size_bytes), self.memory.half_bytes
        return tuple(
            LaneSpec(
                handle=self.streams[i].fileno(),
                send_offset=i * stride,
                recv_offset=half + i * stride,
            )
            for i in range(count)
        )

    def close(self) -> None:
        """Hangs up."""
        if self._listener is not None:
            self._listener.close()
        for stream in self.streams:
            stream.close()


def _ready(stream: socket.socket) -> socket.socket:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setblocking(False)
    return stream
