"""Files stay small enough to be read in one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 500
WRITTEN = ("*.py", "*.h", "*.cpp", "*.css")


@pytest.mark.parametrize("folder", ["ledger", "core_engine", "experiments", "app", "benchmarks", "tests"])
def test_no_source_file_is_longer_than_500_lines(folder: str) -> None:
    files = [path for pattern in WRITTEN for path in (ROOT / folder).rglob(pattern)]
    assert files
    lines = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}
