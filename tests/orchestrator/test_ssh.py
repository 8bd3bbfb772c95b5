"""The SSH door against a real server in this process."""

from __future__ import annotations

import shutil
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rdmabench.errors import ConnectError, DeadlineError, HostError, HostKeyError, InputError
from rdmabench.orchestrator.fanout import fanout
from rdmabench.orchestrator.knownhosts import fingerprint
from rdmabench.orchestrator.remote import Completed
from rdmabench.orchestrator.ssh import Connection, SshOptions

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no OpenSSH client here")

CASE_F08 = (
    (Completed(127, b"", b"bash: orted: command not found\n"), "orted"),
    (Completed(127, b"", b"fish: Unknown command: ib_write_bw\n"), "ib_write_bw"),
    (Completed(1, b"", b"ib_write_bw: Command not found.\n"), "ib_write_bw"),
    (Completed(127, b"", b"zsh:1: command not found: ib_write_bw\n"), "ib_write_bw"),
    (Completed(127, b"", b"sh: 1: ib_write_bw: not found\n"), "ib_write_bw"),
    (Completed(1, b"", b"No such device\n"), ""),
    (Completed(0, b"", b"x: not found\n"), ""),
)


def test_a_command_returns_both_streams_and_its_status(site: Any) -> None:
    with Connection.open(site.server().host(), site.options()) as connection:
        done = connection.run(["sh", "-c", "echo out; echo err >&2; exit 3"], deadline_s=10)
    assert done == Completed(3, b"out\n", b"err\n")
    assert connection.attempts == 1


def test_words_reach_the_command_as_they_are(site: Any) -> None:
    words = ["a b", "$HOME", "it's", '"', "*", "`id`", "back\\slash", ""]
    with Connection.open(site.server().host(), site.options()) as connection:
        done = connection.run(["printf", "%s|", *words], deadline_s=10)
    assert done.stdout.decode() == "".join(f"{word}|" for word in words)


def test_stdin_larger_than_the_window_comes_back_whole(site: Any) -> None:
    sent = b"0123456789abcdef" * (1 << 18)  # 4 MiB
    with Connection.open(site.server().host(), site.options()) as connection:
        assert connection.run(["cat"], deadline_s=30, stdin=sent).stdout == sent


def test_a_flood_on_stderr_does_not_stop_stdout(site: Any) -> None:
    flood = "head -c 5000000 /dev/zero >&2; echo done"
    with Connection.open(site.server().host(), site.options()) as connection:
        done = connection.run(["sh", "-c", flood], deadline_s=30)
    assert done.stdout == b"done\n"
    assert len(done.stderr) == 5_000_000


def test_a_command_past_its_deadline_is_an_error_that_names_it(site: Any) -> None:
    with Connection.open(site.server().host(), site.options()) as connection:
        started = time.monotonic()
        with pytest.raises(DeadlineError, match=r"node1: `sleep 60`"):
            connection.run(["sleep", "60"], deadline_s=0.3)
        assert time.monotonic() - started < 5
        assert connection.run(["true"], deadline_s=10).exit_status == 0


@pytest.mark.parametrize(("done", "program"), CASE_F08)
def test_every_shell_s_way_to_miss_a_program_is_understood(done: Completed, program: str) -> None:
    assert done.missing_program == program


# ---- a process that is spoken to ----


