"""Imported files as runs: the journal, the tables, `compare`, and the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from rdmabench.analysis.compare import compare
from rdmabench.collector import journal, tables
from rdmabench.collector.importers.bring_in import bring_in
from rdmabench.collector.importers.text import NOTHING, Asked
from rdmabench.collector.store import RunDirectory, find
from rdmabench.commands import importing
from rdmabench.errors import InputError
from rdmabench.model import Fabric, Imported, ImportStarted, RunEnded
from tests.collector.importers.texts import (
    ALL_GATHER,
    OSU_ALLREDUCE,
    OSU_LATENCY,
    WRITE_BW,
    dumped,
    nccl_document,
    perftest_document,
    recorded,
)

app = typer.Typer()
importing.register(app)


@app.command("other")
def _other() -> None:
    """A second command, so that `import` stays a word of the command line."""


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, words)])


def files(directory: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        path = directory / f"{name}.txt"
        path.write_text(text)
        paths.append(path)
    return paths


def run_of(directory: Path, tool: str, texts: dict[str, str], **asked: str) -> RunDirectory:
    paths = files(directory, **texts)
    brought = bring_in(paths, tool=tool, results=directory / "results", asked=Asked(**asked))
    assert brought.run is not None
    return brought.run


def test_an_imported_run_has_the_tables_of_a_measured_one(tmp_path: Path) -> None:
    run = run_of(tmp_path, "perftest", {"bw": WRITE_BW, "lat": recorded("C03-out.txt")})
    built = tables.build(run)
    rows = built.measurements
    assert set(rows["engine"]) == {"perftest"}
    assert set(rows["evidence"]) == {"absent"}
    assert set(rows["fabric"]) == {"roce"}
    assert all("imported text proves no path" in note for note in rows["evidence_note"])
    bandwidths = rows[rows["metric"] == "bw"]
    assert list(bandwidths["value"] * 8e-9) == pytest.approx([98.386, 98.397, 195.69], rel=1e-4)
    assert set(bandwidths["unit"]) == {"B/s"}
    assert bandwidths["source"].iloc[0].endswith("bw.txt:21")
    assert set(rows["ranks"]) == {2}
    assert list(built.cases["outcome"]) == ["measured"] * 3
    assert built.latency.empty
    assert built.counters.empty
    assert next(iter(built.events["type"])) == "ImportStarted"


def test_kept_tables_are_those_that_were_built(tmp_path: Path) -> None:
    run = run_of(tmp_path, "nccl-tests", {"ag": ALL_GATHER})
    first, second = tables.load(run), tables.load(run)
    for name, frame in first.named().items():
        assert frame.equals(second.named()[name]), name
    assert set(first.measurements["fabric"]) == {""}
    busbw = first.measurements[first.measurements["metric"] == "busbw"]
    assert list(busbw["value"]) == pytest.approx([268.44e9, 268.44e9])
    assert set(busbw["variant"]) == {"float"}
    assert set(busbw["probe"]) == {"collective"}


def test_the_journal_is_what_the_tables_are_made_of(tmp_path: Path) -> None:
    run = run_of(tmp_path, "osu", {"lat": OSU_LATENCY}, initiator="a", responder="b")
    bodies = [envelope.body for envelope in journal.read(run.path)]
    started, *rows, ended = bodies
    assert isinstance(started, ImportStarted)
    assert started.tool == "osu"
    assert started.files[0].size_bytes == len(OSU_LATENCY)
    assert len(started.files[0].sha256) == 64
    assert all(isinstance(row, Imported) for row in rows)
    assert rows[0].values[0].text == "1.02"
    assert ended == RunEnded(status="done", measured=3, failed=0)
    assert run.info().status == "done"
    assert run.info().plan == "osu"


def test_failed_and_skipped_rows_have_no_numbers(tmp_path: Path) -> None:
    run = run_of(tmp_path, "nccl-tests", {"one": recorded("C10-out.txt")})
    rows = tables.build(run).measurements
    assert list(rows["outcome"]) == ["failed", "failed"]
    assert rows["value"].isna().all()
    assert run.info().status == "incomplete"


def test_zero_rows_are_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path, "nccl-tests", {"zero": recorded("C14-out.txt")}, op="all_reduce")
    cases = tables.build(run).cases
    assert list(cases["outcome"]) == ["skipped"] * 5 + ["measured"] * 2
    assert list(cases["repeat"]) == [0, 1, 2, 3, 4, 0, 0]


def test_files_of_one_test_are_its_repeats(tmp_path: Path) -> None:
    slower = WRITE_BW.replace("11728.47", "11700.00").replace("0.187656", "0.187200")
    run = run_of(tmp_path, "perftest", {"a": WRITE_BW, "b": slower})
    rows = tables.build(run).measurements
    bandwidths = rows[(rows["metric"] == "bw") & (rows["size_bytes"] == 65536)]
    assert list(bandwidths["repeat"]) == [0, 1]


def test_imported_runs_compare_with_each_other(tmp_path: Path) -> None:
    def night(name: str, average: float) -> RunDirectory:
        texts = {
            f"{name}{n}": WRITE_BW.replace("11728.47", f"{average + n:.2f}").replace(
                "0.187656", f"{(average + n) / 62500:.6f}"
            )
            for n in range(6)
        }
        return run_of(tmp_path, "perftest", texts, initiator="n1", responder="n2")

    before, after = night("before", 11700), night("after", 5850)
    result = compare([tables.load(before), tables.load(after)])
    row = result.rows[result.rows["size_bytes"] == 65536].iloc[0]
    assert row["ratio"] == pytest.approx(0.5, abs=0.001)
    assert row["verdict"] == "worse"
    assert "absent" in row["note"]


def test_one_bad_file_spoils_no_other(tmp_path: Path) -> None:
    good, bad = files(tmp_path, good=WRITE_BW, bad=WRITE_BW.replace("11728.47", "117z8.47"))
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    paths = [bad, good, tmp_path / "binary", tmp_path / "absent.txt", tmp_path, good]
    brought = bring_in(paths, tool="perftest", results=tmp_path / "results", asked=NOTHING)
    assert len(brought.rows) == 2
    said = [str(error) for error in brought.refused]
    assert len(said) == 5
    for text, what in zip(
        said, ("'117z8.47'", "NUL byte", "No such file", "directory", "the same bytes"), strict=True
    ):
        assert what in text
        assert "expected" in text
    assert brought.run is not None
    assert brought.run.info().status == "incomplete"
    events = tables.build(brought.run).events
    assert list(events["severity"]).count("error") == 5


def test_nothing_is_made_where_nothing_was_read(tmp_path: Path) -> None:
    brought = bring_in(
        files(tmp_path, no=""), tool="osu", results=tmp_path / "results", asked=NOTHING
    )
    assert brought.run is None
    assert not (tmp_path / "results").exists()


def test_two_fabrics_are_two_runs(tmp_path: Path) -> None:
    paths = files(tmp_path, roce=WRITE_BW, ib=recorded("C06-lat.txt"))
    with pytest.raises(InputError, match="fabrics ib and roce"):
        bring_in(paths, tool="perftest", results=tmp_path, asked=NOTHING)
    brought = bring_in(paths, tool="perftest", results=tmp_path, asked=NOTHING, fabric=Fabric.ROCE)
    assert brought.run is not None
    assert brought.run.info().fabric == "roce"


def test_json_files_are_recognised(tmp_path: Path) -> None:
    for tool, document in (("perftest", perftest_document()), ("nccl-tests", nccl_document())):
        run = run_of(tmp_path, tool, {tool: dumped(document)})
        assert list(tables.build(run).cases["outcome"]) == ["measured"]


def test_the_command_prints_json_to_stdout_alone(tmp_path: Path) -> None:
    (good,) = files(tmp_path, good=OSU_ALLREDUCE)
    done = invoke(
        "osu", good, "--results", tmp_path / "r", "--format", "json", "--ranks", 8, "--fabric", "ib"
    )
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["fabric"] == "ib"
    assert [row["value"] for row in said["rows"]] == [2.35, 201.35]
    assert said["rows"][0]["metric"] == "time_us"
    assert find(tmp_path / "r", "latest").name == said["run"]
    assert "runs show" in done.stderr


@pytest.mark.parametrize(
    ("tool", "text", "options"),
    [
        ("perftest", WRITE_BW, ("--initiator", "n1", "--responder", "n2", "--line-rate", "100")),
        ("nccl-tests", ALL_GATHER, ("--ranks", "4")),
        ("osu", OSU_LATENCY, ()),
    ],
)
def test_the_command_takes_each_tool(
    tmp_path: Path, tool: str, text: str, options: tuple[str, ...]
) -> None:
    (path,) = files(tmp_path, good=text)
    done = invoke(tool, path, "--results", tmp_path / "r", *options, "--format", "csv")
    assert done.exit_code == 0, done.output
    assert "failed" not in done.stdout
    assert done.stdout.startswith("op,size_bytes,outcome,metric,value")


def test_the_command_ends_with_2_where_a_file_was_refused(tmp_path: Path) -> None:
    good, bad = files(tmp_path, good=OSU_LATENCY, bad="nothing\n")
    done = invoke("osu", good, bad, "--results", tmp_path / "r")
    assert done.exit_code == 2
    assert "bad.txt:1" in done.stderr
    assert "1 of 2 files were refused" in done.stderr
    assert "1.02" in done.stdout
    alone = invoke("osu", bad, "--results", tmp_path / "r", "--format", "json")
    assert alone.exit_code == 2
    assert json.loads(alone.stdout)["run"] is None


def test_the_help_has_examples() -> None:
    for tool in ("perftest", "nccl-tests", "osu"):
        done = invoke(tool, "--help")
        assert done.exit_code == 0
        assert "rdmabench import" in done.stdout
