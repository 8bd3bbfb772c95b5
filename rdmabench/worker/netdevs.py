"""The Ethernet side of a NIC: MTU, VLAN, bond, pause, PFC, trust, ECN, neighbour.

What /sys does not tell is asked of `ethtool`, `mlnx_qos` or `dcb`, and `lldpctl`.
"""

from __future__ import annotations

import re

from rdmabench.audit import Netdev
from rdmabench.worker import counter_text
from rdmabench.worker.gathering import Gathering, UnknownError
from rdmabench.worker.sysfs import Tree, read_or
from rdmabench.worker.tools import Tools

NET = "/sys/class/net"
_MODE = re.compile(r"\b(\d+)base[A-Za-z0-9]+/(?:Full|Half)")
_PRIORITIES = 8


def read(tree: Tree, tools: Tools, name: str) -> Netdev:
    """One interface."""
    base = f"{NET}/{name}"
    made = Gathering()
    made.fields["name"] = name
    made.add("mtu_bytes", lambda: int(tree.read(f"{base}/mtu")))
    made.add("state", lambda: tree.read(f"{base}/operstate"))
    made.add("driver", lambda: _link(tree, f"{base}/device/driver"))
    made.add("speed_mbit_s", lambda: _speed(tree, base))
    made.add("max_speed_mbit_s", lambda: fastest_mode(tools.run("ethtool", name)))
    made.add("vlan", lambda: _vlan(tree, name))
    made.add("bond", lambda: _bond(tree, base))
    made.add("pause_rx", lambda: pause(tools.run("ethtool", "-a", name), "RX"))
    made.add("pause_tx", lambda: pause(tools.run("ethtool", "-a", name), "TX"))
    made.add("pfc", lambda: _pfc(tools, name))
    made.add("trust", lambda: _trust(tree, tools, name))
    made.add("ets", lambda: _ets(tools, name))
    made.add("ecn_np", lambda: _ecn(tree, base, "roce_np"))
    made.add("ecn_rp", lambda: _ecn(tree, base, "roce_rp"))
    made.add("leaf", lambda: _neighbour(tools, name, ("chassis.name", "chassis.mac")))
    made.add("leaf_port", lambda: _neighbour(tools, name, ("port.ifname", "port.descr")))
    made.add("counters", lambda: counter_text.statistics(tools.run("ethtool", "-S", name)))
    return Netdev(**made.fields)


def lower(tree: Tree, name: str) -> tuple[str, ...]:
    """The interfaces that a VLAN or a bond stands on."""
    below = [n[len("lower_") :] for n in tree.names(f"{NET}/{name}") if n.startswith("lower_")]
    slaves = read_or(tree, f"{NET}/{name}/bonding/slaves").split()
    return tuple(dict.fromkeys([*below, *slaves]))


def _link(tree: Tree, path: str) -> str:
    name = tree.link(path)
    if not name:
        raise UnknownError("the interface has no driver of its own")
    return name


def _speed(tree: Tree, base: str) -> int:
    speed = int(tree.read(f"{base}/speed"))
    if speed <= 0:
        raise UnknownError("the driver tells no speed")
    return speed


def fastest_mode(ethtool: str) -> int:
    """Mb/s of the fastest among the supported link modes.

    Raises:
        UnknownError: the driver lists none.
    """
    section = re.search(
        r"Supported link modes:(.*?)(?:Supported pause|Advertised)", ethtool, re.DOTALL
    )
    speeds = [int(mode) for mode in _MODE.findall(section[1])] if section else []
    if not speeds:
        raise UnknownError("`ethtool` lists no supported link mode")
    return max(speeds)


def _vlan(tree: Tree, name: str) -> str:
    if "DEVTYPE=vlan" not in read_or(tree, f"{NET}/{name}/uevent"):
        return ""
    text = tree.read(f"/proc/net/vlan/{name}")
    number = re.search(r"VID: (\d+)", text)
    device = re.search(r"Device: (\S+)", text)
    if not number or not device:
        raise UnknownError(f"/proc/net/vlan/{name} does not tell its VLAN")
    return f"{number[1]} on {device[1]}"


