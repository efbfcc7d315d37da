"""Live rescaling of stateful Structured Streaming queries.

>>> import binshift
>>> spark = binshift.configure(SparkSession.builder).getOrCreate()  # doctest: +SKIP
>>> controller = binshift.attach(query)  # doctest: +SKIP
>>> controller.rescale(8).wait()  # doctest: +SKIP
"""

import logging

from binshift._version import version as __version__
from binshift.autoscaler import Autoscaler
from binshift.bounded import Bounded
from binshift.controller import Controller, attach
from binshift.convert import ConversionReport, convert
from binshift.epoch_log import EpochLog, EpochProgress, epoch_table, epochs
from binshift.errors import (
    BinshiftError,
    ConfigurationError,
    MigrationError,
    MigrationTimeout,
    PlanError,
    StateFormatError,
    UnsupportedOperatorError,
    UnsupportedVersionError,
)
from binshift.load import Skew
from binshift.migration import Migration, MigrationState, MigrationStatus
from binshift.plan import MigrationPlan, Step
from binshift.report import MigrationReport, StepTiming
from binshift.routing import Move, RoutingTable
from binshift.scaling import Action, Change, Cluster, Decision, Observation, ScalingSettings, decide
from binshift.spark import configure, jar_path
from binshift.strategies import AllAtOnce, Batched, Fluid, OnDemand, Optimized, Strategy
from binshift.targets import HotBin, LoadTarget

__all__ = [
    "Action",
    "AllAtOnce",
    "Autoscaler",
    "Batched",
    "BinshiftError",
    "Bounded",
    "Change",
    "Cluster",
    "ConfigurationError",
    "Controller",
    "ConversionReport",
    "Decision",
    "EpochLog",
    "EpochProgress",
    "Fluid",
    "HotBin",
    "LoadTarget",
    "Migration",
    "MigrationError",
    "MigrationPlan",
    "MigrationReport",
    "MigrationState",
    "MigrationStatus",
    "MigrationTimeout",
    "Move",
    "Observation",
    "OnDemand",
    "Optimized",
    "PlanError",
    "RoutingTable",
    "ScalingSettings",
    "Skew",
    "StateFormatError",
    "Step",
    "StepTiming",
    "Strategy",
    "UnsupportedOperatorError",
    "UnsupportedVersionError",
    "__version__",
    "attach",
    "configure",
    "convert",
    "decide",
    "epoch_table",
    "epochs",
    "jar_path",
]

logging.getLogger("binshift").addHandler(logging.NullHandler())
