"""Golden plans and placements, with which both languages' planners are compared.

`python tests/golden_plans.py` writes them anew from what Python plans; when they change, so do the rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from binshift.errors import BinshiftError
from binshift.planning.placement import Placement
from binshift.planning.routing import RoutingTable
from binshift.planning.strategies import default_strategy, parse_strategy

FILE = Path(__file__).with_suffix(".json")
_CASES = 40
_EXECUTORS = ("1", "2", "3", "7", "10")
_UNSIZED = ("all-at-once", "fluid", "on-demand")
_IMPOSSIBLE = ("batched", "batched:0", "batched:-1", "optimized:0", "fluid:2", "eager", "")
Case = dict[str, Any]


def plan_cases(random: Random, n: int, most_bins: int) -> list[Case]:
    """Tables, most of them uneven, and what to plan from them; some plans are impossible."""
    cases = []
    for _ in range(n):
        bins = random.randint(1, most_bins)
        partitions = random.randint(1, min(bins, 9))
        used = random.sample(range(partitions), random.randint(1, partitions))
        case: Case = {
            "partitions": partitions,
            "assignment": [random.choice(used) for _ in range(bins)],
            "to": random.randint(1, min(bins, 12)),
            "strategy": random.choice(
                [None, *_UNSIZED, f"batched:{random.randint(1, 9)}", "optimized:1", "optimized:3"]
            ),
            "gap": random.choice([0, 0, 2]),
        }
        impossible: list[Case] = [
            {"to": 0},
            {"to": bins + 1},
            {"gap": -1},
            *({"strategy": s} for s in _IMPOSSIBLE),
        ]
        cases.append(case | random.choice([Case()] * 30 + impossible))
    return cases


def placement_cases(random: Random, n: int) -> list[Case]:
    """The executors of partitions, the living executors, and the executors where partitions may go."""
    cases = []
    for _ in range(n):
        executors = random.sample(_EXECUTORS, random.randint(1, 5))
        partitions = random.randint(1, 12)
        cases.append(
            {
                "executors": executors,
                "partitions": [
                    random.sample(_EXECUTORS, random.choice([0, 1, 1, 1, 1, 2])) for _ in range(partitions)
                ],
                "decommissioned": random.sample(_EXECUTORS, random.choice([0, 0, 1])),
                "leaving": random.sample(executors, random.choice([0, 0, 1])) if len(executors) > 1 else [],
                "loads": random.choice([[], [random.randint(0, 20) for _ in range(partitions)]]),
                "place_on": random.choice([[], random.sample(executors, 1), [random.choice(_EXECUTORS)]]),
                "drained": random.choice(_EXECUTORS),
            }
        )
    return cases


def planned(case: Case) -> Any:
    """Python's plan, or the condition of its refusal."""
    try:
        source = RoutingTable(case["partitions"], tuple(case["assignment"]))
        strategy = case["strategy"]
        cut = (
            default_strategy(source, gap=case["gap"])
            if strategy is None
            else parse_strategy(strategy, gap=case["gap"])
        )
        return json.loads(cut.plan(source, source.balanced(case["to"])).to_json())
    except BinshiftError as error:
        return {"condition": error.condition, "name": error.parameters["name"]}


def placed(case: Case) -> Any:
    """Python's placement, or the condition of its refusal."""
    placement = Placement.of(case)
    rejoined = placement.rejoined
    answer: dict[str, Any] = {"idle": list(rejoined.idle), "with_idle": rejoined.partitions_with_idle(64)}
    answer["spread"] = _texts(
        rejoined.spread(case["loads"], [e for e in case["place_on"] if e in case["executors"]])
    )
    try:
        answer["drained"] = _texts(placement.drained(case["drained"], case["place_on"]))
    except BinshiftError as error:
        answer["drained"] = error.condition
    return answer


def _texts(places: dict[int, str]) -> dict[str, str]:
    return {str(p): e for p, e in sorted(places.items())}


def written() -> dict[str, Any]:
    """The content of the golden file."""
    random = Random(4)
    return {
        "plans": [{"case": c, "plan": planned(c)} for c in plan_cases(random, _CASES, 24)],
        "placements": [{"case": c, "placed": placed(c)} for c in placement_cases(random, _CASES)],
    }


def main() -> None:
    lines = {name: ",\n".join(json.dumps(c) for c in cases) for name, cases in written().items()}
    FILE.write_text("{\n" + ",\n".join(f'"{name}": [\n{cases}\n]' for name, cases in lines.items()) + "\n}\n")


if __name__ == "__main__":
    main()
