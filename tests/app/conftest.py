"""A finished comparison of a tiny random model, really measured, in a store of its own. Never shipped with the app."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from experiments.compare import run_comparison
from experiments.spec import CompareSpec
from experiments.store import Store
from tests.app.alone import used
from tests.core_engine.conftest import make_llama


@dataclass(frozen=True)
class Sample:
    """A home folder with a store that holds one finished comparison."""

    home: Path
    run_id: str
    result: dict[str, Any]

    @property
    def store(self) -> Store:
        return Store(self.home / "runs.sqlite3")


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Static against continuous on a tiny model: 4 requests, 2 repeats."""
    home = tmp_path_factory.mktemp("home")
    model = tmp_path_factory.mktemp("tiny")
    make_llama(model)
    settings = {"model": str(model), "dtype": "fp32", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}
    fast = {"num_requests": 4, "max_tokens_cap": 6, "repeats": 2, "rate_rps": 50.0, "guess_pct": 50.0}
    spec = CompareSpec.from_dict({"settings": settings, **fast}).to_dict()
    store = Store(home / "runs.sqlite3")
    run_id = store.create_run("compare", spec)
    result = run_comparison(spec, store, run_id)
    store.update_run(run_id, state="done", result=result)
    return Sample(home, run_id, result)


@pytest.fixture
def home(sample: Sample) -> Iterator[Path]:
    """The sample's home as the one the app uses."""
    yield from used(sample.home)
