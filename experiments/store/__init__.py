"""Runs on disk: one SQLite file with Parquet files beside it, safe with the page, the workers and the command line."""

from experiments.store.arms import Arm
from experiments.store.events import DamagedRecord
from experiments.store.store import Run, Store, StoredRecord, data_home

__all__ = [
    "Arm",
    "DamagedRecord",
    "Run",
    "Store",
    "StoredRecord",
    "columns",
    "data_home",
    "events",
    "identity",
    "store",
]
