"""KVM or TCG: KVM only where a node has been seen to boot with it.

That /dev/kvm opens proves little: in some virtual machines a stock kernel hangs under it. So a
node is booted once, for a short time, and the verdict kept for as long as kernel, QEMU and image
stay what they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import InputError, LabError

KVM = Path("/dev/kvm")
PROBE_S = 8.0


@dataclass(frozen=True)
class Verdict:
    """Whether KVM is used, and why."""

    usable: bool
    reason: str


def checked(requested: str) -> str:
    if requested not in {"auto", "kvm", "tcg"}:
        raise InputError(f"{requested!r} is no accelerator", remedy="auto, kvm or tcg")
    return requested


def choose(requested: str, cache: Path, key: str, probe: Callable[[], bool]) -> Verdict:
    """`probe` tells whether a node booted with KVM within PROBE_S; LabError: it could not start.

    Only what a boot showed is kept. An explicit "kvm" is probed anew unless it is known to work,
    so that a stale refusal can be lifted.
    """
    if requested == "tcg":
        return Verdict(usable=False, reason="TCG was asked for")
    if not os.access(KVM, os.R_OK | os.W_OK):
        verdict = Verdict(usable=False, reason=f"{KVM} cannot be opened")
    else:
        verdict = _probed(requested, cache / f"kvm-{key}.json", probe)
    if requested == "kvm" and not verdict.usable:
        raise LabError(f"KVM was asked for: {verdict.reason}", remedy="--accel tcg")
    return verdict


def verdict_key(qemu_version: str, image_digest: str) -> str:
    facts = "\n".join((platform.release(), platform.version(), qemu_version, image_digest))
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _probed(requested: str, file: Path, probe: Callable[[], bool]) -> Verdict:
    known = _known(file)
    if known is not None and (known.usable or requested != "kvm"):
        return known
    try:
        booted = probe()
    except LabError as exc:
        return Verdict(usable=False, reason=f"QEMU does not start with KVM: {exc.what}")
    reason = f"a node {'booted' if booted else 'did not boot'} with KVM within {PROBE_S:.0f} s"
    verdict = Verdict(usable=booted, reason=reason)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(
        json.dumps({"usable": verdict.usable, "reason": verdict.reason}), encoding="utf-8"
    )
    temporary.replace(file)
    return verdict


def _known(file: Path) -> Verdict | None:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return Verdict(usable=bool(document["usable"]), reason=str(document["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
