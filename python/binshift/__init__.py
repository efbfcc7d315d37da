"""Live rescaling of stateful Structured Streaming queries.

`configure` prepares a session, `attach` finds a running query, and its `Controller` rescales it.
All durations are seconds; their names end in `_s`, except for `timeout`.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from binshift._version import version as __version__
from binshift.deprecations import warn_of
from binshift.epoch_progress import EpochProgress, epoch_table
from binshift.errors import (
    BinshiftError,
    ConfigurationError,
    MigrationError,
    MigrationTimeout,
    PlanError,
    StateFormatError,
    StorageError,
    UnsupportedOperatorError,
    UnsupportedVersionError,
)
from binshift.libraries import needed_for
from binshift.planning.bounded import Bounded
from binshift.planning.limits import Guard
from binshift.planning.load import Skew
from binshift.planning.plan import MigrationPlan, Step
from binshift.planning.routing import Move, RoutingTable
from binshift.planning.strategies import AllAtOnce, Batched, Fluid, OnDemand, Optimized, Strategy
from binshift.planning.targets import HotBin, LoadTarget
from binshift.report import AuditReport, MigrationReport, StepTiming
from binshift.session import configure, jar_path
from binshift.status import MigrationState, MigrationStatus
from binshift.versions import show_versions

if TYPE_CHECKING:
    from binshift import autoscaling, inspect, savepoints
    from binshift.autoscaling import Autoscaler
    from binshift.controller import Controller, attach
    from binshift.conversion import ConversionReport, convert
    from binshift.epoch_log import EpochLog, epochs
    from binshift.migration import Migration

__all__ = [
    "AllAtOnce",
    "AuditReport",
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
    "Guard",
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
    "StorageError",
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
    "savepoints",
    "show_versions",
]

logging.getLogger("binshift").addHandler(logging.NullHandler())


#: Imported on first use, because these need pyspark, and the command line doesn't.
_OF_DRIVERS = {
    "Autoscaler": "autoscaling",
    "Controller": "controller",
    "ConversionReport": "conversion",
    "EpochLog": "epoch_log",
    "Migration": "migration",
    "attach": "controller",
    "autoscaling": "",
    "convert": "conversion",
    "epochs": "epoch_log",
}
#: Names that have moved to `binshift.autoscaling`.
_OF_AUTOSCALING = ("Action", "Change", "Cluster", "Decision", "Observation", "ScalingSettings", "decide")


def __getattr__(name: str) -> Any:
    if name in (
        "inspect",
        "savepoints",
        "strategies",
    ):  # these load RocksDB, which a driver doesn't need, or warn
        return importlib.import_module(f"binshift.{name}")
    if name in _OF_AUTOSCALING:
        warn_of(f"binshift.{name}", f"binshift.autoscaling.{name}")
        return getattr(__getattr__("autoscaling"), name)
    if name not in _OF_DRIVERS:
        raise AttributeError(f"module 'binshift' has no attribute {name!r}")
    with needed_for(f"binshift.{name}", extra="spark"):
        module = importlib.import_module(f"binshift.{_OF_DRIVERS[name] or name}")
    globals()[name] = found = getattr(module, name) if _OF_DRIVERS[name] else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
