"""KVM is used only where a node has been seen to boot with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmabench.errors import LabError
from rdmabench.lab import accel


class _Probe:
    """A boot with a known end, counted."""

    def __init__(self, *, boots: bool, starts: bool = True) -> None:
        self.boots = boots
        self.starts = starts
        self.tries = 0

    def __call__(self) -> bool:
        self.tries += 1
        if not self.starts:
            raise LabError("QEMU ended at once: no such device")
        return self.boots


@pytest.fixture(autouse=True)
def kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(accel, "KVM", device)
    return device


@pytest.mark.parametrize("boots", [True, False])
def test_a_boot_is_tried_once_and_its_verdict_kept(tmp_path: Path, boots: bool) -> None:
    probe = _Probe(boots=boots)
    for _ in range(3):
        assert accel.choose("auto", tmp_path, "key", probe).usable is boots
    assert probe.tries == 1


def test_another_kernel_qemu_or_image_is_tried_anew(tmp_path: Path) -> None:
    probe = _Probe(boots=True)
    for digest in ("a", "b"):
        accel.choose("auto", tmp_path, accel.verdict_key("QEMU 7.2", digest), probe)
    assert probe.tries == 2


def test_a_qemu_that_does_not_start_proves_nothing_for_tomorrow(tmp_path: Path) -> None:
    verdict = accel.choose("auto", tmp_path, "key", _Probe(boots=True, starts=False))
    assert not verdict.usable
    assert "no such device" in verdict.reason
    assert accel.choose("auto", tmp_path, "key", _Probe(boots=True)).usable


def test_without_a_kvm_device_nothing_is_tried(tmp_path: Path, kvm: Path) -> None:
    kvm.unlink()
    probe = _Probe(boots=True)
    assert not accel.choose("auto", tmp_path, "key", probe).usable
    assert probe.tries == 0


def test_asking_for_kvm_lifts_a_stale_refusal_or_says_why_not(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="did not boot"):
        accel.choose("kvm", tmp_path, "key", _Probe(boots=False))
    assert accel.choose("kvm", tmp_path, "key", _Probe(boots=True)).usable


def test_a_damaged_verdict_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "kvm-key.json").write_text("{", encoding="utf-8")
    assert accel.choose("auto", tmp_path, "key", _Probe(boots=True)).usable
