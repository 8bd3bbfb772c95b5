"""Host inventories and lists."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from rdmabench.errors import InputError
from rdmabench.model import Host
from rdmabench.orchestrator import inventory
from rdmabench.orchestrator.hostlists import expand_limit
from rdmabench.orchestrator.hostvars import host_of

REPOSITORY = Path(__file__).parents[2]

# case H03, with its variable under the name that rdmabench knows
INI = """\
login ansible_host=192.0.2.1 ansible_user=ops
[gpu]
gpu[001:004] ansible_user=bench
gpu010 ansible_host=198.51.100.10 ansible_port=2222
old01 ansible_ssh_host=198.51.100.77
[gpu_b]
rack-[a:c]
[cluster:children]
gpu
gpu_b
[cluster:vars]
rdma_devices=mlx5_0
"""
YML = """\
all:
  hosts:
    login:
      ansible_host: 192.0.2.1
  children:
    gpu:
      hosts:
        gpu[001:004]:
        gpu010: {ansible_host: 198.51.100.10, ansible_port: 2222}
      vars: {rdma_devices: mlx5_0}
    single:
      hosts:
        test5
"""
FULL = """\
all:
  vars:
    zone: mgmt.example
    ansible_ssh_common_args: -o ProxyJump=bastion -o 'UserKnownHostsFile=/a b'
  hosts:
    n1:
      ansible_host: "{{ inventory_hostname }}.{{ zone }}"
      ansible_port: "{{ 2200 + 22 }}"
      ansible_user: bench
      ansible_python_interpreter: /opt/python3.9
      ansible_ssh_private_key_file: ~/.ssh/bench
      rdma_devices: =mlx5_0,mlx5_1
      rdma_gid_index: 3
      rdma_rail_order: [mlx5_1, mlx5_0]
      rdma_tcp_netdev: bond0
      rdma_torch_python: /opt/torch/bin/python
      rdma_env: {NCCL_IB_TC: 106, ZONE: "{{ zone }}"}
      rdma_rack: 12
      ours: "{{ not_defined }}"
