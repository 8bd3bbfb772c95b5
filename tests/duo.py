"""Two workers on this machine and the link between them, driven as the orchestrator drives them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rdmabench import wire
from rdmabench.model import (
    Case,
    Endpoint,
    EndpointRef,
    LinkAddress,
    LinkParameters,
    Role,
    SideReport,
)
from rdmabench.orchestrator.agent import Agent, ask_both
from tests.local import LocalProcess, start_worker

ROLES = (Role.INITIATOR, Role.RESPONDER)
LIMIT_S = 30.0
LINK = LinkParameters(qps=4, depth=16, buffer_bytes=4 * 65536)


class Duo:
    """Hosts a (initiator) and b (responder)."""

    def __init__(
        self,
        directory: Path,
        request: wire.ListEndpoints,
        *,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        root: Path = Path("/"),
    ) -> None:
        self.logs = [directory / name / f"{name}.log" for name in ("a", "b")]
        started = [
            start_worker(directory / name, host=name, python=python, env=env, root=root)
            for name in ("a", "b")
        ]
        self.agents: list[Agent] = [agent for agent, _ in started]
        self.processes: list[LocalProcess] = [process for _, process in started]
        self.facts = [agent.hello({}, deadline_s=LIMIT_S) for agent in self.agents]
        self.endpoints: list[Endpoint] = [
            agent.ask(request, deadline_s=LIMIT_S).endpoints[0] for agent in self.agents
        ]
        self.refs = [EndpointRef(host=e.host, device=e.device) for e in self.endpoints]

    def both(self, *bodies: object, on_failure: tuple[object, ...] = ()) -> list[object]:
        pair = bodies if len(bodies) == 2 else (bodies[0], bodies[0])
        return ask_both(
            list(zip(self.agents, pair, strict=True)), deadline_s=LIMIT_S, on_failure=on_failure
        )

    def connect(
        self, link: str = "x", *, parameters: LinkParameters = LINK, engine: str = "hotloop"
    ) -> tuple[LinkAddress, LinkAddress]:
        opened = self.both(
            *(
                wire.OpenLink(
                    link=link, endpoint=endpoint, role=role, engine=engine, parameters=parameters
                )
                for endpoint, role in zip(self.endpoints, ROLES, strict=True)
            )
        )
        first, second = (answer.address for answer in opened)
        self.both(wire.ConnectLink(link, second), wire.ConnectLink(link, first))
        return first, second

    def measure(self, case: Case, link: str = "x") -> list[SideReport]:
        self.both(wire.PrepareCase(link, case))
        self.both(wire.RunCase(link), on_failure=(wire.Cancel(link), wire.Cancel(link)))
        return [answer.report for answer in self.both(wire.FinishCase(link))]

    def close(self) -> None:
        for agent in self.agents:
            agent.close()


def samples_of(report: SideReport) -> list[int]:
    """The timed iterations of a report, in nanoseconds."""
    assert report.samples is not None
    raw = Path(report.samples.path).read_bytes()
    Path(report.samples.path).unlink()
    return [int.from_bytes(raw[i : i + 8], "little") for i in range(0, len(raw), 8)]
