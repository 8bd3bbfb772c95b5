from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rdmabench.collector import store
from rdmabench.collector.journal import Journal
from rdmabench.collector.store import RunDirectory
from rdmabench.errors import InputError, StorageError
from rdmabench.model import Fabric
from tests.collector.test_journal import files_no_larger_than

RAW = np.arange(1, 1001, dtype="<u8").tobytes()


def named(root: Path, *names: str) -> list[RunDirectory]:
    runs = []
    for name in names:
        run = RunDirectory(root / name)
        run.path.mkdir(parents=True)
        run.write_info(store.RunInfo(run=name, fabric="rxe", plan="quick", status="done"))
        runs.append(run)
    return runs


def test_a_run_is_named_by_time_fabric_and_plan(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    assert re.fullmatch(r"\d{8}-\d{6}-rxe-quick", run.name)
    assert sorted(path.name for path in run.path.iterdir()) == [
        "logs",
        "run.json",
        "samples",
        "tables",
    ]


def test_runs_of_the_same_second_have_different_names(tmp_path: Path) -> None:
    runs = {RunDirectory.create(tmp_path, Fabric.IB, "standard").name for _ in range(12)}
    assert len(runs) == 12


def test_the_newest_of_the_same_second_is_the_latest(tmp_path: Path) -> None:
    runs = [RunDirectory.create(tmp_path, Fabric.IB, "standard") for _ in range(12)]
    assert list(store.list_runs(tmp_path)) == runs
    assert store.find(tmp_path, "latest") == runs[-1]


def test_a_run_is_private(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "results", Fabric.RXE, "quick")
    samples = run.keep_samples(RAW, 1, "rtt")
    for directory in (run.path, run.samples, run.logs, run.tables):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in (run.path / "run.json", run.path / samples.path):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_plan_file_gives_its_name_to_the_run_and_no_path(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.TCP, "../my plans/night & day.yml")
    assert run.name.endswith("-tcp-night-day")
    assert run.path.parent == tmp_path


def test_run_json_says_who_when_what_and_with_which_versions(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.ROCE, "quick")
    plain = json.loads((run.path / "run.json").read_text())
    assert plain["fabric"] == "roce"
    assert plain["plan"] == "quick"
    assert plain["status"] == "running"
    assert plain["started_at"].endswith("+00:00")
    assert set(plain["versions"]) == {"rdmabench", "python", "numpy", "pandas", "pyarrow"}


def test_a_run_that_nobody_writes_is_interrupted_not_running(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    with Journal.create(run.path):
        assert run.info().status == "running"
    assert run.info().status == "interrupted"
    run.set_status("done")
    assert run.info().status == "done"
    assert run.info().ended_at > run.info().started_at


def test_what_a_newer_release_wrote_into_run_json_stays(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    plain = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(plain | {"weather": "fair"}))
    run.set_status("done")
    assert json.loads((run.path / "run.json").read_text())["weather"] == "fair"


def test_a_damaged_description_hides_no_run(tmp_path: Path) -> None:
    good, bad = named(tmp_path, "20260101-000000-rxe-a", "20260102-000000-rxe-b")
    (bad.path / "run.json").write_text("{")
    (tmp_path / "bench").mkdir()
    assert [run.name for run in store.list_runs(tmp_path)] == [good.name, bad.name]
    assert bad.info().status == "unknown"


def test_an_absent_results_directory_has_no_runs(tmp_path: Path) -> None:
    assert store.list_runs(tmp_path / "none") == ()
    with pytest.raises(InputError, match="no runs here"):
        store.find(tmp_path / "none", "latest")


def test_a_run_is_found_by_path_name_and_unique_prefix(tmp_path: Path) -> None:
    first, second = named(tmp_path, "20260101-000000-rxe-a", "20260102-000000-rxe-b")
    assert store.find(tmp_path, str(first.path)) == first
    assert store.find(tmp_path, first.name) == first
    assert store.find(tmp_path, "20260102") == second
    assert store.find(tmp_path, "latest") == second


def test_a_name_that_starts_another_name_is_still_found(tmp_path: Path) -> None:
    first, _ = named(tmp_path, "20260101-000000-rxe-a", "20260101-000000-rxe-a-2")
    assert store.find(tmp_path, first.name) == first


def test_a_prefix_of_several_runs_is_refused_with_their_names(tmp_path: Path) -> None:
    named(tmp_path, "20260101-000000-rxe-a", "20260102-000000-rxe-b")
    with pytest.raises(InputError, match=r"fits 2 runs: 20260101-000000-rxe-a, 20260102"):
        store.find(tmp_path, "2026010")


def test_a_misspelt_run_gets_close_matches(tmp_path: Path) -> None:
    named(tmp_path, "20260101-000000-rxe-a", "20260102-000000-rxe-b")
    with pytest.raises(InputError, match=r"try: 20260102-000000-rxe-b.*latest"):
        store.find(tmp_path, "20260102-00000-rxe-b")


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    samples = run.keep_samples(RAW, 7, "rtt")
    assert (samples.path, samples.count, samples.kind) == ("samples/000007.u64.zst", 1000, "rtt")
    assert (run.path / samples.path).stat().st_size < len(RAW)
    np.testing.assert_array_equal(run.load_samples(samples), np.arange(1, 1001, dtype=np.uint64))


def test_a_second_attempt_does_not_replace_the_samples_of_the_first(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    first, second = (run.keep_samples(RAW[:size], 7, "rtt") for size in (80, 160))
    assert second.path == "samples/000007-2.u64.zst"
    assert len(run.load_samples(first)) == 10
    assert len(run.load_samples(second)) == 20


def test_a_sample_name_cannot_leave_the_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    samples = run.keep_samples(RAW, "../../etc/x y", "completion")
    assert samples.path == "samples/etc-x-y.u64.zst"
    outside = replace(samples, path="../../secret")
    with pytest.raises(StorageError, match="outside of"):
        run.load_samples(outside)


def test_no_samples_are_kept_as_none(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    assert len(run.load_samples(run.keep_samples(b"", 1, "rtt"))) == 0


@pytest.mark.parametrize(("raw", "kind"), [(RAW[:-1], "rtt"), (RAW, "half")])
def test_bytes_that_are_not_whole_samples_are_refused(
    tmp_path: Path, raw: bytes, kind: str
) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    with pytest.raises(StorageError, match="are not whole u64 numbers"):
        run.keep_samples(raw, 1, kind)


def test_samples_that_are_not_those_that_were_measured_are_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    mine, other = run.keep_samples(RAW, 1, "rtt"), run.keep_samples(RAW[::-1], 2, "rtt")
    with pytest.raises(StorageError, match="SHA-256 differs"):
        run.load_samples(replace(mine, path=other.path))
    with pytest.raises(StorageError, match="1000 samples, the journal says 999"):
        run.load_samples(replace(mine, count=999))
    with pytest.raises(StorageError, match="No such file"):
        run.load_samples(replace(mine, path="samples/none"))
    (run.path / mine.path).write_bytes((run.path / mine.path).read_bytes()[:-40])
    with pytest.raises(StorageError, match="samples/000001"):
        run.load_samples(mine)


def test_samples_that_do_not_fit_the_disk_leave_nothing(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    noise = np.random.default_rng(1).bytes(80_000)
    with files_no_larger_than(20_000), pytest.raises(StorageError, match="File too large") as no:
        run.keep_samples(noise, 1, "rtt")
    assert f"--resume {run.name}" in str(no.value)
    assert list(run.samples.iterdir()) == []


def test_a_description_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, Fabric.RXE, "quick")
    before = (run.path / "run.json").read_bytes()
    with files_no_larger_than(10), pytest.raises(StorageError, match="File too large"):
        run.set_status("done")
    assert (run.path / "run.json").read_bytes() == before
    assert sorted(p.name for p in run.path.iterdir()) == ["logs", "run.json", "samples", "tables"]
