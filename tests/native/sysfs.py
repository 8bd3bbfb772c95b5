"""What the kernel would show of the loopback provider's device; the rest is this machine's."""

from __future__ import annotations

from pathlib import Path

GID = "0000:0000:0000:0000:0000:ffff:c612:0001"  # 198.18.0.1, as the provider has it


def make_sysfs(root: Path) -> Path:
    port = root / "sys/class/infiniband/loop0/ports/1"
    for directory in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / directory).mkdir(parents=True)
    files = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": "Ethernet",
        "rate": "100 Gb/sec (4X EDR)",
        "gids/1": GID,
        "gid_attrs/types/1": "RoCE v2",
        "gid_attrs/ndevs/1": "lo",
    }
    for name, text in files.items():
        (port / name).write_text(text + "\n")
    (root / "proc").symlink_to("/proc")
    (root / "sys/devices").symlink_to("/sys/devices")
    (root / "sys/class/net").symlink_to("/sys/class/net")
    return root
