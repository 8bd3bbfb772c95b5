"""Effective ssh settings, from OpenSSH itself and without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rdmabench.errors import InputError, SetupError
from rdmabench.model import Host
from rdmabench.orchestrator.dial import proxy_argv
from rdmabench.orchestrator.ssh import _read_config
from rdmabench.orchestrator.sshconfig import Settings, effective

CONFIG = """
Include {dir}/more
Host n*
  HostName %h.mgmt
  Port 2222
  IdentityFile %d/k_%n_%r
  IdentitiesOnly yes
  UserKnownHostsFile {dir}/known {dir}/other
  ConnectTimeout 7
Host *
  User bench
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    (tmp_path / "more").write_text("Host n1\n  HostKeyAlias node-one\n  ProxyJump a@b:22,c\n")
    path = tmp_path / "config"
    path.write_text(CONFIG.format(dir=tmp_path))
    return str(path)


def asked(host: Host, config: str) -> Settings:
    if shutil.which("ssh") is None:
        pytest.skip("no OpenSSH client here")
    return effective(host, config, _read_config)


def test_include_patterns_and_tokens_hold(config: str, tmp_path: Path) -> None:
    found = asked(Host(name="x", address="n1"), config)
    assert (found.hostname, found.port, found.user) == ("n1.mgmt", 2222, "bench")
    assert found.identity_files == (f"{tmp_path}/k_n1_bench",)
    assert found.user_known_hosts == (f"{tmp_path}/known", f"{tmp_path}/other")
    assert found.known_name == "node-one"
    assert found.plain_name == ""
    assert found.proxy_jump == "a@b:22,c"
    assert found.identities_only
    assert found.connect_timeout_s == 7.0
    assert found.identity_agent == "/agent"


def test_without_an_ssh_program_the_file_is_still_read(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = effective(Host(name="x", address="n2"), config, _read_config)
    assert (found.hostname, found.port, found.user) == ("n2.mgmt", 2222, "bench")
    assert found.user_known_hosts == (f"{tmp_path}/known", f"{tmp_path}/other")
    assert found.known_name == "[n2.mgmt]:2222"
    assert found.plain_name == "n2.mgmt"
    with pytest.raises(SetupError, match="OpenSSH client"):
        effective(Host(name="x", address="n2", ssh_args=("-C",)), config, _read_config)


def test_the_inventory_stands_above_the_configuration(config: str) -> None:
    host = Host(
        name="x",
        address="n1",
        port=2200,
        user="root",
        identity_file="/keys/a",
        ssh_args=("-o", "ProxyJump=none", "-o", "HostKeyAlias=other"),
    )
    found = asked(host, config)
    assert (found.port, found.user) == (2200, "root")
    assert found.identity_files[0] == "/keys/a"
    assert (found.proxy_jump, found.known_name) == ("", "other")


def test_what_ssh_refuses_is_quoted(config: str) -> None:
    with pytest.raises(InputError, match=r"(?s)x: ssh refuses its configuration: .*nonsense"):
        asked(Host(name="x", address="n1", ssh_args=("-o", "nonsense=1")), config)


def test_an_address_is_never_taken_for_an_option(config: str) -> None:
    with pytest.raises(InputError, match="ssh refuses"):
        asked(Host(name="x", address="-oProxyCommand=true"), config)


def test_a_jump_goes_through_ssh_under_the_same_policy(config: str) -> None:
    found = asked(Host(name="x", address="n1"), config)
    argv = proxy_argv(found, accept_new=False, timeout_s=9)
    assert argv[:3] == ("ssh", "-F", config)
    assert argv[-5:] == ("-J", "a@b:22", "-W", "[n1.mgmt]:2222", "ssh://c")
    assert "StrictHostKeyChecking=yes" in argv
    assert "StrictHostKeyChecking=accept-new" in proxy_argv(found, accept_new=True, timeout_s=9)
