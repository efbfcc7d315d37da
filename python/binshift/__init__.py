"""Live rescaling of stateful Structured Streaming queries.

>>> import binshift
>>> spark = binshift.configure(SparkSession.builder).getOrCreate()  # doctest: +SKIP
>>> controller = binshift.attach(query)  # doctest: +SKIP
>>> controller.rescale(8).wait()  # doctest: +SKIP
"""

import logging

from binshift._version import version as __version__
from binshift.controller import Controller, attach
from binshift.convert import ConversionReport, convert
from binshift.errors import (
    BinshiftError,
    ConfigurationError,
    MigrationError,
    MigrationTimeout,
    PlanError,
    UnsupportedOperatorError,
    UnsupportedVersionError,
)
from binshift.migration import Migration, MigrationReport, MigrationState, MigrationStatus
from binshift.plan import MigrationPlan, Step
from binshift.routing import Move, RoutingTable
from binshift.spark import configure, jar_path
from binshift.strategies import AllAtOnce, Batched, Fluid, OnDemand, Strategy

__all__ = [
    "AllAtOnce",
    "Batched",
    "BinshiftError",
    "ConfigurationError",
    "Controller",
    "ConversionReport",
    "Fluid",
    "Migration",
    "MigrationError",
    "MigrationPlan",
    "MigrationReport",
    "MigrationState",
    "MigrationStatus",
    "MigrationTimeout",
    "Move",
    "OnDemand",
    "PlanError",
    "RoutingTable",
    "Step",
    "Strategy",
    "UnsupportedOperatorError",
    "UnsupportedVersionError",
    "__version__",
    "attach",
    "configure",
    "convert",
    "jar_path",
]

logging.getLogger("binshift").addHandler(logging.NullHandler())
