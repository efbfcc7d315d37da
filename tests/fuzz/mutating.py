"""Damaged and random inputs that are made from valid ones; a seed always gives the same inputs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

#: The values that replace sizes, counts and offsets.
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    128,
    255,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
)
#: The values that replace values in JSON.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1 << 31, 1 << 70, -(1 << 70), 1e308, float("nan"), "", "x", "..",
    "../../../x", "/etc/hostname", "\ud800", "\u0000", [], {}, [[]], {"": None}, [0] * 9, "9" * 5000,
)  # fmt: skip
_MOST_BYTES = 1 << 16


class Mutator:
    """Makes inputs from examples."""

    def __init__(self, examples: Sequence[bytes], seed: int) -> None:
        self._examples, self._random = list(examples), random.Random(seed)

    def input(self) -> bytes:
        """The next input."""
        r = self._random
        if r.random() < 0.02:
            return r.randbytes(r.randrange(200))
        data = bytearray(r.choice(self._examples))
        if r.random() < 0.5 and (made := self._of_json(data)) is not None:
            return made
        for _ in range(r.choice((1, 1, 1, 2, 4, 16))):
            self._damage(data)
        return bytes(data[:_MOST_BYTES])

    def _damage(self, data: bytearray) -> None:
        r = self._random
        at, n = r.randrange(len(data) + 1), r.choice((1, 1, 2, 4, 8, 40))
        match r.randrange(8):
            case 0:
                data[at : at + 1] = bytes(b ^ 1 << r.randrange(8) for b in data[at : at + 1])
            case 1:
                data[at : at + n] = r.randbytes(n)
            case 2:
                data[at:at] = r.randbytes(n)
            case 3:
                del data[at : at + n]
            case 4:
                del data[at:]
            case 5:
                data[at:at] = data[at : at + n] * r.choice((1, 2, 50))
            case 6:
                width, order = r.choice((1, 2, 4, 8)), r.choice(("little", "big"))
                number = r.choice(NUMBERS) & ((1 << 8 * width) - 1)
                data[at : at + width] = number.to_bytes(width, order)  # type: ignore[arg-type]
            case 7:
                other = r.choice(self._examples)
                start = r.randrange(len(other) + 1)
                data[at : at + n] = other[start : start + r.choice((n, len(other)))]

    def _of_json(self, data: bytearray) -> bytes | None:
        """The data with other values in its JSON, which may follow other lines; None without JSON."""
        at = min((i for i in (data.find(b"{"), data.find(b"[")) if i >= 0), default=-1)
        if at < 0:
            return None
        try:
            value = json.loads(data[at:])
        except ValueError:
            return None
        r = self._random
        if r.random() < 0.01:
            n = r.choice((100, 5000))
            return bytes(data[:at]) + b"[" * n + b"]" * n
        for _ in range(r.choice((1, 1, 2, 5))):
            value = self._changed(value)
        return bytes(data[:at]) + json.dumps(value).encode()

    def _changed(self, value: Any) -> Any:
        r = self._random
        if isinstance(value, dict) and value and r.random() < 0.85:
            key = r.choice(list(value))
            return self._without(value, key) if r.random() < 0.1 else {**value, key: self._changed(value[key])}
        if isinstance(value, list) and value and r.random() < 0.85:
            i = r.randrange(len(value))
            return [*value[:i], *([] if r.random() < 0.1 else [self._changed(value[i])]), *value[i + 1 :]]
        return r.choice(VALUES)

    def _without(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        return {k: v for k, v in value.items() if k != key}
