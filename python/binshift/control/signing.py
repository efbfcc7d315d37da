"""Signs requests with a secret that the query knows, too, so that it serves only those who have it."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from binshift.errors import ConfigurationError

__all__ = ["SECRET", "SECRET_FILE", "secret_of", "signed"]

#: Environment variables with the secret, or with the name of a file that contains it. The file takes
#: precedence.
SECRET, SECRET_FILE = "BINSHIFT_REQUESTS_SECRET", "BINSHIFT_REQUESTS_SECRET_FILE"
_FEWEST_BYTES = 16
#: Blanks that editors put at the end of a file; the same that `String.trim` removes in the driver.
_BLANKS = bytes(range(33))
_DOMAIN = b"binshift request 1\n"


def secret_of(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The secret from the environment, or from the file named there; None if there is neither.

    Raises
    ------
    ConfigurationError
        If the file can't be read, or the secret is so short that it can be guessed.
    """
    if file := environment.get(SECRET_FILE):
        try:
            secret = Path(file).read_bytes().strip(_BLANKS)
        except (OSError, ValueError) as error:
            raise _useless(SECRET_FILE, file, f"cannot be read ({error})") from error
    elif (text := environment.get(SECRET)) is not None:
        secret = text.encode("utf-8", "surrogateescape").strip(_BLANKS)
    else:
        return None
    if len(secret) < _FEWEST_BYTES:
        which, value = (SECRET_FILE, file) if file else (SECRET, "***")
        raise _useless(which, value, f"has a secret of {len(secret)} bytes, and {_FEWEST_BYTES} are needed")
    return secret


def signed(request: Mapping[str, Any], secret: bytes, query: str) -> dict[str, Any]:
    """Puts a request into an envelope with its signature.

    Parameters
    ----------
    request : mapping
    secret : bytes
    query : str
        Id of the query that the request is for; no other query serves it.
    """
    issued_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = json.dumps({**request, "query": query, "issued_at": issued_at})
    signature = hmac.digest(secret, _DOMAIN + text.encode(), "sha256").hex()
    return {"format": request["format"], "id": request["id"], "signed": text, "signature": signature}


def _useless(name: str, value: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} {reason}; give a secret that the query has, too, as its setting requests.secretFile says",
        condition="INVALID_VALUE",
        name=name,
        value=value,
    )
