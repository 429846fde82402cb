"""Runs on disk: one SQLite file, safe with the page, the workers and the command line at once."""

from experiments.store.store import Run, Store, StoredRecord, data_home

__all__ = ["Run", "Store", "StoredRecord", "data_home"]