def _bond(tree: Tree, base: str) -> str:
    mode = read_or(tree, f"{base}/bonding/mode")
    return f"{mode.split()[0]}: {read_or(tree, f'{base}/bonding/slaves')}" if mode else ""


def pause(ethtool: str, direction: str) -> bool:
    """Whether global pause frames (802.3x) are on for `RX` or `TX`.

    Raises:
        UnknownError: the text does not tell.
    """
    match = re.search(rf"^{direction}:\s*(on|off)", ethtool, re.MULTILINE)
    if match is None:
        raise UnknownError(f"`ethtool -a` does not tell {direction}")
    return match[1] == "on"


def _pfc(tools: Tools, name: str) -> tuple[int, ...]:
    if tools.has("mlnx_qos"):
        return pfc_of_mlnx_qos(tools.run("mlnx_qos", "-i", name))
    if not tools.has("dcb"):
        raise UnknownError("neither `mlnx_qos` nor `dcb` on the node")
    return pfc_of_dcb(tools.run("dcb", "pfc", "show", "dev", name))


def pfc_of_mlnx_qos(text: str) -> tuple[int, ...]:
    """Priorities with a 1 in the line `enabled` below `PFC configuration`.

    Raises:
        UnknownError: there is no such line.
    """
    match = re.search(r"PFC configuration:.*?enabled((?:\s+[01]){8})", text, re.DOTALL)
    if match is None:
        raise UnknownError("`mlnx_qos` shows no PFC configuration")
    return tuple(priority for priority, bit in enumerate(match[1].split()) if bit == "1")


def pfc_of_dcb(text: str) -> tuple[int, ...]:
    """Priorities that `prio-pfc 0:off 1:off ...` says are on.

    Raises:
        UnknownError: there is no such line.
    """
    match = re.search(r"prio-pfc((?:\s+\d:(?:on|off))+)", text)
    if match is None:
        raise UnknownError("`dcb pfc show` shows no prio-pfc")
    return tuple(int(item[0]) for item in match[1].split() if item.endswith(":on"))


def _trust(tree: Tree, tools: Tools, name: str) -> str:
    shown = read_or(tree, f"{NET}/{name}/qos/trust")
    if shown:
        return shown
    if tools.has("mlnx_qos"):
        match = re.search(r"Priority trust state:\s*(\w+)", tools.run("mlnx_qos", "-i", name))
    elif tools.has("dcb"):
        match = re.search(r"order\s+(\w+)", tools.run("dcb", "apptrust", "show", "dev", name))
    else:
        raise UnknownError("neither `mlnx_qos` nor `dcb` on the node")
    if match is None:
        raise UnknownError("the tool shows no trust mode")
    return match[1].lower()


def _ets(tools: Tools, name: str) -> str:
    if not tools.has("dcb"):
        raise UnknownError("no `dcb` on the node")
    match = re.search(r"tc-bw((?:\s+\d:\d+)+)", tools.run("dcb", "ets", "show", "dev", name))
    if match is None:
        raise UnknownError("`dcb ets show` shows no tc-bw")
    return " ".join(match[1].split())


def _ecn(tree: Tree, base: str, kind: str) -> tuple[int, ...]:
    directory = f"{base}/ecn/{kind}/enable"
    if not tree.names(directory):
        raise UnknownError(f"the driver has no {directory}")
    return tuple(p for p in range(_PRIORITIES) if read_or(tree, f"{directory}/{p}") == "1")


def _neighbour(tools: Tools, name: str, keys: tuple[str, ...]) -> str:
    told = dict(
        line.split("=", 1)
        for line in tools.run("lldpctl", "-f", "keyvalue", name).splitlines()
        if "=" in line
    )
    for key in keys:
        if told.get(f"lldp.{name}.{key}"):
            return told[f"lldp.{name}.{key}"]
    raise UnknownError("no LLDP neighbour was heard")
