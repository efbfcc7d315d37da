"""Tells what counts as a number in a user's arguments. A bool doesn't."""

from __future__ import annotations

from typing import TypeGuard

__all__ = ["is_number", "is_whole"]


def is_whole(value: object, least: int = 0, most: float = float("inf")) -> TypeGuard[int]:
    """True if it is an int from `least` to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object) -> TypeGuard[float]:
    """True if it is an int or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)
