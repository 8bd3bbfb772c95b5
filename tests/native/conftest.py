"""Workers on the loopback verbs provider of tests/loopback: native speed, no kernel driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rdmabench.model import Fabric
from rdmabench.wire import ListEndpoints
from tests.duo import Duo
from tests.local import SYSTEM_PYTHON
from tests.loopback.build import build
from tests.native.sysfs import make_sysfs


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
    return make_sysfs(tmp_path_factory.mktemp("root"))


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
