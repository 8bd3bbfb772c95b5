"""Workers on the loopback verbs provider of tests/loopback, at native speed and without a kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rdmabench.model import Fabric
from rdmabench.wire import ListEndpoints
from tests.duo import Duo
from tests.local import SYSTEM_PYTHON
from tests.loopback.build import build

GID = "0000:0000:0000:0000:0000:ffff:7f00:0001"


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("loopback"))


@pytest.fixture
def provider_env(provider: Path, tmp_path: Path) -> dict[str, str]:
    run = tmp_path / "fabric"
    run.mkdir()
    return {"LD_PRELOAD": str(provider), "LOOPBACK_RUN": str(run)}


@pytest.fixture(scope="session")
def sysfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the kernel would show of the provider's device; the rest is this machine's."""
    root = tmp_path_factory.mktemp("root")
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


@pytest.fixture
def start(
    provider_env: Mapping[str, str], sysfs: Path, tmp_path: Path
) -> Iterator[Callable[..., Duo]]:
    """Starts two workers on the provider; `env` is added to theirs."""
    made: list[Duo] = []

    def make(**env: str) -> Duo:
        duo = Duo(
            tmp_path / f"duo{len(made)}",
            ListEndpoints(fabric=Fabric.ROCE),
            python=SYSTEM_PYTHON,
            env={**provider_env, **env},
            root=sysfs,
        )
        made.append(duo)
        return duo

    yield make
    for duo in made:
        duo.close()


def system_has(*programs: str) -> bool:
    return all(
        any(os.access(f"{d}/{p}", os.X_OK) for d in os.environ["PATH"].split(":")) for p in programs
    )
