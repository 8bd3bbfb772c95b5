"""Every error that rdmabench raises on purpose: one root to catch, one line for a person to read.

- RdmabenchError
  - InputError            an inventory, plan, run or option that cannot be used (exit 2)
  - SetupError            this machine lacks something the command needs (exit 4)
  - LabError              the soft-RoCE lab could not be built, started or stopped (exit 4)
  - StorageError          a result could not be kept: disk full, no permission (exit 4)
  - HostError             one node could not take part (exit 4)
    - ConnectError        no SSH connection: unreachable, refused, authentication
    - HostKeyError        the host key is unknown or is not the known one
    - DeadlineError       the node did not answer in time
    - ProtocolError       the node answered something that is not our protocol
    - WorkerLostError     the worker ended while it was needed
    - DeviceError         an RDMA device or port cannot be used
      - VerbsError        a verbs call failed; carries errno
      - UnsupportedError  the device lacks a capability: a result of its own, not a failure
    - ProbeError          the probe ran and did not end well (bad completion, wrong bytes, deadline)

Standard library only, Python 3.9: this module is pushed to nodes.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_DONE = 0
EXIT_DEFECT = 1
EXIT_USAGE = 2
EXIT_LIMITS_MISSED = 3
EXIT_INCOMPLETE = 4
EXIT_INTERRUPTED = 130


class RdmabenchError(Exception):
    """What failed, on which host and device, and what to do about it."""

    exit_code: ClassVar[int] = EXIT_INCOMPLETE

    def __init__(self, what: str, *, host: str = "", device: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.host = host
        self.device = device
        self.remedy = remedy

    @property
    def brief(self) -> str:
        """What failed, on which host and device; without the remedy."""
        subject = " ".join(part for part in (self.host, self.device) if part)
        return f"{subject}: {self.what}" if subject else self.what

    def __str__(self) -> str:
        return f"{self.brief}\n  try: {self.remedy}" if self.remedy else self.brief


class InputError(RdmabenchError):
    """The user's input cannot be used: a file, a key, an option."""

    exit_code: ClassVar[int] = EXIT_USAGE


class SetupError(RdmabenchError):
    """This machine lacks a program, a package or a right that the command needs."""


class LabError(RdmabenchError):
    """The soft-RoCE lab could not be built, started, reached or stopped."""


class StorageError(RdmabenchError):
    """A result could not be written or read back."""


class HostError(RdmabenchError):
    """One node cannot take part; the others go on."""


class ConnectError(HostError):
    """No SSH connection to the node."""


class HostKeyError(ConnectError):
    """The node's host key is unknown, or differs from the known one."""


class DeadlineError(HostError):
    """The node did not answer before the deadline."""


class ProtocolError(HostError):
    """The node sent something that is not a message of this protocol version."""


class WorkerLostError(HostError):
    """The worker, or the connection to it, ended while it was needed."""


class DeviceError(HostError):
    """An RDMA device or port is absent, inactive or not usable."""


class VerbsError(DeviceError):
    """A verbs call failed; `errno` is the system's number, 0 where there is none."""

    def __init__(
        self, what: str, *, errno: int = 0, host: str = "", device: str = "", remedy: str = ""
    ) -> None:
        super().__init__(what, host=host, device=device, remedy=remedy)
        self.errno = errno


class UnsupportedError(DeviceError):
    """The device, or the node's rdma-core, lacks a capability that the probe needs."""


class ProbeError(HostError):
    """The probe ended badly: a failed completion, wrong bytes, its own deadline."""