def test_a_process_answers_while_its_stderr_floods_the_log(site: Any, tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero >&2; while read line; do echo got $line; done"
    log = tmp_path / "node1.log"
    with Connection.open(site.server().host(), site.options()) as connection:
        process = connection.start(["sh", "-c", script], stderr_log=log)
        process.write(b"one\n")
        assert process.read(10) == b"got one\n"
        assert process.exit_status is None
        with pytest.raises(DeadlineError):
            process.read(0.05)
        process.write(b"two\n")
        assert process.read(10) == b"got two\n"
        process.close()
        assert process.read(1) == b""
        assert process.exit_status == 0
    assert log.stat().st_size == 3_000_000
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_end_of_the_connection_ends_a_blocked_read(site: Any, tmp_path: Path) -> None:
    connection = Connection.open(site.server().host(), site.options())
    process = connection.start(["sleep", "60"], stderr_log=tmp_path / "log")
    threading.Timer(0.2, connection.close).start()
    assert process.read(10) == b""
    assert process.exit_status == -1
    with pytest.raises(ConnectError, match="node1"):
        process.write(b"anybody?")
    process.close()


def test_a_process_that_floods_stdout_waits_for_its_reader(site: Any, tmp_path: Path) -> None:
    with Connection.open(site.server().host(), site.options()) as connection:
        process = connection.start(
            ["head", "-c", "20000000", "/dev/zero"], stderr_log=tmp_path / "log"
        )
        time.sleep(0.2)
        total = 0
        while chunk := process.read(10):
            total += len(chunk)
        process.close()
    assert total == 20_000_000


# ---- files ----


def test_a_file_is_put_whole_with_its_mode_and_read_back(site: Any) -> None:
    server = site.server()
    data = bytes(range(256)) * 4096
    with Connection.open(server.host(), site.options()) as connection:
        connection.mkdir("cache/worker")
        connection.put(b"old", "cache/worker/w.pyz", mode=0o600)
        connection.put(data, "cache/worker/w.pyz", mode=0o700)
        assert connection.get("cache/worker/w.pyz") == data
        assert connection.exists("cache/worker/w.pyz")
    directory = server.home / "cache/worker"
    assert [path.name for path in directory.iterdir()] == ["w.pyz"]
    assert stat.S_IMODE((directory / "w.pyz").stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_remove_takes_files_and_empty_directories_and_what_is_gone(site: Any) -> None:
    server = site.server()
    with Connection.open(server.host(), site.options()) as connection:
        connection.mkdir("d")
        connection.put(b"x", "d/f", mode=0o600)
        with pytest.raises(HostError, match="node1: remove d"):
            connection.remove("d")
        connection.remove("d/f")
        connection.remove("d")
        connection.remove("d")
        assert not connection.exists("d")


def test_a_refused_file_is_no_lost_connection(site: Any) -> None:
    with Connection.open(site.server().host(), site.options()) as connection:
        with pytest.raises(HostError, match=r"node1: read nothing/here: No such file") as caught:
            connection.get("nothing/here")
        assert not isinstance(caught.value, ConnectError)
        with pytest.raises(HostError, match="write nothing/here"):
            connection.put(b"x", "nothing/here", mode=0o600)
        assert connection.alive


def test_a_link_in_place_of_the_directory_is_refused(site: Any, tmp_path: Path) -> None:
    server = site.server()
    (server.home / "cache").symlink_to(tmp_path)
    with (
        Connection.open(server.host(), site.options()) as connection,
        pytest.raises(HostError, match="something else than a directory"),
    ):
        connection.mkdir("cache")


# ---- host keys ----


def test_an_unknown_key_is_refused_with_all_that_is_needed_to_decide(site: Any) -> None:
    server = site.server(known=False)
    with pytest.raises(HostKeyError) as caught:
        Connection.open(server.host(), site.options())
    text = str(caught.value)
    assert f"127.0.0.1 port {server.port} is not known" in text
    assert fingerprint(server.host_key.get_base64()) in text
    assert str(site.known_hosts) in text
    assert f"ssh-keyscan -p {server.port} 127.0.0.1 >> {site.known_hosts}" in text
    assert server.offered == []  # no key of ours was shown to it


def test_a_changed_key_is_said_to_have_changed_under_any_policy(site: Any) -> None:
    server = site.server(known=False)
    site.learn("# a comment\n" + server.known_line(paramiko.RSAKey.generate(2048)))
    before = site.known_hosts.read_text()
    for policy in ("strict", "accept-new"):
        with pytest.raises(HostKeyError, match="has CHANGED") as caught:
            Connection.open(server.host(), site.options(host_key_policy=policy))
        text = str(caught.value)
        assert f"{site.known_hosts}:2" in text
        assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f {site.known_hosts}" in text
    assert site.known_hosts.read_text() == before


def test_accept_new_adds_the_key_once(site: Any) -> None:
    server = site.server(known=False)
    site.known_hosts.write_text("other ssh-ed25519 AAAA")  # without an end of line
    options = site.options(host_key_policy="accept-new")
    for _ in range(2):
        Connection.open(server.host(), options).close()
    assert site.known_hosts.read_text().splitlines() == [
        "other ssh-ed25519 AAAA",
        server.known_line().strip(),
    ]
    Connection.open(server.host(), site.options()).close()


def test_a_key_known_without_its_port_counts(site: Any) -> None:
    server = site.server(known=False)
    site.learn(server.known_line(name="127.0.0.1"))
    Connection.open(server.host(), site.options()).close()


def test_a_hashed_entry_and_an_alias_are_found(site: Any) -> None:
    server = site.server(known=False)
    hashed = paramiko.HostKeys.hash_host("rack1-node7")
    site.learn(server.known_line(name=hashed))
    with site.config.open("a") as file:
        file.write("Host 127.0.0.1\n  HostKeyAlias rack1-node7\n")
    Connection.open(server.host(), site.options()).close()


def test_a_policy_that_would_check_nothing_does_not_exist() -> None:
    with pytest.raises(InputError, match="strict or accept-new"):
        SshOptions(host_key_policy="off")


# ---- login ----


def test_a_refused_key_is_named_with_the_user(site: Any) -> None:
    server = site.server()
    server.client_key = site.server().client_key
    with pytest.raises(ConnectError, match="authentication as bench@") as caught:
        Connection.open(server.host(), site.options())
    assert f"{server.key_file} refused" in str(caught.value)
    assert len(server.offered) == 1  # and it was not tried again


def test_a_key_with_a_passphrase_is_passed_over_with_the_reason(site: Any) -> None:
    server = site.server()
    server.key_file.write_text(site.private_text(b"secret"))
    with pytest.raises(ConnectError, match=r"needs its passphrase \(ssh-add it\)"):
        Connection.open(server.host(), site.options())


def test_a_server_that_wants_passwords_is_said_so(site: Any) -> None:
    server = site.server()
    server.auths = "password"
    with pytest.raises(ConnectError, match="takes only password"):
        Connection.open(server.host(), site.options())


def test_an_agent_that_does_not_answer_is_a_note_not_an_end(
    site: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "no-agent"))
    server = site.server()
    Connection.open(server.host(), site.options()).close()
    with pytest.raises(ConnectError, match=r"the agent at .*no-agent does not answer"):
        Connection.open(server.host(identity_file=""), site.options())


def test_a_key_in_the_agent_is_used(
    site: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = site.server()
    with site.agent(server.key_file) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        server.key_file.unlink()
        Connection.open(server.host(identity_file=""), site.options()).close()
        with site.config.open("a") as file:
            file.write("Host *\n  IdentitiesOnly yes\n")
        with pytest.raises(ConnectError, match="authentication"):
            Connection.open(server.host(identity_file=""), site.options())


# ---- reaching it ----


def test_noise_before_the_banner_is_passed_over(site: Any) -> None:
    server = site.server()
    server.banner_noise = b"Welcome to the cluster\r\nAuthorised use only\r\n"
    Connection.open(server.host(), site.options()).close()


def test_a_banner_within_its_own_limit_is_waited_for(site: Any) -> None:
    server = site.server()
    server.banner_delay_s = 0.5
    options = site.options(connect_timeout_s=0.3, banner_timeout_s=10)
    Connection.open(server.host(), options).close()


def test_a_silent_server_ends_by_the_banner_limit(site: Any) -> None:
    server = site.server()
    server.banner_delay_s = 60
    with pytest.raises(DeadlineError, match="sent no SSH banner") as caught:
        Connection.open(server.host(), site.options(banner_timeout_s=0.5))
    assert "MaxStartups" in caught.value.remedy
    assert server.accepted == 1


def test_an_overrun_sshd_is_tried_again(site: Any) -> None:
    server = site.server()
    server.drop_first = 2
    with Connection.open(server.host(), site.options()) as connection:
        assert connection.attempts == 3


def test_an_sshd_that_always_hangs_up_is_given_up(site: Any) -> None:
    server = site.server()
    server.drop_first = 100
    with pytest.raises(ConnectError, match="attempts") as caught:
        Connection.open(server.host(), site.options(banner_timeout_s=2))
    assert "MaxStartups" in caught.value.remedy
    assert 1 < server.accepted <= 6


def test_nobody_listening_and_no_such_name_say_so(site: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    host = site.server().host
    with pytest.raises(ConnectError, match="Connection refused") as caught:
        Connection.open(host(port=port), site.options())
    assert "sshd" in caught.value.remedy
    with pytest.raises(ConnectError, match=r"no-such-node\.invalid does not resolve"):
        Connection.open(host(address="no-such-node.invalid"), site.options())


def test_a_dead_host_among_many_ends_alone(site: Any) -> None:
    """Case F03: n3 is slow to say its banner, n4 does not answer."""
    servers = {f"n{number}": site.server() for number in (1, 2, 3, 5)}
    servers["n3"].banner_delay_s = 0.5
    hosts = [server.host(name) for name, server in servers.items()]
    with socket.socket() as bound:  # bound and not listening, so nothing ever answers in time
        bound.bind(("127.0.0.1", 0))
        hosts.append(servers["n1"].host("n4", port=bound.getsockname()[1]))
        endings = fanout(
            lambda host: Connection.open(host, site.options()),
            hosts,
            limit=8,
            deadline_s=None,
            key=lambda host: host.name,
        )
    assert {name for name, ending in endings.items() if ending.ok} == {"n1", "n2", "n3", "n5"}
    assert isinstance(endings["n4"].error, ConnectError)
    for ending in endings.values():
        if ending.ok:
            ending.get().close()


def test_connect_banner_and_login_limits_are_the_configuration_s(site: Any) -> None:
    """An address that swallows packets ends by ConnectTimeout of the ssh configuration."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        with site.config.open("a") as file:
            file.write("Host *\n  ConnectTimeout 1\n")
        with pytest.raises(ConnectError, match=r"connect timeout: .* within 1 s"):
            Connection.open(site.server().host(port=port), site.options())
        for each in waiting:
            each.close()


def test_64_nodes_behind_one_overrun_sshd_all_answer(site: Any) -> None:
    """Case F02: more connections at once than MaxStartups lets in; banner errors alone repeat."""
    server = site.server()
    server.drop_above = 10
    hosts = [server.host(f"n{number}") for number in range(64)]
    endings = fanout(
        lambda host: Connection.open(host, site.options()),
        hosts,
        limit=16,
        deadline_s=None,
        key=lambda host: host.name,
    )
    failed = [str(ending.error) for ending in endings.values() if not ending.ok]
    assert failed == []
    assert sum(ending.get().attempts for ending in endings.values()) == server.accepted > 64
    for ending in endings.values():
        ending.get().close()


# ---- jump hosts ----


def jump_config(site: Any, bastion: Any, node: Any) -> None:
    with site.config.open("a") as file:
        file.write(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion.port}\n  User bench\n"
            f"  IdentityFile {bastion.key_file}\n  IdentitiesOnly yes\n"
            f"Host inner\n  HostName 127.0.0.1\n  Port {node.port}\n  ProxyJump bastion\n"
        )


@needs_ssh
def test_a_node_behind_a_jump_host_is_reached_through_it(site: Any) -> None:
    bastion, node = site.server(), site.server()
    jump_config(site, bastion, node)
    with Connection.open(node.host(address="inner", port=0), site.options()) as connection:
        assert connection.run(["echo", "hi"], deadline_s=10).stdout == b"hi\n"
    assert bastion.forwarded == [("127.0.0.1", node.port)]


@needs_ssh
def test_a_jump_host_of_unknown_key_is_refused(site: Any) -> None:
    bastion, node = site.server(known=False), site.server()
    jump_config(site, bastion, node)
    with pytest.raises(HostKeyError, match="through its proxy"):
        Connection.open(node.host(address="inner", port=0), site.options())
    assert bastion.offered == []


def test_a_proxy_command_that_fails_is_quoted(site: Any) -> None:
    host = site.server().host(
        ssh_args=("-o", "ProxyCommand=sh -c 'echo no route to %h:%p >&2; exit 1'")
    )
    with pytest.raises(ConnectError, match=r"through its proxy: no route to 127.0.0.1:\d+"):
        Connection.open(host, site.options())


def test_a_talkative_proxy_does_not_block(site: Any) -> None:
    server = site.server()
    loud = f"sh -c 'head -c 3000000 /dev/zero >&2; exec {site.relay} %h %p'"
    host = server.host(ssh_args=("-o", f"ProxyCommand={loud}"))
    with Connection.open(host, site.options()) as connection:
        assert connection.run(["true"], deadline_s=10).exit_status == 0
