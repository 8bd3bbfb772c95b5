"""The lab's state on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmabench.errors import InputError, LabError
from rdmabench.lab import paths, state
from rdmabench.lab.lab import LabOptions
from rdmabench.lab.processes import ProcessRef
from rdmabench.lab.state import LabState, NodeState


def _lab() -> LabState:
    return LabState(
        token="t0ken",
        vcpus=1,
        memory_mib=512,
        icount=False,
        requested_accel="auto",
        accel="tcg",
        image_digest="0123456789abcdef",
        sockets=Path("/tmp/rdmabench-x"),
        nodes=(
            NodeState("node1", 1, 20001, ProcessRef(pid=4711, start_ticks=99), 6.8),
            NodeState("node2", 2, 20002),
        ),
        switch=ProcessRef(pid=4710, start_ticks=98),
    )


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    state.save(tmp_path, _lab())
    assert state.load(tmp_path) == _lab()
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_forgotten_lab_is_no_lab(tmp_path: Path) -> None:
    state.save(tmp_path, _lab())
    state.forget(tmp_path)
    state.forget(tmp_path)
    assert state.load(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", '{"version": 99}', '{"version": 1, "token": "x"}'])
def test_a_state_that_cannot_be_read_names_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    with pytest.raises(LabError, match=r"state\.json"):
        state.load(tmp_path)


def test_an_unknown_node_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LabError, match="one of node1, node2"):
        _lab().node("node3")


def test_a_unix_socket_of_a_lab_has_room_in_its_path() -> None:
    directory = state.sockets_directory(state.new_token())
    assert len(str(directory / "node64.sock")) < 108


def test_a_labs_directory_is_readable_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = paths.private_directory(paths.lab_directory("t-lab"))
    assert directory == tmp_path / "rdmabench" / "lab" / "t-lab"
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a-", "a" * 33])
def test_a_name_that_is_no_plain_word_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a lab"):
        LabOptions(name=name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"nodes": 65},
        {"vcpus": 0},
        {"memory_mib": 64},
        {"deadline_s": 0},
        {"accel": "hvf"},
        {"icount": True, "vcpus": 2},
        {"icount": True, "accel": "kvm"},
    ],
)
def test_options_that_no_node_can_boot_with_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        LabOptions(**wrong)  # type: ignore[arg-type]
