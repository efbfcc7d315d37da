"""The JVM makes the same plans as Python; see tests/golden_plans.py."""

import json
from random import Random

import golden_plans


def test_both_languages_plan_the_same(spark):
    jvm = spark._jvm.org.apache.spark.sql.binshift.TestPlanning
    golden = json.loads(golden_plans.FILE.read_text())
    random = Random(11)
    plans = [(c["case"], c["plan"]) for c in golden["plans"]]
    plans += [(c, golden_plans.planned(c)) for c in golden_plans.plan_cases(random, 200, 300)]
    placements = [(c["case"], c["placed"]) for c in golden["placements"]]
    placements += [(c, golden_plans.placed(c)) for c in golden_plans.placement_cases(random, 400)]
    for answer, cases in ((jvm.planned, plans), (jvm.placed, placements)):
        found = json.loads(answer(json.dumps([c for c, _ in cases])))
        for mine, (case, expected) in zip(found, cases, strict=True):
            assert mine == expected, case
