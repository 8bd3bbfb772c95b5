"""A node's command line, initrd and kernel."""

from __future__ import annotations

import itertools
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rdmabench.errors import LabError
from rdmabench.lab import initrd
from rdmabench.lab.image import Image, uncompressed_kernel
from rdmabench.lab.qemu import Guest


def _guest() -> Guest:
    return Guest(
        name="node2",
        index=2,
        vcpus=1,
        memory_mib=768,
        icount=False,
        accel="tcg",
        ssh_port=20002,
        token="t0ken",
        directory=Path("/state/lab"),
        sockets=Path("/tmp/rdmabench-x"),
        image=Image(directory=Path("/cache/a,b"), digest="0" * 16),
    )


def _value(argv: list[str], option: str, containing: str = "") -> str:
    values = [after for name, after in itertools.pairwise(argv) if name == option]
    return next(value for value in values if containing in value)


def test_a_node_is_reached_over_loopback_alone() -> None:
    management = _value(_guest().argv, "-netdev", "user,")
    assert "restrict=on" in management
    assert "hostfwd=tcp:127.0.0.1:20002-:22" in management


def test_the_data_nic_has_room_for_a_roce_mtu_of_4096() -> None:
    argv = _guest().argv
    assert "host_mtu=4200" in _value(argv, "-device", "netdev=data")
    assert "remote.path=/tmp/rdmabench-x/switch.sock" in _value(argv, "-netdev", "dgram,")


def test_every_node_carries_the_labs_token_and_its_own_addresses() -> None:
    first, second = replace(_guest(), name="node1", index=1).argv, _guest().argv
    assert "t0ken" in _value(first, "-name")
    assert _value(first, "-device", "netdev=data") != _value(second, "-device", "netdev=data")


def test_a_comma_in_a_path_does_not_end_it() -> None:
    assert _value(_guest().argv, "-drive").startswith("file=/cache/a,,b/root.erofs,format=raw")


def test_counted_instructions_run_on_one_vcpu_of_tcg() -> None:
    argv = replace(_guest(), icount=True).argv
    assert _value(argv, "-icount") == "shift=0,sleep=off"
    assert _value(argv, "-smp") == "1"
    assert _value(argv, "-accel").startswith("tcg,thread=single")


def test_kvm_gets_the_hosts_processor() -> None:
    argv = replace(_guest(), accel="kvm", vcpus=2).argv
    assert (_value(argv, "-accel"), _value(argv, "-cpu"), _value(argv, "-smp")) == (
        "kvm",
        "host",
        "2",
    )


def test_cpio_unpacks_a_nodes_files_with_their_bytes(tmp_path: Path) -> None:
    files = {"node.conf": b"NODE=node1\n", "host_key": bytes(range(256)), "empty": b""}
    archive = initrd.cpio(files)
    subprocess.run(["cpio", "-id", "--quiet"], input=archive, cwd=tmp_path, check=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "lab").iterdir()} == files
    assert (tmp_path / "lab" / "host_key").stat().st_mode & 0o777 == 0o600


def _bzimage(payload: bytes) -> bytes:
    image = bytearray(3 * 512)
    image[0x1F1] = 2
    image[0x202:0x206] = b"HdrS"
    image[0x248:0x250] = (16).to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    return bytes(image) + bytes(16) + payload


def test_an_xz_kernel_is_unpacked_and_its_length_word_ignored() -> None:
    kernel = b"\x7fELF" + b"kernel" * 100
    payload = lzma.compress(kernel) + len(kernel).to_bytes(4, "little")
    assert uncompressed_kernel(_bzimage(payload)) == kernel


def test_a_kernel_packed_otherwise_is_booted_as_it_is() -> None:
    packed = _bzimage(b"\x28\xb5\x2f\xfd zstd")
    assert uncompressed_kernel(packed) == packed


def test_a_file_that_is_no_kernel_is_refused() -> None:
    with pytest.raises(LabError, match="no bzImage"):
        uncompressed_kernel(bytes(4096))
