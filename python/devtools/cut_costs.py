"""Makes the table of what cuts cost, for the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

__all__ = ["table"]

Line = dict[str, Any]


def table(lines: Sequence[Line]) -> str:
    """How many seconds each kind of cut costs: the longest epoch that a cut met, less an idle one."""
    by_kind: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        by_kind[line["kind"]][line["provider"]].append(line)
    rows = [
        "| cut | cuts | binshift: idle epoch, s | what a cut costs, s | restarts "
        "| Spark's own: idle epoch, s | what a cut costs, s | restarts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in sorted(by_kind):
        cells = [cell for name in ("binshift", "spark") for cell in _cells(by_kind[kind][name])]
        rows.append(f"| {kind} | {len(by_kind[kind]['binshift'])} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(lines: Sequence[Line]) -> list[str]:
    if not lines:
        return ["", "", ""]
    costs = [line["longest"] - line["idle"] for line in lines]
    idle = median(line["idle"] for line in lines)
    restarts = sum(len(line["failures"]) for line in lines)
    return [f"{idle:.1f}", f"{median(costs):.1f}, at most {max(costs):.1f}", str(restarts)]
