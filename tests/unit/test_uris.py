"""URIs are shown without their credentials."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from pyarrow import fs

from binshift.cli import status
from binshift.cli.main import cli
from binshift.control.directory import ControlDir
from binshift.control.files import Files
from binshift.control.mailbox import Mailbox
from binshift.control.uris import for_pyarrow, is_uri, shown, with_suffix, within, without_secrets
from binshift.errors import ConfigurationError, MigrationTimeout

S3 = "s3://AKIAKEY:sE%2Fcret@bucket/orders?region=eu-west-1&endpoint_override=localhost%3A9000"
TOKEN = f"{S3}&session_token=t0ken"
HIDDEN = "s3://***@bucket/orders?region=eu-west-1&endpoint_override=localhost:9000"
SECRETS = ("AKIAKEY", "sE", "cret", "t0ken")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/data/a@b?c=d", "/data/a@b?c=d"),
        ("file:///data/a@b", "file:///data/a@b"),
        ("s3://bucket/orders", "s3://bucket/orders"),
        (S3, HIDDEN),
        (TOKEN, f"{HIDDEN}&session_token=***"),
        ("abfss://box@account.dfs.core.windows.net/o", "abfss://box@account.dfs.core.windows.net/o"),
        ("abfss://:key@account.dfs.core.windows.net/box", "abfss://***@account.dfs.core.windows.net/box"),
        ("hdfs://user@namenode:8020/o", "hdfs://user@namenode:8020/o"),
    ],
)
def test_a_uri_is_shown_without_user_password_and_tokens(uri, expected):
    assert shown(uri) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (f"{S3}&x=%2F y", f"{S3}&x=%2F y"),
        ("s3a://K%2F:s c@b/date=2024%2D01/a b?region=r", "s3://K%2F:s c@b/date=2024%252D01/a%20b?region=r"),
        ("s3n://bucket", "s3://bucket"),
        ("hdfs://user@host:8020/ä#1", "hdfs://user@host:8020/%C3%A4%231"),
        ("file:/a%20b", "file:/a%2520b"),
        ("/data/a b%20c:/d", "/data/a b%20c:/d"),
    ],
)
def test_pyarrow_gets_the_path_by_the_letter_and_the_rest_as_it_is(uri, expected):
    assert for_pyarrow(uri) == expected


@pytest.mark.parametrize("name", ["a b", "date=2024%2D01", "a%20b", "ä#1", "100%"])
@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_a_directory_is_opened_by_the_name_that_it_has(tmp_path, scheme, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "here").write_text("yes")
    files = Files(f"{scheme}{tmp_path}/{name}")
    assert files.read("here") == b"yes"
    assert files.name == f"{scheme}{tmp_path}/{name}"


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("/data/out/", "/data/out/f.csv"),
        ("out?a", "out?a/f.csv"),
        ("s3://bucket", "s3://bucket/f.csv"),
        ("s3://KEY:SECRET@bk/out/?region=eu-west-1", "s3://KEY:SECRET@bk/out/f.csv?region=eu-west-1"),
        ("s3://bk?region=eu-west-1", "s3://bk/f.csv?region=eu-west-1"),
    ],
)
def test_a_file_of_a_directory_is_named_in_the_path_of_its_uri(directory, expected):
    assert within(directory, "f.csv") == expected
    assert is_uri(directory) is directory.startswith("s3:")


def test_messages_of_others_lose_what_is_secret_in_them():
    text = without_secrets(f"cannot parse '{TOKEN}': sE/cret is no key of AKIAKEY", TOKEN)
    assert not any(secret in text for secret in SECRETS)
    assert text.startswith("cannot parse 's3://***@bucket/orders?")


def test_no_uri_is_opened_or_refused_with_its_secrets():
    assert Files(S3).name == HIDDEN
    # Hadoop's spelling of the scheme.
    assert Files(S3.replace("s3:", "s3a:")).path("offsets") == "bucket/orders/offsets"
    with pytest.raises(ConfigurationError, match="pyarrow cannot open") as refused:
        Files(TOKEN)
    assert not any(secret in str(refused.value) for secret in SECRETS)
    assert refused.value.__cause__ is None


def test_a_path_in_hdfs_is_taken_literally_and_no_name_node_is_asked_yet():
    files = Files("hdfs://namenode:8020/my orders%20")
    assert files.path("offsets") == "/my orders%20/offsets"
    assert files.filesystem.equals(Files("hdfs://namenode:8020/other").filesystem)
    assert not files.filesystem.equals(Files("hdfs://namenode:8021/other").filesystem)


def test_who_lacks_a_client_of_hdfs_is_told_so_in_a_line(monkeypatch):
    def fail(uri):
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed\n" * 50)

    monkeypatch.setattr("binshift.control.files.find_spec", lambda name: None)
    monkeypatch.setattr("binshift.control.files.fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=fail)))
    with pytest.raises(ConfigurationError, match=r"Unable to load libjvm.*binshift\[hdfs\]") as refused:
        Files("hdfs://namenode:8020/orders")
    assert "dlopen" not in str(refused.value)


def test_status_and_time_outs_do_not_print_secrets(tmp_path, monkeypatch):
    def opened(uri):
        files = Files(uri)
        files.filesystem, files._root = fs.LocalFileSystem(), str(tmp_path)
        return ControlDir(files)

    mailbox = Mailbox(opened(S3))
    with pytest.raises(MigrationTimeout, match=r"the request s3://\*\*\*@bucket/orders.* stays") as late:
        mailbox.answer(mailbox.cancel("m-1"), 0)
    assert not any(secret in str(late.value) for secret in SECRETS)
    (tmp_path / "binshift/routing").mkdir()
    layout = {"format": 1, "bins": 2, "hash": "murmur3-42", "spark_version": "4.3.0", "operators": []}
    entry = {"format": 1, "epoch": 0, "partitions": 1, "assignment": [0, 0]}
    entry |= {"written_at": "1970-01-01T00:00:00Z", "previous": -1}
    (tmp_path / "binshift/layout.json").write_text(json.dumps(layout))
    (tmp_path / "binshift/routing/0").write_text(json.dumps(entry))
    monkeypatch.setattr(status, "open_directory", opened)
    for line in (["status", S3], ["status", S3, "--json"]):
        result = CliRunner().invoke(cli, line)
        assert result.exit_code == 0, result.output
        assert "***@bucket" in result.output
        assert not any(secret in result.output for secret in SECRETS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("/data/orders@before", ("/data/orders", "before")),
        ("/data/a@b/orders", None),
        ("/data/a@b/orders@7", ("/data/a@b/orders", "7")),
        ("s3://bucket/orders@before?region=eu-west-1", ("s3://bucket/orders?region=eu-west-1", "before")),
        ("s3://KEY:SECRET@bucket", None),
        ("s3://KEY:SECRET@bucket/orders@7", ("s3://KEY:SECRET@bucket/orders", "7")),
        ("abfs://container@account.dfs.core.windows.net/orders", None),
        ("orders@", None),
        ("@orders", None),
    ],
)
def test_what_follows_an_at_is_part_of_the_last_component_of_a_path(text, parts):
    assert with_suffix(text) == parts