"""


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [host.name for host in hosts]


def test_an_ini_inventory_means_what_it_means_to_ansible(tmp_path: Path) -> None:
    source = write(tmp_path, "hosts.ini", INI)
    gpu = inventory.load(source, limit="gpu")
    assert names(gpu) == ["gpu001", "gpu002", "gpu003", "gpu004", "gpu010", "old01"]
    gpu010 = gpu[4]
    assert (gpu010.address, gpu010.port, gpu010.rdma_devices) == ("198.51.100.10", 2222, "mlx5_0")
    assert gpu[0] == Host(name="gpu001", address="gpu001", user="bench", rdma_devices="mlx5_0")
    assert gpu[5].address == "198.51.100.77"
    assert len(inventory.load(source, limit="cluster")) == 9


def test_a_yaml_inventory_and_a_host_without_a_colon(tmp_path: Path) -> None:
    source = write(tmp_path, "hosts.yml", YML)
    hosts = inventory.load(source)
    assert names(hosts) == ["login", "gpu001", "gpu002", "gpu003", "gpu004", "gpu010", "test5"]
    assert names(inventory.load(source, limit="gpu[001-003,010]:!gpu002")) == [
        *("gpu001", "gpu003", "gpu010")
    ]


def test_every_variable_arrives_and_expressions_are_ansible_s(tmp_path: Path) -> None:
    assert inventory.load(write(tmp_path, "hosts.yml", FULL)) == (
        Host(
            name="n1",
            address="n1.mgmt.example",
            port=2222,
            user="bench",
            python="/opt/python3.9",
            identity_file="~/.ssh/bench",
            ssh_args=("-o", "ProxyJump=bastion", "-o", "UserKnownHostsFile=/a b"),
            rdma_devices="=mlx5_0,mlx5_1",
            gid_index=3,
            rail_order=("mlx5_1", "mlx5_0"),
            tcp_netdev="bond0",
            torch_python="/opt/torch/bin/python",
            env={"NCCL_IB_TC": "106", "ZONE": "mgmt.example"},
            rack="12",
        ),
    )


def test_an_expression_that_fails_is_said_by_ansible(tmp_path: Path) -> None:
    source = write(tmp_path, "h.yml", "all: {hosts: {a: {ansible_host: '{{ nope }}'}}}")
    with pytest.raises(InputError, match="'nope' is undefined"):
        inventory.load(source)


def test_a_directory_and_a_program_are_inventories(tmp_path: Path) -> None:
    directory = tmp_path / "inv"
    (directory / "group_vars").mkdir(parents=True)
    write(directory, "hosts.yml", "all: {hosts: {a: {}, b: {}}}")
    write(directory / "group_vars", "all.yml", "rdma_rack: r7")
    assert [(host.name, host.rack) for host in inventory.load(str(directory))] == [
        ("a", "r7"),
        ("b", "r7"),
    ]
    listing = {"gpu": {"hosts": ["c"]}, "_meta": {"hostvars": {"c": {"ansible_port": "23"}}}}
    program = Path(write(tmp_path, "dynamic", f"#!/bin/sh\necho '{json.dumps(listing)}'\n"))
    program.chmod(0o755)
    assert inventory.load(str(program)) == (Host(name="c", address="c", port=23),)


def test_512_hosts_are_quick(tmp_path: Path) -> None:
    source = write(
        tmp_path, "h.yml", "all: {hosts: {'gpu[001:512]': {ansible_host: '{{ 1 }}.mgmt'}}}"
    )
    started = time.monotonic()
    with pytest.raises(InputError, match=r"gpu001 and gpu002 are both 1\.mgmt"):
        inventory.load(source)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"rdma_device": "x"}, r"rdma_device is no variable.*write rdma_devices"),
        ({"rdma_dev": "x"}, r"rdma_dev is no variable.*write rdma_devices"),
        ({"rdma_rail_odrer": ["x"]}, r".*write rdma_rail_order"),
        ({"ansible_port": "ssh"}, r"ansible_port: .*found 'ssh'"),
        ({"ansible_port": 65536}, r"ansible_port: "),
        ({"rdma_gid_index": -1}, r"rdma_gid_index: "),
        ({"rdma_env": {"A": True}}, r"rdma_env\.A: .*found True"),
        ({"rdma_env": ["A"]}, r"rdma_env: "),
        ({"ansible_ssh_common_args": "-o 'x"}, r"ansible_ssh_.*args: "),
        ({"ansible_connection": "local"}, r"ansible_connection: 'local'.*SSH"),
    ],
)
def test_a_wrong_value_is_named_with_source_host_and_key(
    variables: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=r"(?s)h\.yml: host a: " + said):
        host_of("a", variables, source="h.yml")


def test_what_ansible_writes_loosely_is_read() -> None:
    variables = {
        "ansible_port": "2222",
        "ansible_python_interpreter": "auto_silent",
        "rdma_rail_order": "mlx5_1, mlx5_0",
        "rdma_pfc_priority": 3,  # a variable of the site's own
    }
    assert host_of("a", variables, source="x") == Host(
        name="a", address="a", port=2222, rail_order=("mlx5_1", "mlx5_0")
    )


@pytest.mark.parametrize(
    ("text", "limit", "said"),
    [
        ("all: {hosts: {}}", "", "has no host"),
        ("all: [", "", r"(?s)Ansible cannot read it:.*YAML parsing failed"),
        ("all: {hosts: {a: {}}}", "b", "nothing in the inventory matches 'b'"),
    ],
)
def test_an_inventory_without_usable_hosts_says_why(
    tmp_path: Path, text: str, limit: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        inventory.load(write(tmp_path, "h.yml", text), limit=limit)


def test_one_address_with_two_ports_is_two_nodes(tmp_path: Path) -> None:
    text = "all: {vars: {ansible_host: 127.0.0.1}, hosts: {a: {ansible_port: 1}, b: {}}}"
    assert names(inventory.load(write(tmp_path, "h.yml", text))) == ["a", "b"]


# ---- lists ----


@pytest.mark.parametrize(
    ("source", "limit", "found"),
    [
        ("gpu[001-003,010],login", "", ["gpu001", "gpu002", "gpu003", "gpu010", "login"]),
        ("b,a", "", ["b", "a"]),
        ("gpu[1-4]", "gpu[2-3]", ["gpu2", "gpu3"]),
        ("gpu[1-4],login", "gpu*:!gpu2", ["gpu1", "gpu3", "gpu4"]),
        ("gpu[1-4]", "!gpu2", ["gpu1", "gpu3", "gpu4"]),
        ("inst-ijeeq-x9", "", ["inst-ijeeq-x9"]),
    ],
)
def test_a_nodeset_is_a_source_and_a_limit(source: str, limit: str, found: list[str]) -> None:
    assert names(inventory.load(source, limit=limit)) == found


@pytest.mark.parametrize(
    ("limit", "ansible"),
    [
        ("gpu[001-002,007]", "gpu001,gpu002,gpu007"),
        ("gpu[0:3]:!gpu[1-2]", "gpu[0:3],!gpu1,!gpu2"),
        ("all:&gpu[1-2]", "all,&~^(gpu1|gpu2)$"),
        ("rack1:&ib:!n3*", "rack1,&ib,!n3*"),
    ],
)
def test_a_nodeset_in_a_limit_becomes_names_for_ansible(limit: str, ansible: str) -> None:
    assert expand_limit(limit) == ansible


def test_a_user_before_the_host_is_its_user() -> None:
    assert inventory.load("bench@n1,n2") == (
        Host(name="n1", address="n1", user="bench"),
        Host(name="n2", address="n2"),
    )


def test_an_mpi_hostfile_in_each_of_its_forms(tmp_path: Path) -> None:
    text = "gpu01 slots=8\ngpu02:8\ngpu03 slots=8 max_slots=16  # spare\n\ngpu[04-05]\r\n"
    source = write(tmp_path, "hostfile", text)
    assert names(inventory.load(source)) == [f"gpu0{n}" for n in range(1, 6)]


def test_a_plain_list_is_stripped_and_taken_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case H05: line ends of another system, blank lines, a host named twice."""
    text = "192.0.2.11\r\n192.0.2.10  \n\n# spare\n192.0.2.11\ninst-abcde-x9\n"
    with caplog.at_level(logging.WARNING):
        hosts = inventory.load(write(tmp_path, "ips.txt", text))
    assert names(hosts) == ["192.0.2.11", "192.0.2.10", "inst-abcde-x9"]
    assert "taken once: 192.0.2.11" in caplog.text


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("gpu", "gpu001 gpu002 gpu003 gpu004"),
        ("gpu&&ib", "gpu001 gpu002 gpu003"),
        ("gpu:!rack=a", "gpu004"),
        ("gpu--rack=a", "gpu004"),
        ("ib", "gpu001 gpu002 gpu003 sto1"),
    ],
)
def test_the_attributes_of_a_genders_file_are_groups(
    tmp_path: Path, limit: str, found: str
) -> None:
    """Case H04."""
    text = (
        "# demo cluster\nmgmt0   mgmt,login\ngpu[001-003]\tgpu,ib,rack=a   # comment\n"
        "gpu004  gpu,roce,rack=b\nsto1    storage,ib\n"
    )
    source = write(tmp_path, "genders", text)
    assert names(inventory.load(source, limit=limit)) == found.split()


@pytest.mark.parametrize(
    ("source", "limit", "said"),
    [
        ("nope.yml", "", "there is no such file"),
        ("hosts/nope", "", "there is no such file"),
        ("", "", "the host list is empty"),
        ("gpu[1-", "", "is no host list"),
        ("gpu1:8,gpu2:8", "", "has a port or a slot count"),
        ("gpu[1-4]", "gpu7", "no host matches 'gpu7'"),
        ("gpu[1-4]", "!gpu[1-4]", "leaves no host"),
        ("bench@n1,n1", "", "n1 and n1 are both n1"),
    ],
)
def test_a_list_that_cannot_be_used_says_why(source: str, limit: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inventory.load(source, limit=limit)


@pytest.mark.parametrize(("name", "count"), [("roce", 8), ("ib", 18), ("tcp", 3)])
def test_the_example_inventories_load(name: str, count: int) -> None:
    assert len(inventory.load(str(REPOSITORY / "hosts" / f"{name}.yml"))) == count
