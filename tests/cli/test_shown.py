"""`trilemma runs show` prints every kind of run as its own verb does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from experiments.cli import run
from experiments.cli.shown import PRINTERS
from experiments.kinds import KINDS
from experiments.store import Store
from tests.experiments.report_runs import SPECS, stored

# Their verbs' own tests show runs that were really measured; the results made here have not every field.
MEASURED = ("compare", "eval", "profile")


def test_every_kind_has_its_printer() -> None:
    assert set(PRINTERS) == set(KINDS)
    for printer in PRINTERS.values():
        module, _, name = printer.partition(".")
        assert callable(getattr(import_module(f"experiments.cli.{module}"), name))


@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind not in MEASURED])
def test_a_stored_run_is_shown_with_its_result(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    run_id = stored(Store(tmp_path / "runs.sqlite3"), kind)
    assert run(["runs", "show", run_id]) == 0
    said = capsys.readouterr().out.strip().splitlines()
    assert said[0].startswith(f"{run_id}  {kind}  done") and len(said) > 1
