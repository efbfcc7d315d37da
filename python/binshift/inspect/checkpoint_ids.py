"""The ids that name the files of a version, under checkpoint format 2."""

from __future__ import annotations

from functools import lru_cache

from binshift.control.damage import NOT_UNDERSTOOD, plain_name, understood
from binshift.control.files import Files, parse_json
from binshift.errors import StateFormatError

__all__ = ["CheckpointIds"]

#: Joins of the older state formats list the ids of their stores in this order.
_JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


class CheckpointIds:
    """The ids of each version, from Spark's log of commits or from the copy in `binshift/ids`.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        # A cache per instance, so that it is freed with it.
        self._ids = lru_cache(maxsize=64)(self._read)

    def of(self, operator: int, partition: int, store: str, version: int) -> str | None:
        """The id of a store's version; None under format 1.

        Raises
        ------
        StateFormatError
            If the version has format 2, and its ids are gone.
        """
        ids = self._ids(version)
        if not ids:
            return None
        position = _JOIN_STORES.index(store) if store in _JOIN_STORES else 0
        try:
            return plain_name(ids[str(operator)][partition][position])
        except NOT_UNDERSTOOD:
            raise StateFormatError(
                f"commits/{version - 1} has no checkpoint id of operator {operator}, partition {partition}, "
                f"store {store}; restore it from a copy of the checkpoint"
            ) from None

    def _read(self, version: int) -> dict[str, list[list[str]]] | None:
        path, kept = f"commits/{version - 1}", f"binshift/ids/{version}"
        if self._files.exists(path):
            lines = self._files.read(path).split(b"\n")
            with understood(path):
                found = parse_json(lines[1] or b"{}", path).get("stateUniqueIds") if len(lines) > 1 else None
                return None if found is None else dict(found)
        if self._files.exists(kept):
            with understood(kept):
                return dict(self._files.read_json(kept))
        return None
