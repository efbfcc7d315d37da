"""Errors of the operating system and of stores are one line that names the place; exit codes and output."""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import fs

import binshift
from binshift import StateFormatError, StorageError
from binshift.cli.exits import EXIT_CODES
from binshift.cli.main import cli
from binshift.control.failures import storage_error
from binshift.control.files import Files
from binshift.control.mailbox import Mailbox
from checkpoints import Writer
from unit.checkpoints import TWO, HandWritten

FAILED = EXIT_CODES[StorageError]
CHANGED = {"status", "history", "plan", "rescale", "rebalance", "drain", "cancel", "doctor"}
MORE: dict[str, list] = {"plan": ["--partitions", 4], "rescale": [4], "drain": ["1"]}


def run(*arguments):
    return CliRunner().invoke(cli, list(map(str, arguments)))


def one_line(result, *said, code=FAILED):
    assert result.exit_code == code, result.output
    line, link = result.stderr.splitlines()
    assert [part for part in said if part not in line] == []
    assert link.startswith("  see https://")
    return line


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A checkpoint of a join that has rows."""
    root = tmp_path_factory.mktemp("join")
    writer = Writer(root, random.Random(7), 5, False, False, False)
    for _ in range(3):
        writer.epoch(2, [0, 0, 0, 1, 1])
    return root


def put_unreadable(file: Path) -> None:
    """Puts a file there that can be opened but not read, not even by root."""
    file.unlink()
    file.symlink_to("/proc/self/mem")


@pytest.mark.parametrize("command", sorted(CHANGED))
def test_a_file_that_cannot_be_read_is_named_in_one_line_by_each_command(checkpoint, command):
    file = checkpoint.root / "binshift/layout.json"
    put_unreadable(file)
    result = run(command, checkpoint.root, *MORE.get(command, []))
    if command == "doctor":
        assert result.exit_code == 1
        assert f"cannot read {file}: Input/output error" in result.stdout
    else:
        one_line(result, f"StorageError: cannot read {file}: Input/output error; ")


@pytest.mark.parametrize("command", [("state", "show"), ("state", "get"), ("state", "stats"), ("fsck",)])
def test_state_that_cannot_be_read_is_neither_damaged_nor_sound(tmp_path, command):
    root = HandWritten(tmp_path / "checkpoint", TWO, committed=5).root
    put_unreadable(root / "offsets/5")
    one_line(run(*command, root), f"StorageError: cannot read {root}/offsets/5: Input/output error; ")


@pytest.mark.parametrize("command", sorted(CHANGED - {"doctor"}))
def test_a_place_that_the_system_refuses_is_named_in_one_line(tmp_path, command):
    root = tmp_path / ("x" * 300)
    one_line(run(command, root, *MORE.get(command, [])), str(root), "File name too long")


def test_a_file_in_place_of_a_checkpoint_is_no_checkpoint(tmp_path):
    file = tmp_path / "file"
    file.touch()
    one_line(run("status", file), f"{file} is not the checkpoint", code=3)


def test_a_store_that_does_not_answer_is_named_without_its_keys():
    files = Files("s3://KEY:SECRET@bucket/orders?region=us-east-1")
    once = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    files.filesystem = fs.S3FileSystem(
        access_key="KEY", secret_key="SECRET", endpoint_override="http://127.0.0.1:1", retry_strategy=once
    )
    with pytest.raises(StorageError, match=r"cannot read s3://\*\*\*@bucket/orders/a.*connect") as failed:
        files.find("a")
    assert "SECRET" not in str(failed.value)


class ClientError(Exception):
    pass


class Library(fs.FileSystemHandler):
    """A file system of a Python library that raises an exception of its own."""

    def _fail(self, *_: object, **__: object) -> None:
        raise ClientError("An error occurred (SlowDown) for s3://KEY:SECRET@b/ck\n  at line 1\n  at line 2")

    get_file_info = get_file_info_selector = open_input_stream = open_output_stream = create_dir = _fail
    open_input_file = open_append_stream = delete_dir = delete_dir_contents = delete_file = move = _fail
    delete_root_dir_contents = copy_file = normalize_path = _fail

    def get_type_name(self) -> str:
        return "library"


@pytest.mark.parametrize(
    "asked",
    [
        lambda f: f.find("a"),
        lambda f: f.open("a"),
        lambda f: f.exists("a"),
        lambda f: f.sizes("a"),
        lambda f: Mailbox(binshift.control.directory.ControlDir(f)).take_back("id"),
    ],
)
def test_what_a_library_raises_is_one_line_as_well(asked):
    files = Files("s3://KEY:SECRET@b/ck", fs.LocalFileSystem())
    files.filesystem = fs.PyFileSystem(Library())
    with pytest.raises(StorageError) as failed:
        asked(files)
    said = str(failed.value)
    assert "s3://***@b/ck" in said
    assert "An error occurred (SlowDown) for" in said
    assert not any(hidden in said for hidden in ("SECRET", "at line", "\n"))
    assert isinstance(failed.value, OSError)


def test_an_output_without_room_and_one_that_cannot_be_made_are_named(stored, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".0-count.parquet.incomplete").symlink_to("/dev/full")
    asked = ("state", "export", stored, "--family", "count", "--output")
    one_line(run(*asked, out), f"cannot write {out}/0-count.parquet: No space left on device; make room")
    one_line(run(*asked, "/proc/self/out"), "/proc/self/out: No such file")
    scratch = tmp_path / "none"
    one_line(run("fsck", stored, "--scratch", scratch), f"cannot use {scratch}/")


def test_a_scratch_directory_without_room_is_no_damage(stored, tmp_path):
    def bounded():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    command = [sys.executable, "-m", "binshift", "state", "get", stored, "--family", "count"]
    done = subprocess.run(
        [*command, "--scratch", tmp_path], capture_output=True, text=True, check=False, preexec_fn=bounded
    )
    assert done.returncode == FAILED, done.stderr
    line, _ = done.stderr.splitlines()
    assert f"cannot use {tmp_path}" in line
    assert "File too large; make room there" in line


def test_a_terminal_that_takes_no_more_is_told_from_a_reader_that_has_gone(stored):
    command = [sys.executable, "-m", "binshift", "state", "get", str(stored), "--family", "count"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == FAILED
    assert done.stderr.startswith("StorageError: cannot write the output: No space left")
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, check=False)
    os.close(written)
    assert done.returncode == 1
    assert "StorageError" not in done.stderr


def test_what_is_wrong_with_data_is_damage_and_no_failure_of_the_system(stored):
    opened = binshift.inspect.open(stored)
    with opened, pytest.raises(StateFormatError, match="is missing from") as missing:
        opened._facts.files.read("state/none")
    assert missing.value.condition == "FILE_MISSING"
    assert "try again" in str(storage_error("read", "x", OSError("whatever")))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_question_is_taken_back_when_whoever_asks_is_interrupted(checkpoint, how):
    # A run of the tests in the background ignores interrupts, and so would what it starts.
    heeding = ["env", "--default-signal=INT"]
    command = [*heeding, sys.executable, "-m", "binshift", "status", checkpoint.root, "--live", "600"]
    asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not checkpoint.requests() and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                asking.wait(0.05)
        assert [r["kind"] for r in checkpoint.requests()] == ["status"]
        asking.send_signal(how)
        assert asking.wait(60) != 0
    finally:
        asking.kill()
        asking.communicate()
    assert checkpoint.requests() == []


def test_the_module_does_what_the_program_does():
    command = [sys.executable, "-m", "binshift", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == run("--version").stdout.replace("cli", "binshift")


def test_the_name_of_a_column_is_shown_as_it_is(stored):
    line = one_line(run("state", "get", stored, "nosuch", "--family", "count"), code=3)
    assert "'nosuch' of column k of the key is impossible; give a value of type long" in line
    key = json.dumps({"k": 1, "__event_time": "nosuch"})
    line = one_line(run("state", "get", stored, key, "--family", "left-keyWithTsToValues"), code=3)
    assert "of column __event_time of the key is impossible" in line


def test_counts_of_bins_end_with_their_sum(stored):
    lines = run("state", "stats", stored, "--family", "count").stdout.splitlines()
    rows = [line.split() for line in lines[1:-1]]
    keys, size = (sum(int(row[column]) for row in rows) for column in (-2, -1))
    places = len({row[-4] for row in rows})
    assert lines[-1] == f"total: {keys} keys and {size} bytes in {places} partitions"
    assert len(rows) > 1
