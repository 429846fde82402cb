"""A comparison of two servers on the pages: what a server does not show is left out, and nothing falls over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.i18n import catalogue
from experiments.compare import run_comparison
from experiments.spec import CompareSpec
from experiments.store import Store
from experiments.targets import EndpointTarget, choice
from tests.app.alone import texts, used
from tests.app.test_pages import opened
from tests.experiments.endpoint_rig import Bytes
from tests.experiments.mock_server import MockServer
from tests.experiments.test_endpoint_runs import SMALL, at_once


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with one finished comparison of two servers, and its run id."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home / "runs.sqlite3")
    with pytest.MonkeyPatch.context() as patch, MockServer(at_once, tokenizer=Bytes()) as server:
        patch.setattr(choice, "EndpointTarget", lambda spec, config: EndpointTarget(spec, config, tokenizer=Bytes()))
        endpoints = {"ours": server.url, "theirs": server.url}
        spec = CompareSpec.from_dict({**SMALL, "endpoints": endpoints, "repeats": 2})
        run_id = store.create_run("compare", spec.to_dict())
        store.update_run(run_id, state="done", result=run_comparison(spec, store, run_id))
    return home, run_id


@pytest.fixture
def home(compared: tuple[Path, str]) -> Iterator[Path]:
    yield from used(compared[0])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_verdict_curves_and_reasons_are_shown_without_memory_and_steps(
    home: Path, compared: tuple[Path, str], lang: str
) -> None:
    shown, words = texts(opened(home, run=compared[1], lang=lang)), catalogue(lang)
    assert words["five_curves"] in shown and words["why.endpoint"] in shown and words["trap.endpoint"] in shown
    assert words["result.memory_caption"] not in shown
