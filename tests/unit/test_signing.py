"""Requests are signed if the environment has a secret, in the form that the driver expects."""

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import pytest

from binshift.control.directory import open_directory
from binshift.control.mailbox import Mailbox
from binshift.control.signing import SECRET, SECRET_FILE, secret_of
from binshift.errors import ConfigurationError

LONG = "a secret of more than sixteen bytes"


@pytest.fixture
def mailbox(checkpoint):
    checkpoint.write("metadata", {"id": "7b1d0c1e-52b9-4a4f-9d3b-0d4f6f1f2a11"})
    return Mailbox(open_directory(str(checkpoint.root)))


def test_a_request_is_signed_for_its_query_and_its_time(checkpoint, mailbox, monkeypatch):
    monkeypatch.setenv(SECRET, LONG)
    id = mailbox.cancel("m-1")
    (envelope,) = checkpoint.requests()
    text = envelope["signed"]
    assert envelope == {"format": 1, "id": id, "signed": text, "signature": envelope["signature"]}
    # HMAC by its definition in RFC 2104.
    key = LONG.encode().ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key) + b"binshift request 1\n" + text.encode()).digest()
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in key) + inner)
    assert hmac.compare_digest(envelope["signature"], outer.hexdigest())
    request = json.loads(text)
    issued_at = datetime.fromisoformat(request.pop("issued_at"))
    assert abs(datetime.now(UTC) - issued_at) < timedelta(minutes=1)
    assert request == {
        "format": 1, "id": id, "kind": "cancel", "migration_id": "m-1",
        "query": "7b1d0c1e-52b9-4a4f-9d3b-0d4f6f1f2a11",
    }  # fmt: skip


def test_without_a_secret_requests_are_as_they_were(checkpoint, mailbox, monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)
    monkeypatch.delenv(SECRET_FILE, raising=False)
    id = mailbox.cancel("m-1")
    assert checkpoint.requests() == [{"format": 1, "id": id, "kind": "cancel", "migration_id": "m-1"}]


def test_the_file_comes_first_and_blanks_at_its_ends_are_none_of_the_secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"  {LONG}\x1c\r\n")
    assert secret_of({SECRET_FILE: str(file), SECRET: "other secret, long enough"}) == LONG.encode()
    assert secret_of({}) is None


@pytest.mark.parametrize("environment", [{SECRET: "short"}, {SECRET: ""}, {SECRET_FILE: "/nowhere/at/all"}])
def test_a_secret_that_is_useless_is_refused_and_not_shown(environment):
    with pytest.raises(ConfigurationError) as refused:
        secret_of(environment)
    assert refused.value.condition == "INVALID_VALUE"
    assert "short" not in str(refused.value)
