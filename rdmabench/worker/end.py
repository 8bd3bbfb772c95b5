"""One end of one case: what a probe module works on, whatever the transport and the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rdmabench.errors import ProbeError
from rdmabench.model import Case, Role
from rdmabench.worker.engine import Engine, Link
from rdmabench.worker.memory import LaneSpec, pattern, wrong_bytes


@dataclass(frozen=True)
class Numbers:
    """What a probe measured on one end; all zero where that end was passive."""

    elapsed_ns: int = 0
    message_count: int = 0
    payload_bytes: int = 0
    payload_bytes_per_qp: tuple[int, ...] = ()
    samples: bytes = b""
    sample_kind: str = ""


class End:
    """Buffers, pattern and engine of one case on one end."""

    def __init__(self, *, link: Link, case: Case, engine: Engine) -> None:
        self.link = link
        self.case = case
        self.engine = engine
        self.role = link.role
        self.parameters = case.parameters

    @property
    def total(self) -> int:
        """Messages per lane, the warm-up included."""
        return self.parameters.warmup + self.parameters.iterations

    @property
    def _lanes(self) -> tuple[LaneSpec, ...]:
        return self.link.lanes(
            size_bytes=self.parameters.size_bytes, count=self.parameters.qps, reads_remote=False
        )

    def _pattern(self, sender: Role, lane: int) -> bytes:
        seed = f"{self.case.id} {sender.value} {lane}"
        return pattern(seed, self.parameters.size_bytes)

    def fill(self) -> None:
        """This end's pattern into the sending half, zeros into the receiving half."""
        size, view = self.parameters.size_bytes, self.link.memory.view
        for index, lane in enumerate(self._lanes):
            view[lane.send_offset : lane.send_offset + size] = self._pattern(self.role, index)
            view[lane.recv_offset : lane.recv_offset + size] = bytes(size)

    def check_received(self, *, last_byte: Optional[int] = None) -> int:
        """Compare what arrived with the other end's pattern; returns the bytes compared.

        `last_byte` is what a polled write must have left in the last place.

        Raises:
            ProbeError: wrong bytes, with how many and on which queue pair.
        """
        sender = Role.RESPONDER if self.role is Role.INITIATOR else Role.INITIATOR
        size, view = self.parameters.size_bytes, self.link.memory.view
        for index, lane in enumerate(self._lanes):
            expected = self._pattern(sender, index)
            if last_byte is not None:
                expected = expected[:-1] + bytes([last_byte])
            wrong = wrong_bytes(view[lane.recv_offset : lane.recv_offset + size], expected)
            if wrong:
                raise ProbeError(
                    f"{self.parameters.what}: {wrong} of {size} bytes arrived wrong on queue pair "
                    f"{index}",
                    device=self.link.endpoint.device,
                    remedy="do not trust this path with data: check firmware, PCIe errors "
                    "(`dmesg`) and the GPU or host memory involved",
                )
        return size * self.parameters.qps
