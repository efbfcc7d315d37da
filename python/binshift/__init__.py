"""Live rescaling of stateful Structured Streaming queries.

`configure` prepares a session, `attach` finds a running query, and its `Controller` rescales it.
All durations are seconds; their names end in `_s`, but for `timeout`.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from binshift import autoscaling
from binshift._version import version as __version__
from binshift.autoscaling import Autoscaler
from binshift.controller import Controller, attach
from binshift.conversion import ConversionReport, convert
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
from binshift.migration import Migration
from binshift.planning.bounded import Bounded
from binshift.planning.load import Skew
from binshift.planning.plan import MigrationPlan, Step
from binshift.planning.routing import Move, RoutingTable
from binshift.planning.strategies import AllAtOnce, Batched, Fluid, OnDemand, Optimized, Strategy
from binshift.planning.targets import HotBin, LoadTarget
from binshift.report import MigrationReport, StepTiming
from binshift.session import configure, jar_path
from binshift.status import MigrationState, MigrationStatus

if TYPE_CHECKING:
    from binshift import inspect

__all__ = [
    "AllAtOnce",
    "Autoscaler",
    "Batched",
    "BinshiftError",
    "Bounded",
    "ConfigurationError",
    "Controller",
    "ConversionReport",
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
    "OnDemand",
    "Optimized",
    "PlanError",
    "RoutingTable",
    "Skew",
    "StateFormatError",
    "Step",
    "StepTiming",
    "Strategy",
    "UnsupportedOperatorError",
    "UnsupportedVersionError",
    "__version__",
    "attach",
    "autoscaling",
    "configure",
    "convert",
    "epoch_table",
    "epochs",
    "inspect",
    "jar_path",
]

logging.getLogger("binshift").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    # On first use, because it loads RocksDB, which a driver does not need.
    if name == "inspect":
        return importlib.import_module("binshift.inspect")
    raise AttributeError(f"module 'binshift' has no attribute {name!r}")
