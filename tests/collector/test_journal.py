from __future__ import annotations

import logging
import os
import resource
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rdmabench.collector import journal
from rdmabench.collector.journal import Journal
from rdmabench.errors import InputError, StorageError
from rdmabench.model import NodeFacts, Notice, Outcome, Record
from tests.collector.synthetic import BANDWIDTH, LATENCY, SyntheticRun, case_of

TIME_LENGTH = len("2026-12-01T03:15:00.000000+00:00")


def notice(text: str) -> Notice:
    return Notice(severity="info", text=text)


def filled(directory: Path, count: int = 3) -> bytes:
    with Journal.create(directory) as opened:
        for number in range(count):
            opened.append(notice(f"event {number}"))
    return opened.path.read_bytes()


def texts(directory: Path) -> list[str]:
    return [envelope.body.text for envelope in journal.read(directory)]


@contextmanager
def files_no_larger_than(limit_bytes: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond the limit, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_appended_is_read_back_in_order_with_its_time(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    record = run.bandwidth()
    directory = run.end()
    envelopes = journal.read(directory.path)
    kinds = [type(each.body).__name__ for each in envelopes]
    assert kinds == ["RunStarted", *["NodeFacts"] * 2, *["Endpoint"] * 2, "Record", "RunEnded"]
    assert envelopes[5].body == record
    assert all(each.at.endswith("+00:00") and len(each.at) == TIME_LENGTH for each in envelopes)


def test_an_event_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run") as opened:
        opened.append(notice("first"))
        assert texts(tmp_path / "run") == ["first"]


def test_the_journal_is_private(tmp_path: Path) -> None:
    filled(tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "journal.jsonl").stat().st_mode) == 0o600


def test_cut_at_any_byte_of_the_last_line_nothing_else_is_lost(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole")
    last_starts = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for cut in range(last_starts, len(whole)):
        directory = tmp_path / f"cut{cut}"
        directory.mkdir()
        (directory / "journal.jsonl").write_bytes(whole[:cut])
        torn = whole[last_starts:cut]

        assert texts(directory) == ["event 0", "event 1"]
        assert journal.inspect(directory).torn == torn

        with Journal.reopen(directory) as opened:
            assert opened.torn == torn
            opened.append(notice("after"))
        kept = texts(directory)
        assert [kept[0], kept[1], kept[-1]] == ["event 0", "event 1", "after"]
        assert len(kept) == (4 if torn else 3)
        if torn:
            assert (directory / "journal.torn").read_bytes() == torn + b"\n"
            assert f"its {len(torn)} bytes" in kept[2]


def test_a_whole_journal_is_reopened_as_it_is(tmp_path: Path) -> None:
    before = filled(tmp_path / "run")
    with Journal.reopen(tmp_path / "run") as opened:
        assert opened.torn == b""
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
    assert not (tmp_path / "run" / "journal.torn").exists()


def test_an_incomplete_last_line_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(tmp_path / "run")
    (tmp_path / "run" / "journal.jsonl").write_bytes(whole[:-5])
    with caplog.at_level(logging.WARNING):
        journal.read(tmp_path / "run")
    assert "the last line is incomplete" in caplog.text


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    lines = filled(tmp_path / "run").splitlines(keepends=True)
    lines[1] = lines[1][:20] + b"\n"
    (tmp_path / "run" / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(StorageError, match=r"journal\.jsonl: line 2: not a message"):
        journal.read(tmp_path / "run")


def test_a_directory_without_a_journal_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no journal\.jsonl"):
        journal.read(tmp_path)
    with pytest.raises(InputError, match=r"no journal\.jsonl"):
        Journal.reopen(tmp_path)


def test_create_leaves_an_existing_journal_alone(tmp_path: Path) -> None:
    before = filled(tmp_path / "run")
    with pytest.raises(StorageError, match="--resume"):
        Journal.create(tmp_path / "run")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before


def test_a_second_writer_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run") as first:
        first.append(notice("first"))
        assert journal.is_being_written(tmp_path / "run")
        with pytest.raises(StorageError, match="another rdmabench is writing"):
            Journal.reopen(tmp_path / "run")
    assert not journal.is_being_written(tmp_path / "run")
    Journal.reopen(tmp_path / "run").close()


def test_after_close_nothing_is_appended(tmp_path: Path) -> None:
    opened = Journal.create(tmp_path / "run")
    opened.close()
    opened.close()
    with pytest.raises(StorageError, match="the journal is closed"):
        opened.append(notice("late"))


def test_a_full_disk_is_said_and_what_was_there_stays(tmp_path: Path) -> None:
    before = filled(tmp_path / "run")
    with Journal.reopen(tmp_path / "run") as opened:
        with files_no_larger_than(len(before) + 40), pytest.raises(StorageError) as caught:
            opened.append(notice("does not fit"))
        assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
        opened.append(notice("fits again"))
    assert "journal.jsonl: File too large" in str(caught.value)
    assert "free space, then `rdmabench sweep --resume run`" in str(caught.value)
    assert texts(tmp_path / "run")[-1] == "fits again"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("mounting a tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a tmpfs: {made.stderr.decode()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_really_full_loses_no_earlier_event(small_disk: Path) -> None:
    run = SyntheticRun(small_disk)
    written = 0

    def append_for_ever() -> None:
        nonlocal written
        while True:
            run.journal.append(notice("x" * 500))
            written += 1

    with pytest.raises(StorageError, match="No space left on device"):
        append_for_ever()
    assert written > 50
    with pytest.raises(StorageError, match="No space left on device"):
        run.directory.keep_samples(os.urandom(80_000), 1, "rtt")
    assert list(run.directory.samples.iterdir()) == []
    assert len(journal.read(run.directory.path)) == written
    run.journal.close()


def test_an_event_that_json_cannot_hold_is_refused_whole(tmp_path: Path) -> None:
    before = filled(tmp_path / "run")
    facts = NodeFacts(host="n", clock_cost_ns=float("nan"))
    with (
        Journal.reopen(tmp_path / "run") as opened,
        pytest.raises(StorageError, match="NodeFacts cannot be written as JSON"),
    ):
        opened.append(facts)
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before


def test_an_interrupt_in_the_middle_of_an_append_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled(tmp_path / "run")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with Journal.reopen(tmp_path / "run") as opened:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                opened.append(notice("cut"))
        assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
        opened.append(notice("next"))
    assert texts(tmp_path / "run")[-1] == "next"


def test_threads_never_mix_their_lines(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run") as opened:

        def append_many(name: str) -> None:
            for number in range(25):
                opened.append(notice(f"{name} {number} {'x' * 2000}"))

        threads = [threading.Thread(target=append_many, args=(f"t{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    kept = [text.split()[:2] for text in texts(tmp_path / "run")]
    assert len(kept) == 150
    for n in range(6):
        assert [b for a, b in kept if a == f"t{n}"] == [str(number) for number in range(25)]


def test_what_failed_is_measured_again_and_what_the_device_lacks_is_not(tmp_path: Path) -> None:
    run = SyntheticRun(tmp_path).begin()
    cases = {name: case_of(BANDWIDTH, repeat=n) for n, name in enumerate("abcde")}
    run.bandwidth(case=cases["a"])
    run.unmeasured(Outcome.UNSUPPORTED, "no such operation", case=cases["b"])
    run.unmeasured(Outcome.FAILED, "lost", case=cases["c"])
    run.unmeasured(Outcome.FAILED, "lost", case=cases["d"])
    run.bandwidth(case=cases["d"])
    run.bandwidth(case=cases["e"])
    run.unmeasured(Outcome.FAILED, "measured again and lost", case=cases["e"])
    run.unmeasured(Outcome.SKIPPED, "node is gone", case=case_of(LATENCY))
    envelopes = journal.read(run.end().path)
    done = journal.finished_case_ids(envelopes)
    assert done == {cases[name].id for name in "abd"}
    assert sum(isinstance(each.body, Record) for each in envelopes) == 8
