"""Distinguishes URIs from paths, converts them for pyarrow, and hides the credentials in them."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

__all__ = ["for_pyarrow", "is_uri", "place_and_path", "shown", "with_suffix", "within", "without_secrets"]

_HIDDEN = "***"

#: Parameters of pyarrow's URIs that may be shown; all others may identify somebody, and are hidden.
_PLAIN = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"})


#: A URI: scheme and host, path, parameters. (A colon alone may be part of a path.)
_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+:(?://[^/?]*|(?=/)))([^?]*)(.*)", re.DOTALL)
#: Characters, besides letters and digits, that pyarrow's parser takes literally in a path.
_OF_PATHS = "/:@!$&'()*+,;=~"


def is_uri(text: str) -> bool:
    """True if it is a URI, rather than a local path."""
    return _split_path(text) is not None


def for_pyarrow(uri: str) -> str:
    """Converts a URI so that pyarrow takes the same path from it that Hadoop takes from `uri`.

    Hadoop, and so Spark, take a path literally. pyarrow decodes `%`, and refuses blanks. The parts before and
    after the path are pyarrow's own form already, and stay as they are, except for Hadoop's name for S3.
    """
    parts = _split_path(uri)
    if parts is None:
        return uri
    place, path, parameters = parts
    return re.sub(r"^s3[an]:", "s3:", place) + quote(path, safe=_OF_PATHS) + parameters


def place_and_path(uri: str) -> tuple[str, str]:
    """Parts scheme and authority from the path, which is taken literally. Parameters are left out."""
    place, path, _ = _split_path(uri) or ("", uri, "")
    return place, path


def within(directory: str, name: str) -> str:
    """The path or URI of a file in a directory."""
    place, path, parameters = _split_path(directory) or ("", directory, "")
    return f"{place}{path.rstrip('/')}/{name}{parameters}"


def with_suffix(text: str) -> tuple[str, str] | None:
    """Parts what comes after the last `@` of a path's or URI's last component from the rest; None if none does.

    The account of a URI isn't part of its path, and parameters stay with it.
    """
    place, path, parameters = _split_path(text) or ("", text, "")
    rest, at, suffix = path.rpartition("@")
    return (f"{place}{rest}{parameters}", suffix) if at and rest and suffix and "/" not in suffix else None


def shown(uri: str) -> str:
    """The URI without its password or keys, and without parameters that may be secret."""
    parts = _split(uri)
    if parts is None:
        # It isn't understood, so it may have a password anywhere.
        return f"{uri.partition('://')[0]}://{_HIDDEN}" if "://" in uri else uri
    if not _secrets(parts):
        return uri
    host = parts.netloc.rpartition("@")[2]
    place = f"{_HIDDEN}@{host}" if _account(parts) else parts.netloc
    fields = [f"{k}={v if k in _PLAIN else _HIDDEN}" for k, v in parse_qsl(parts.query, keep_blank_values=True)]
    return f"{parts.scheme}://{place}{parts.path}" + ("?" + "&".join(fields) if fields else "")


def without_secrets(text: str, uri: str) -> str:
    """A message of another library about `uri`, without the parts that `shown` hides."""
    text = text.replace(uri, shown(uri))
    parts = _split(uri)
    for secret in {s for value in _secrets(parts) for s in (value, unquote(value)) if s} if parts else ():
        text = text.replace(secret, _HIDDEN)
    return text


def _split_path(uri: str) -> tuple[str, str, str] | None:
    match = _URI.fullmatch(uri)
    return None if match is None else (match[1], match[2], match[3])


def _split(uri: str) -> SplitResult | None:
    """The parts of a URI; None if it can't be parsed, for example because its brackets contain no address."""
    try:
        return urlsplit(uri)
    except ValueError:
        return None


def _account(parts: SplitResult) -> list[str]:
    """User and password. A user alone is a secret only in S3. In HDFS it is a name, in Azure a container."""
    account = parts.netloc.rpartition("@")[0]
    return account.split(":", 1) if account and (":" in account or parts.scheme.startswith("s3")) else []


def _secrets(parts: SplitResult) -> list[str]:
    if not parts.scheme:
        return []
    fields = parse_qsl(parts.query, keep_blank_values=True)
    return _account(parts) + [value for name, value in fields if name not in _PLAIN]
