"""The command line's client of HDFS behaves like pyarrow's local file system."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyarrow import fs

from binshift.control.files import Files
from binshift.errors import StateFormatError, StorageError

pytestmark = [pytest.mark.field, pytest.mark.timeout(600)]


@pytest.fixture(params=["local", "hdfs"])
def files(request: pytest.FixtureRequest, tmp_path: object) -> Files:
    # Spark takes paths literally.
    root = str(tmp_path) if request.param == "local" else request.getfixturevalue("hdfs")
    return Files(f"{root}/a b%20c")


def test_files_are_written_listed_read_copied_and_deleted(files):
    assert (files.sizes(""), files.exists("x"), files.find("x"), files.delete("x")) == ({}, False, None, False)
    files.write("d/x", b"1")
    files.write("d/x", b"22")
    assert (files.read("d/x"), files.sizes("d"), files.directories("")) == (b"22", {"x": 2}, ["d"])
    assert datetime.now(UTC) - files.times("d")["x"] < timedelta(minutes=5)
    files.filesystem.copy_file(files.path("d/x"), files.path("d/y"))
    files.write("z", b"")
    assert files.below("") == ["d/x", "d/y", "z"]
    assert files.delete("d/x")
    files.filesystem.delete_dir_contents(files.path("d"))
    assert (files.exists("d"), files.below("")) == (True, ["z"])
    files.filesystem.delete_dir(files.path("d"))
    assert not files.exists("d")


def test_a_large_file_is_read_in_pieces_and_from_anywhere(files):
    data = bytes(range(256)) * 20_000
    files.write("large", data)
    with files.open("large") as stream:
        assert (stream.read(100), stream.read(), stream.read(5)) == (data[:100], data[100:], b"")
    with files.filesystem.open_input_file(files.path("large")) as file:
        assert file.size() == len(data)
        file.seek(len(data) - 10)
        assert file.read(100) == data[-10:]


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda f: f.read("absent"), StateFormatError),
        (lambda f: f.sizes("d/x"), StorageError),
        (lambda f: f.write("d/x/y", b""), StorageError),
        (lambda f: f.delete("d"), StorageError),
        (lambda f: f.filesystem.create_dir(f.path("n/m"), recursive=False), FileNotFoundError),
        (lambda f: f.filesystem.get_file_info(fs.FileSelector(f.path("absent"))), FileNotFoundError),
    ],
    ids=["missing file", "list a file", "below a file", "delete a directory", "no parent", "list nothing"],
)
def test_mistakes_are_refused(files: Files, do: Callable[[Files], object], error: type[Exception]) -> None:
    files.write("d/x", b"1")
    with pytest.raises(error):
        do(files)
    assert files.read("d/x") == b"1"


def test_file_systems_are_equal_if_they_are_at_the_same_place(hdfs):
    here, there = Files(f"{hdfs}/a").filesystem, Files(f"{hdfs}/b").filesystem
    assert here.equals(there)
    assert not here.equals(Files(hdfs.replace("127.0.0.1", "localhost")).filesystem)
