"""Prometheus's own tool accepts alerts, dashboard and configuration, and alerts fire when they should."""

import json
import subprocess
from pathlib import Path

import pytest

from devtools.servers.jars import BUILD

pytestmark = pytest.mark.field

MONITORING = Path(__file__).parents[2] / "docs/monitoring"


@pytest.fixture(scope="module")
def promtool():
    """Prometheus's promtool from Debian's package, which is unpacked and not installed."""
    folder = BUILD / "prometheus"
    if not folder.exists():
        part = folder.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "prometheus"], cwd=part, check=True, capture_output=True)
        (package,) = part.glob("*.deb")
        subprocess.run(["dpkg", "-x", str(package), str(part)], check=True)
        part.rename(folder)

    def run(*arguments):
        command = [str(folder / "usr/bin/promtool"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_alerts_and_the_configuration_are_accepted(promtool, tmp_path):
    rules = (MONITORING / "alerts.yml").read_text()
    assert f"SUCCESS: {rules.count('alert:')} rules found" in promtool(
        "check", "rules", MONITORING / "alerts.yml"
    )
    promtool("check", "config", MONITORING / "prometheus.yml")


def test_the_expressions_of_the_dashboard_are_accepted(promtool, tmp_path):
    board = json.loads((MONITORING / "grafana.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"panel:{i}", "expr": e.replace("$query", ".*")} for i, e in enumerate(found)]
    file = tmp_path / "rules.yml"
    # A JSON file is a YAML file, too.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(found)} rules found" in promtool("check", "rules", file)


def test_alerts_fire_for_what_they_are_there_for_and_not_before(promtool, tmp_path):
    labels = '{instance="driver", query="orders"}'
    series = {
        "binshift_migration_running": "1+0x60",
        "binshift_migration_stepsDone": "2+0x60",
        "binshift_migration_binsAwaited": "7+0x60",
        "binshift_skew": "3+0x70",
        "binshift_partitions": "8+0x70",
        "binshift_bins": "40+0x70",
    }

    def fires(name, minutes, is_firing):
        rule = next(r for r in rules() if r["alert"] == name)
        labelled = {**rule["labels"], "instance": "driver", "query": "orders"}
        texts = {k: v.replace("{{ $labels.query }}", "orders") for k, v in rule["annotations"].items()}
        expected = [{"exp_labels": labelled, "exp_annotations": texts}] if is_firing else []
        return {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": expected}

    test = {
        "rule_files": [str(MONITORING / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": n + labels, "values": v} for n, v in series.items()],
                "alert_rule_test": [
                    fires("MigrationWaits", 45, True),
                    fires("CopiesDoNotCome", 45, True),
                    fires("LoadIsSkewed", 65, True),
                    fires("BinsRunOut", 5, True),
                ],
            },
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"binshift_migration_running{labels}", "values": "1+0x60"},
                    {"series": f"binshift_migration_stepsDone{labels}", "values": "0+1x60"},
                    {"series": f"binshift_migration_binsAwaited{labels}", "values": "99-1x60"},
                    {"series": f"binshift_bins{labels}", "values": "1024+0x60"},
                    {"series": f"binshift_partitions{labels}", "values": "8+0x60"},
                ],
                "alert_rule_test": [fires(r["alert"], 45, False) for r in rules()],
            },
        ],
    }  # fmt: skip
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    promtool("test", "rules", file)


def rules():
    """The alerts, by a simple parser: each field in the file is one line."""
    found = []
    for part in (MONITORING / "alerts.yml").read_text().split("- alert: ")[1:]:
        lines = [line.strip() for line in part.splitlines()]
        severity = next(x for x in lines if x.startswith("labels:")).split("severity: ")[1].rstrip("}")
        notes = {
            name: next(x for x in lines if x.startswith(f"{name}:")).split(": ", 1)[1].strip('"')
            for name in ("summary", "runbook")
        }
        found.append({"alert": lines[0], "labels": {"severity": severity}, "annotations": notes})
    return found
