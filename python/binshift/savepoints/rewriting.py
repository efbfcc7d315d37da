"""Tells how a copy of a checkpoint is different: it is in another place, and may have fewer operators.

Spark numbers the stateful operators of a query in the order of its plan. If one is left out, those after it get
other numbers, so their directories do, and all files that name them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from binshift.control.damage import understood
from binshift.control.files import Files
from binshift.control.uris import is_uri
from binshift.errors import ConfigurationError

__all__ = ["Rewriting", "number_of"]

#: Where the number of an operator is in a path: of its state, or of a note about its keys.
_STATE = re.compile(r"state/(\d+)/(.*)", re.DOTALL)
_KEYS = re.compile(r"binshift/changed_keys/(\d+)")
#: Relies on Spark: metadata of version 2 have paths of schemas, such as `file:/data/state/0/_stateSchema/…`.
_SCHEMA = re.compile(r"(.*)/state/\d+/(_stateSchema/.*)", re.DOTALL)


def number_of(path: str) -> int | None:
    """The number of the operator to which a file belongs, if it belongs to one."""
    match = _STATE.fullmatch(path) or _KEYS.fullmatch(path)
    return None if match is None else int(match[1])


class Rewriting:
    """The differences between a checkpoint and its copy.

    Parameters
    ----------
    source, target : Files
    operators : mapping
        The names of the source's operators, by their numbers.
    dropped : collection of int
        The operators that the copy doesn't have.

    Raises
    ------
    ConfigurationError
        If there is no such operator.
    """

    def __init__(
        self, source: Files, target: Files, operators: Mapping[int, str], dropped: Collection[int]
    ) -> None:
        for number in dropped:
            if number not in operators:
                there = ", ".join(f"{n} {name}" for n, name in sorted(operators.items())) or "none"
                raise ConfigurationError(
                    f"{source.name} has no operator {number}; its stateful operators: {there}",
                    condition="OPERATOR_NOT_FOUND",
                    operator=number,
                )
        self._source, self._target = source, target
        self._drops = bool(dropped)
        left = [n for n in sorted(operators) if n not in dropped]
        self._numbers: dict[int, int | None] = {
            **dict.fromkeys(operators),
            **{n: i for i, n in enumerate(left)},
        }

    def path(self, path: str) -> str | None:
        """Where a file of the source is in the copy; None if the copy doesn't have it."""
        if (operator := number_of(path)) is not None:
            number = self._numbers[operator]
            match = _STATE.fullmatch(path)
            to = f"state/{number}/{match[2]}" if match else f"binshift/changed_keys/{number}"
            return None if number is None else to
        # A query does without, and then takes all bins for equal.
        return None if self._drops and path == "binshift/statistics.json" else path

    def content(self, path: str, data: bytes) -> bytes:
        """What a small file of the source, which the copy has, contains there."""
        change = self._change_of(path)
        if change is None:
            return data
        with understood(f"{self._source.name}/{path}"):
            # Relies on Spark: the first line of its files is a version, and the rest is JSON.
            head, text = (b"", data) if path.startswith("binshift/") else data.split(b"\n", 1)
            before = json.loads(text or b"{}")
            after = change(before)
        return data if after == before else (head + b"\n" if head else b"") + json.dumps(after).encode()

    def _change_of(self, path: str) -> Callable[[Any], Any] | None:
        if (match := _STATE.fullmatch(path)) and match[2].startswith("_metadata/"):
            return self._metadata
        if not self._drops:
            return None
        if path.startswith("commits/"):
            return self._commit
        if path.startswith("binshift/ids/"):
            return self._by_operator
        if path == "binshift/layout.json":
            return self._layout
        return self._changed_keys if _KEYS.fullmatch(path) else None

    def _metadata(self, data: Any) -> Any:
        info = data["operatorInfo"]
        number = self._numbers[info["operatorId"]]
        stores = [
            {**s, "stateSchemaFilePaths": [self._moved(p, number) for p in s["stateSchemaFilePaths"]]}
            if "stateSchemaFilePaths" in s
            else s
            for s in data["stateStoreInfo"]
        ]
        return {**data, "operatorInfo": {**info, "operatorId": number}, "stateStoreInfo": stores}

    def _moved(self, file: str, number: int | None) -> str:
        match = _SCHEMA.fullmatch(file)
        if match is None:
            return file
        there, root, target = match[1], self._source.path(""), self._target.path("")
        scheme = there.removesuffix(root)
        # The path of an object store begins with the bucket.
        before = r"|[a-z0-9+.-]+:(//[^/]*)?" if root.startswith("/") else "[a-z0-9+.-]+://"
        is_there = there.endswith(root) and re.fullmatch(before, scheme, re.IGNORECASE)
        if is_there and self._source.filesystem.equals(self._target.filesystem):
            new = scheme + target
        elif self._target.name.startswith("s3"):
            new = f"s3a://{target}"
        elif is_uri(self._target.name):
            new = self._target.name.partition("?")[0].rstrip("/")
        else:
            new = f"file:{target}"
        return f"{new}/state/{number}/{match[2]}"

    def _commit(self, data: Any) -> Any:
        ids = data.get("stateUniqueIds")
        return data if not ids else {**data, "stateUniqueIds": self._by_operator(ids)}

    def _by_operator(self, data: Any) -> Any:
        numbers = {operator: self._numbers[int(operator)] for operator in data}
        return {str(new): data[old] for old, new in numbers.items() if new is not None}

    def _layout(self, data: Any) -> Any:
        there = [{**o, "id": n} for o in data["operators"] if (n := self._numbers[o["id"]]) is not None]
        return {**data, "operators": there}

    def _changed_keys(self, data: Any) -> Any:
        return {**data, "operator": self._numbers[data["operator"]]}
