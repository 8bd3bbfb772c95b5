"""What this machine must have before it can carry the lab, and how to get what it lacks."""

from __future__ import annotations

import os
import platform
import shutil

from rdmabench.errors import SetupError

# A Debian package, and a program that only it gives.
_PROGRAMS = (
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("mmdebstrap", "mmdebstrap"),
    ("erofs-utils", "mkfs.erofs"),
    ("cpio", "cpio"),
    ("kmod", "modprobe"),
    ("openssh-client", "ssh-keygen"),
)
_NON_ROOT_PROGRAMS = (("uidmap", "newuidmap"),)  # mmdebstrap's user namespace
_SEARCHED = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # often absent from a user's PATH


def search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SEARCHED))


def missing_packages() -> tuple[str, ...]:
    """Debian packages without which the lab cannot be built or started here."""
    wanted = _PROGRAMS if os.geteuid() == 0 else _PROGRAMS + _NON_ROOT_PROGRAMS
    path = search_path()
    return tuple(package for package, program in wanted if not shutil.which(program, path=path))


def require() -> None:
    if platform.machine() != "x86_64":
        raise SetupError(
            f"the soft-RoCE lab runs on x86_64 only, this machine is {platform.machine()}",
            remedy="use another machine, or real nodes with -i INVENTORY",
        )
    if missing := missing_packages():
        raise SetupError(
            f"the soft-RoCE lab needs programs of {', '.join(missing)}",
            remedy=f"apt-get install --no-install-recommends {' '.join(missing)}",
        )
