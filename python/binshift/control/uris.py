"""URIs as they may be shown: credentials that they carry stay out of messages, logs and reports."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

__all__ = ["shown", "without_secrets"]

_HIDDEN = "***"

#: Parameters of pyarrow's URIs that say where and how, and not who; all others are hidden.
_PLAIN = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"})


def shown(uri: str) -> str:
    """The URI without its password or keys, and without parameters that may be secret."""
    parts = _split(uri)
    if parts is None:
        # Whatever it is, it may have a password in it.
        return f"{uri.partition('://')[0]}://{_HIDDEN}" if "://" in uri else uri
    if not _secrets(parts):
        return uri
    host = parts.netloc.rpartition("@")[2]
    place = f"{_HIDDEN}@{host}" if _account(parts) else parts.netloc
    fields = [f"{k}={v if k in _PLAIN else _HIDDEN}" for k, v in parse_qsl(parts.query, keep_blank_values=True)]
    return f"{parts.scheme}://{place}{parts.path}" + ("?" + "&".join(fields) if fields else "")


def without_secrets(text: str, uri: str) -> str:
    """A message of another library about `uri`, without what `shown` hides."""
    text = text.replace(uri, shown(uri))
    parts = _split(uri)
    for secret in {s for value in _secrets(parts) for s in (value, unquote(value)) if s} if parts else ():
        text = text.replace(secret, _HIDDEN)
    return text


def _split(uri: str) -> SplitResult | None:
    """The parts of a URI; None if it is none, as with brackets that do not hold an address."""
    try:
        return urlsplit(uri)
    except ValueError:
        return None


def _account(parts: SplitResult) -> list[str]:
    """User and password. A user alone is no secret but in S3: of HDFS it is a name, of Azure the container."""
    account = parts.netloc.rpartition("@")[0]
    return account.split(":", 1) if account and (":" in account or parts.scheme.startswith("s3")) else []


def _secrets(parts: SplitResult) -> list[str]:
    if not parts.scheme:
        return []
    fields = parse_qsl(parts.query, keep_blank_values=True)
    return _account(parts) + [value for name, value in fields if name not in _PLAIN]
