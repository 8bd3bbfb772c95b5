"""known_hosts as OpenSSH reads it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rdmabench.orchestrator.knownhosts import (
    Verdict,
    append,
    fingerprint,
    judge,
    key_types,
    lookup_name,
    read,
)


def entries_of(tmp_path: Path, text: str) -> tuple:  # type: ignore[type-arg]
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return read([str(file), str(tmp_path / "no-such-file")])


def test_ports_of_one_address_are_hosts_of_their_own(tmp_path: Path) -> None:
    """Case F05: one address behind two ports, and a node that was reinstalled."""
    entries = entries_of(
        tmp_path,
        "192.0.2.10 ssh-ed25519 AAAA_KEY_A\n"
        "[192.0.2.10]:2222 ssh-ed25519 AAAA_KEY_B\n"
        "192.0.2.11 ssh-ed25519 AAAA_OLD\n",
    )
    attempts = (
        ("192.0.2.10", 22, "AAAA_KEY_A", Verdict.KNOWN),
        ("192.0.2.10", 2222, "AAAA_KEY_B", Verdict.KNOWN),
        ("192.0.2.11", 22, "AAAA_NEW", Verdict.CHANGED),
        ("192.0.2.10", 2222, "AAAA_KEY_C", Verdict.CHANGED),
        ("192.0.2.10", 22, "AAAA_KEY_B", Verdict.CHANGED),
        ("192.0.2.12", 22, "AAAA_KEY_A", Verdict.UNKNOWN),
    )
    for host, port, key, verdict in attempts:
        assert judge(entries, lookup_name(host, port), key).verdict is verdict
    changed = judge(entries, "192.0.2.11", "AAAA_NEW")
    assert changed.entries[0].where == f"{tmp_path}/known_hosts:3"


@pytest.mark.parametrize(
    ("line", "name", "verdict"),
    [
        ("node* ssh-rsa K", "node7", Verdict.KNOWN),
        ("node?,!node7 ssh-rsa K", "node7", Verdict.UNKNOWN),
        ("node?,!node7 ssh-rsa K", "node8", Verdict.KNOWN),
        ("NODE7,192.0.2.7 ssh-rsa K a comment", "node7", Verdict.KNOWN),
        ("[node*]:2222 ssh-rsa K", "[node7]:2222", Verdict.KNOWN),
        ("[node7]:2222 ssh-rsa K", "node7", Verdict.UNKNOWN),
        ("@revoked node7 ssh-rsa K", "node7", Verdict.REVOKED),
        ("@revoked * ssh-rsa OTHER", "node7", Verdict.UNKNOWN),
        ("@cert-authority node7 ssh-rsa OTHER", "node7", Verdict.UNKNOWN),
        ("node7 ssh-rsa OTHER", "node7", Verdict.CHANGED),
        ("node7 ssh-ed25519 OTHER", "node7", Verdict.CHANGED),
        ("node7 ssh-ed25519 OTHER\nnode7 ssh-rsa K", "node7", Verdict.KNOWN),
        ("node7 ssh-rsa K\n@revoked node7 ssh-rsa K", "node7", Verdict.REVOKED),
        ("# node7 ssh-rsa K\n\nnode7\n|1|broken ssh-rsa K", "node7", Verdict.UNKNOWN),
    ],
)
def test_a_line_means_what_it_means_to_openssh(
    tmp_path: Path, line: str, name: str, verdict: Verdict
) -> None:
    assert judge(entries_of(tmp_path, line), name, "K").verdict is verdict


def test_a_name_without_its_port_can_confirm_a_key_but_not_deny_it(tmp_path: Path) -> None:
    entries = entries_of(tmp_path, "node7 ssh-rsa K\n")
    assert judge(entries, "[node7]:2222", "K", plain_name="node7").verdict is Verdict.KNOWN
    assert judge(entries, "[node7]:2222", "L", plain_name="node7").verdict is Verdict.UNKNOWN


def test_the_types_of_a_host_come_in_the_file_s_order(tmp_path: Path) -> None:
    entries = entries_of(tmp_path, "a ssh-rsa K\n@revoked a ssh-dss L\na,b ssh-ed25519 M\n")
    assert key_types(entries, ["a"]) == ("ssh-rsa", "ssh-ed25519")
    assert key_types(entries, ["b", "c"]) == ("ssh-ed25519",)


def test_an_appended_key_is_found_again_hashed_or_not(tmp_path: Path) -> None:
    file = str(tmp_path / "ssh" / "known_hosts")
    append(file, "node1", "ssh-ed25519", "K", hashed=False)
    append(file, "[node2]:2222", "ssh-ed25519", "L", hashed=True)
    text = Path(file).read_text()
    assert text.startswith("node1 ssh-ed25519 K\n|1|")
    assert "node2" not in text
    assert judge(read([file]), "[node2]:2222", "L").verdict is Verdict.KNOWN
    assert Path(file).stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_openssh_agrees_on_fingerprint_and_hash(tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True
    )
    key_type, key, *_ = (tmp_path / "k.pub").read_text().split()
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "k.pub")], check=True, capture_output=True, text=True
    ).stdout
    assert fingerprint(key) in shown
    file = tmp_path / "known_hosts"
    append(str(file), "node9", key_type, key, hashed=True)
    found = subprocess.run(
        ["ssh-keygen", "-F", "node9", "-f", str(file)], check=True, capture_output=True, text=True
    ).stdout
    assert key in found


def test_a_key_that_is_no_base64_has_no_fingerprint() -> None:
    assert "cannot be decoded" in fingerprint("AAAA_KEY")
