"""The experiments: what is run at which size, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import stores
from binshift.routing import RoutingTable
from harness.bench import Bench
from harness.experiment import Case, Experiment, Figure, paired, spread
from harness.results import Record
from harness.run import Action, Phases
from harness.workload import Workload
from keycount import keycount
from streams import nexmark

__all__ = ["SIZES", "Size", "experiments"]

Figures = Callable[[Sequence[Record]], list[Figure]]
UNPREPARED = Action("rescale", "all-at-once", prepared=False)
PREPARED = Action("rescale", "all-at-once")
BATCHED = Action("rescale", "batched", size=128)
ON_DEMAND = Action("rescale", "on-demand", prepared=False)
IDLE, STOCK = Action("idle"), Action("stock")


@dataclass(frozen=True, slots=True)
class Size:
    """How large experiments are; rates are such that two cores are busy for at most half of the time.

    `keys` and `more_keys` are those of key-count, `rows` its events per interval, `rate` the events per second
    of NEXMark and `fill` those before the measured time.
    """

    keys: int
    more_keys: tuple[int, ...]
    rows: int
    interval: float
    rate: int
    fill: int
    phases: Phases
    repeats: int
    intervals: int
    is_brief: bool = False


SIZES = {
    "quick": Size(300_000, (100_000, 300_000), 5_000, 1.0, 1_000, 40_000, Phases(3, 5, 5), 1, 60, True),
    "medium": Size(2_000_000, (500_000, 2_000_000), 20_000, 2.0, 8_000, 1_000_000, Phases(4, 8, 6), 3, 120),
    "full": Size(
        10_000_000, (1_000_000, 4_000_000, 16_000_000), 20_000, 2.0, 8_000, 4_000_000, Phases(4, 8, 8), 5, 400
    ),
}


def experiments(size: Size) -> list[Experiment]:
    """All of them, in the order of the report; where the size says so, one of each kind with few cases."""
    all_of_them = [
        *_noise_floor(size),
        _strategies(size),
        *_queries(size),
        *_overhead(size),
        *_shapes(size),
        *_on_demand(size),
        _assignments(),
    ]
    return [e for e in map(_brief, all_of_them) if e.cases] if size.is_brief else all_of_them


def _brief(experiment: Experiment) -> Experiment:
    """What a look at everything needs of an experiment."""
    kept = {
        "M1": [{"run": a.name} for a in (UNPREPARED, PREPARED, BATCHED, STOCK)],
        "M2": [{"query": "q1"}],
        "M4": [{}],
        "M9": [{"load": "key-count", "provider": "stock"}, {"load": "key-count", "bins": 1024}],
        "M10": [{"operation": "update"}],
        "C3": [{}],
    }.get(experiment.id, [])
    cases = [c for c in experiment.cases if any(k.items() <= c.name.items() for k in kept)]
    return replace(experiment, cases=cases)


def _counting(size: Size, **more: Any) -> Workload:
    return keycount(more.pop("keys", size.keys), size.rows, size.intervals, size.interval, **more)


def _paced(experiment: str, load: Workload, actions: Sequence[Action], **more: Any) -> list[Case]:
    """A case for each action, with its name."""
    cases = []
    for action in actions:
        name = {"run": action.name, **{k: v for k, v in more.items() if k != "provider"}}
        provider = "stock" if action.kind == "stock" else more.get("provider", "binshift")
        options = {"provider": provider, "bins": more.get("bins", 1024)}
        cases.append(Case(name, partial(_do_paced, experiment, name, load, action, options)))
    return cases


def _do_paced(
    experiment: str,
    name: Mapping[str, Any],
    load: Workload,
    action: Action,
    options: Mapping[str, Any],
    bench: Bench,
    repeat: int,
) -> Record:
    return bench.paced(experiment, name, repeat, load, action, **options)


def _noise_floor(size: Size) -> list[Experiment]:
    def figures(records: Sequence[Record]) -> list[Figure]:
        return [spread("largest ÷ steady latency", [r.values["latency_ratio"] for r in records])]

    return [
        Experiment(
            "M2", f"NEXMark {q.upper()}, no state: the noise floor", "no spike: 1",
            _paced("M2", nexmark(q, size.rate, size.intervals, 4_000, size.interval), [IDLE], query=q),
            figures, "noise floor", size.repeats,
        )
        for q in ("q1", "q2")
    ]  # fmt: skip


def _strategies(size: Size) -> Experiment:
    """M1, and M15 and B1 which come of the same runs."""
    load = _counting(size)
    actions = [
        UNPREPARED, PREPARED, replace(BATCHED, prepared=False), BATCHED,
        Action("rescale", "optimized", size=16), ON_DEMAND, IDLE, STOCK,
    ]  # fmt: skip
    cases = _paced("M1", load, actions)
    cases += _paced("M1", load, [Action("rescale", "fluid")], bins=64)

    def figures(records: Sequence[Record]) -> list[Figure]:
        found = []
        for case in cases:
            same = [r for r in records if r.case == case.name]
            if same:
                name = case.name["run"] + (f", {case.name['bins']} bins" if "bins" in case.name else "")
                found += [
                    spread(f"longest ÷ median epoch: {name}", [r.values["ratio"] for r in same]),
                    spread(f"largest ÷ steady latency: {name}", [r.values["latency_ratio"] for r in same]),
                    spread(f"peak memory ÷ before: {name}", [r.values["memory_growth"] for r in same]),
                ]
        for name in ("all-at-once, prepared", "batched, prepared", "on-demand, unprepared"):
            gains = paired(records, _excess, {"run": "stock"}, {"run": name})
            if gains:
                found.append(spread(f"excess latency, Spark's offline repartition ÷ {name}", gains))
        return found

    title = f"key-count, {size.keys:,} keys, 4 to 8 partitions"
    return Experiment("M1", title, "fluid, batched: orders of magnitude below all-at-once", cases, figures,
                      "key-count", size.repeats)  # fmt: skip


def _excess(values: Mapping[str, Any]) -> float:
    """Seconds beyond the steady latency, of which less than 10 ms cannot be told from none."""
    return max(0.01, values["excess"])


CLAIMS = {
    "q3": ("M3", "Q3, incremental join", "all-at-once ÷ batched 10"),
    "q4": ("M4", "Q4, average of closed auctions", "all-at-once ÷ batched 20 or more"),
    "q5": ("M5", "Q5, sliding windows", "all-at-once 10 × the periodic peaks, batched none"),
    "q6": ("M6", "Q6, last 10 prices of a seller", "all-at-once ÷ batched 20 or more"),
    "q7": ("M7", "Q7, windowed maximum, tiny state", "no difference: 1"),
    "q8": ("M8", "Q8, window join", "all-at-once ÷ batched above 1"),
}


def _queries(size: Size) -> list[Experiment]:
    def figures(records: Sequence[Record]) -> list[Figure]:
        unprepared, batched = {"run": UNPREPARED.name}, {"run": BATCHED.name}
        found = [
            (
                "excess, all-at-once unprepared ÷ batched prepared",
                paired(records, _excess, unprepared, batched),
            ),
            *(
                (
                    f"largest ÷ steady latency: {n}",
                    [r.values["latency_ratio"] for r in records if r.case["run"] == n],
                )
                for n in (UNPREPARED.name, BATCHED.name, IDLE.name)
            ),
        ]
        return [spread(what, values) for what, values in found if values]

    found = []
    for q, (id, title, claim) in CLAIMS.items():
        load = nexmark(q, size.rate, size.intervals, size.fill, size.interval)
        cases = _paced(id, load, [UNPREPARED, BATCHED, IDLE])
        found.append(Experiment(id, f"NEXMark {title}", claim, cases, figures, "NEXMark", size.repeats))
    return found


def _overhead(size: Size) -> list[Experiment]:
    kinds = [{"provider": "stock"}, *({"provider": "binshift", "bins": 2**n} for n in (4, 7, 10, 14))]
    few = min(size.intervals, 24)
    loads = {"key-count": keycount(size.keys, 10 * size.rows, few, size.interval)}
    for q in ("q3", "q4", "q5", "q8"):
        loads[q] = nexmark(q, 10 * size.rate, few, size.fill, size.interval)
    cases = [
        Case({"load": name, **kind}, partial(_do_throughput, {"load": name, **kind}, load, kind))
        for name, load in loads.items()
        for kind in (kinds if name == "key-count" else [kinds[0], kinds[3]])
    ]
    operations = [
        Case({"operation": op, **kind}, partial(_do_store, {"operation": op, **kind}, op, kind))
        for op in stores.OPERATIONS
        for kind in (kinds[0], kinds[3])
    ]

    def throughputs(records: Sequence[Record]) -> list[Figure]:
        found = []
        for case in cases:
            if case.name["provider"] == "binshift":
                stock = {"load": case.name["load"], "provider": "stock"}
                ratios = paired(records, lambda v: v["rows_per_second"], dict(case.name), stock)
                if ratios:
                    found.append(
                        spread(f"throughput ÷ stock: {case.name['load']}, {case.name['bins']} bins", ratios)
                    )
        return found

    def costs(records: Sequence[Record]) -> list[Figure]:
        found = []
        for op in stores.OPERATIONS:
            ratios = paired(
                records, lambda v: 1 / v["nanoseconds"],
                {"operation": op, "provider": "binshift"}, {"operation": op, "provider": "stock"},
            )  # fmt: skip
            if ratios:
                found.append(spread(f"rows per second ÷ stock: {op}", ratios))
        return found

    claim = "the paper: p99 1.6 to 2.5 × native at 2^12 bins; our aim: 1.0, never below 0.97"
    return [
        Experiment(
            "M9", "steady throughput by number of bins", claim, cases, throughputs, "overhead", size.repeats
        ),
        Experiment("M10", "operations of the store", claim, operations, costs, "overhead", size.repeats),
    ]


def _do_throughput(
    name: Mapping[str, Any], load: Workload, kind: Mapping[str, Any], bench: Bench, repeat: int
) -> Record:
    return bench.throughput("M9", name, repeat, load, **kind)


def _do_store(name: Mapping[str, Any], op: str, kind: Mapping[str, Any], bench: Bench, repeat: int) -> Record:
    return bench.store("M10", name, repeat, op, 200_000, 50_000, **kind)


def _shapes(size: Size) -> list[Experiment]:
    """How the longest epoch changes with bins, keys, both, and the rate."""
    fine = Action("rescale", "optimized", prepared=False, size=1)
    few_keys = _counting(size, keys=size.more_keys[0])
    bins_cases = [c for bins in (16, 64, 256) for c in _paced("M11", few_keys, [UNPREPARED, fine], bins=bins)]
    by_keys_actions = [UNPREPARED, PREPARED, BATCHED, IDLE, STOCK]
    keys_cases = [
        c for keys in size.more_keys
        for c in _paced("M12", _counting(size, keys=keys), by_keys_actions, keys=keys)
    ]  # fmt: skip
    per_bin = size.more_keys[0] // 16
    fixed_cases = [
        c for bins in (16, 64, 256)
        for c in _paced("M13", _counting(size, keys=per_bin * bins // 4), [fine], bins=bins)
    ]  # fmt: skip
    rates = [size.rows // 4, size.rows, 2 * size.rows]
    rate_cases = [
        c for rows in rates
        for c in _paced("M14", keycount(size.keys, rows, size.intervals, size.interval), [UNPREPARED, BATCHED],
                        rows=rows)
    ]  # fmt: skip

    def slope(
        key: str, low: float, high: float, names: Sequence[str], records: Sequence[Record]
    ) -> list[Figure]:
        found = []
        for name in names:
            ratios = paired(
                records, lambda v: v["longest_ms"], {"run": name, key: high}, {"run": name, key: low}
            )
            if ratios:
                found.append(spread(f"longest epoch at {high:,} ÷ at {low:,} {key}: {name}", ratios))
        return found

    small, large = min(size.more_keys), max(size.more_keys)
    keys_names = [a.name for a in by_keys_actions]
    by_bins = partial(slope, "bins", 16, 256, [UNPREPARED.name, fine.name])
    by_keys = partial(slope, "keys", small, large, keys_names)
    at_fixed = partial(slope, "bins", 16, 256, [fine.name])
    rows = [
        ("M11", "number of bins", "the largest latency of batched falls with bins", bins_cases, by_bins),
        (
            "M12",
            "number of keys",
            "linear; our aim, prepared: at most 1.3 at 16 × the keys",
            keys_cases,
            by_keys,
        ),
        ("M13", "a fixed number of keys per bin", "constant", fixed_cases, at_fixed),
        ("M14", "offered load", "a 10 to 100 × lower latency", rate_cases, partial(_by_rate, rates)),
    ]
    return [Experiment(*row, "shape", size.repeats) for row in rows]


def _by_rate(rates: Sequence[int], records: Sequence[Record]) -> list[Figure]:
    found = []
    for rows in rates:
        over, under = {"run": UNPREPARED.name, "rows": rows}, {"run": BATCHED.name, "rows": rows}
        ratios = paired(records, lambda v: v["longest_latency"], over, under)
        if ratios:
            what = f"largest latency at {rows:,} rows an interval, all-at-once unprepared ÷ batched prepared"
            found.append(spread(what, ratios))
    return found


def _on_demand(size: Size) -> list[Experiment]:
    three_to_five = {"before": 3, "after": 5}
    actions = [replace(a, **three_to_five) for a in (STOCK, UNPREPARED, ON_DEMAND)]
    zipfs = (0.0, 0.8, 1.2)
    skewed = [
        c for zipf in zipfs
        for c in _paced("C2", _counting(size, zipf=zipf), [ON_DEMAND, UNPREPARED], zipf=zipf)
    ]  # fmt: skip

    def peaks(records: Sequence[Record]) -> list[Figure]:
        found = []
        for name in (STOCK.name, UNPREPARED.name):
            ratios = paired(records, _excess, {"run": name}, {"run": ON_DEMAND.name})
            if ratios:
                found.append(spread(f"excess latency, {name} ÷ on-demand", ratios))
        return found

    def by_skew(records: Sequence[Record]) -> list[Figure]:
        found = []
        for zipf in zipfs:
            over, under = {"run": UNPREPARED.name, "zipf": zipf}, {"run": ON_DEMAND.name, "zipf": zipf}
            ratios = paired(records, _excess, over, under)
            if ratios:
                found.append(spread(f"excess latency, all-at-once ÷ on-demand, Zipf {zipf:g}", ratios))
        return found

    return [
        Experiment("C1", "scale out 3 to 5: restart, order-unaware, on demand", "about 20", _paced(
            "C1", _counting(size), actions), peaks, "on demand", size.repeats),
        Experiment("C2", "skewed keys", "hot first is lower than random order", skewed, by_skew, "on demand",
                   size.repeats),
    ]  # fmt: skip


def _assignments() -> Experiment:
    """C3: no query runs; the tables are counted."""
    name = {"bins": 128, "before": 25, "after": 30}

    def do(bench: Bench, repeat: int) -> Record:
        table = RoutingTable(25, _ranges(128, 25))
        moved = {
            "contiguous": len(table.moves_to(RoutingTable(30, _ranges(128, 30)))),
            "minimal": len(table.moves_to(table.balanced(30))),
        }
        return Record("C3", name, repeat, moved)

    def figures(records: Sequence[Record]) -> list[Figure]:
        kinds = ("contiguous", "minimal")
        return [spread(f"bins moved: {kind}", [r.values[kind] for r in records]) for kind in kinds]

    title = "minimal assignment against contiguous ranges, 25 to 30 partitions, 128 bins"
    return Experiment("C3", title, "115 and 15", [Case(name, do)], figures, "on demand", 1)


def _ranges(bins: int, partitions: int) -> tuple[int, ...]:
    """Each partition owns neighbouring bins, as Flink's operators own key groups."""
    return tuple(b * partitions // bins for b in range(bins))
