"""The error for what is damaged, worded alike everywhere."""

from __future__ import annotations

from binshift.errors import StateFormatError

__all__ = ["damaged"]


def damaged(what: object, reason: object) -> StateFormatError:
    """The error that says that `what`, a file or a part of the state, is damaged."""
    return StateFormatError(
        f"{what} is damaged: {reason}; check the checkpoint with `binshift fsck`, and restore the damaged file "
        "from a copy"
    )
