"""Names that have changed. The old ones still work for one minor version, and warn."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection
from typing import Any, TypeVar

__all__ = ["OLD_NAMES", "renamed_arguments", "warn_of"]

_T = TypeVar("_T", bound=type)

#: Each old name that still works, and the version that no longer has it. A test fails when that version comes.
OLD_NAMES: dict[str, str] = {
    "plan(partitions=...)": "0.2",
    "plan(assignment=...)": "0.2",
    "rescale(partitions=...)": "0.2",
    "rescale(assignment=...)": "0.2",
    "binshift.strategies": "0.2",
    **{
        f"binshift.{name}": "0.2"
        for name in ("Action", "Change", "Cluster", "Decision", "Observation", "ScalingSettings", "decide")
    },
    # A key of JSON, which cannot warn. The driver adds it.
    "waits_because": "0.2",
}


def warn_of(old: str, new: str, *, stacklevel: int = 2) -> None:
    """Warns whoever uses an old name.

    Parameters
    ----------
    old : str
        One of `OLD_NAMES`.
    new : str
        What to write instead.
    stacklevel : int
        As `warnings.warn` counts it, from the caller of this function.
    """
    message = f"{old} is deprecated and will be gone in binshift {OLD_NAMES[old]}; write {new} instead"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel + 1)


def renamed_arguments(methods: Collection[str], **names: str) -> Callable[[_T], _T]:
    """Has methods of a class take arguments by their old names as well.

    Parameters
    ----------
    methods : collection of str
        Names of the methods.
    names : str
        The new name of an argument by its old one.
    """

    def decorate(kind: _T) -> _T:
        for name in methods:
            setattr(kind, name, _with_old_names(getattr(kind, name), names))
        return kind

    return decorate


def _with_old_names(method: Callable[..., Any], names: dict[str, str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old, new in names.items():
            # An argument that is given by both names is left for Python to refuse.
            if old in kwargs and new not in kwargs:
                warn_of(f"{method.__name__}({old}=...)", f"{method.__name__}(...), whose argument is {new!r}")
                kwargs[new] = kwargs.pop(old)
        return method(*args, **kwargs)

    return call
