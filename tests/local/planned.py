"""Physical plans of queries for an epoch, which are not run, and the places of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from binshift.errors import SITE
from binshift.session import PROVIDER, PROVIDER_KEY
from harness import SCHEMA
from local.moving import Case

#: Numbers of partitions, and the epochs with those; initial states are read in the first epoch.
EPOCHS = {2: 0, 5: 6, 1: 9}
NEEDS_PLANS = pytest.mark.needs_spark("4.3", reason="plans are looked at by code for this version")


class Planned:
    """A query over an empty stream, of which plans are made."""

    def __init__(self, spark: SparkSession, folder: Path, case: Case) -> None:
        session = spark.newSession()
        for key, value in ({PROVIDER_KEY: PROVIDER} | dict(case.conf)).items():
            session.conf.set(key, value)
        self._df: DataFrame = case.build(session.readStream.schema(SCHEMA).json(str(folder)))
        self._mode = case.mode

    def found(self, partitions: int, is_routed: bool = True) -> tuple[str, list[str]]:
        """The number of operators whose rows follow the table, or why there is no plan; and the errors."""
        plans: Any = self._df.sparkSession._jvm.org.apache.spark.sql.binshift.TestPlans
        text = plans.look(self._df._jdf, self._mode, partitions, EPOCHS[partitions], is_routed)
        first, *wrong = text.split("\n")
        # A refusal ends with a link.
        return first, [line for line in wrong if not line.startswith(f"See {SITE}")]
