"""The job, the alerts and the dashboard of docs/monitoring only name gauges that exist."""

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = DOCS / "monitoring"
GAUGES = {
    name.replace(".", "_")
    for name in re.findall(
        r"^\| `([\w.]+)` \|",
        (DOCS / "metrics.md").read_text().split("## In Spark's metrics system")[1],
        re.MULTILINE,
    )
}


def rules():
    """Prometheus's relabelling rules, as pairs of an anchored pattern and a replacement."""
    text = (MONITORING / "prometheus.yml").read_text()
    found = re.findall(r'regex: "(.*)"\n\s+target_label: (\w+)\n\s+replacement: "(.*)"', text)
    assert [label for _, label, _ in found] == ["query", "__name__"]
    return [(pattern, replacement.replace("$", "\\")) for pattern, _, replacement in found]


def relabelled(name):
    (query, as_query), (gauge, as_name) = rules()
    found = re.fullmatch(query, name), re.fullmatch(gauge, name)
    return None if None in found else (found[1].expand(as_name), found[0].expand(as_query))


def expressions():
    board = json.loads((MONITORING / "grafana.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from re.findall(r"^\s+expr: (.*)$", (MONITORING / "alerts.yml").read_text(), re.MULTILINE)


def test_each_gauge_of_each_query_gets_a_name_of_its_own_and_the_query_as_label():
    assert len(GAUGES) == 16
    for gauge in GAUGES:
        for query in ("orders", "orders_migration", "a_bins", "7b1d0c1e_52b9"):
            name = f"metrics_local_1795284970_driver_binshift_{query}_{gauge}_Value"
            assert relabelled(name) == (f"binshift_{gauge}", query)
    assert relabelled("metrics_local_1_driver_BlockManager_memory_maxMem_MB_Value") is None


def test_alerts_and_dashboard_name_gauges_that_there_are_and_the_dashboard_has_all():
    named = {gauge for e in expressions() for gauge in re.findall(r"\bbinshift_(\w+)", e)}
    assert named == GAUGES


def test_each_alert_has_its_part_of_the_runbook():
    headings = re.findall(r"^## (.*)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    parts = re.findall(r'runbook: "docs/runbook.md, (.*)"', (MONITORING / "alerts.yml").read_text())
    assert len(parts) == (MONITORING / "alerts.yml").read_text().count("alert:")
    assert set(parts) <= set(headings)
