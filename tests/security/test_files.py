"""Files that others made: bounded before they are read, text alone, never a device, a pipe or something unpacked."""

from __future__ import annotations

import ast
import base64
import os
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.server import MOST_UPLOAD_MB
from experiments.advisor.evidence import MOST_BYTES
from experiments.advisor.numbers_file import read_text as read_numbers
from experiments.advisor_view import evidence_of_metrics, evidence_of_numbers
from experiments.model_source import unpacked
from experiments.quality.items import load_items
from experiments.quality.texts import load_text
from experiments.workloads import trace_formats
from experiments.workloads.file import read_workload_file
from experiments.workloads.source import find
from ledger.errors import CannotRunError, InputError

ROOT = Path(__file__).resolve().parents[2]
READERS: dict[str, Callable[[Path], Any]] = {
    "items": load_items, "text": load_text, "workload": read_workload_file,
    "numbers": lambda path: read_numbers("--numbers", path),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_too_large_is_refused_before_it_is_read(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(2 * 2**30)  # a hole: nothing is written, and reading it whole would take 2 GiB
    with pytest.raises(InputError, match="at most"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_not_text_is_one_line(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00" * 100)
    with pytest.raises((InputError, CannotRunError)) as refused:
        READERS[reader](path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("reader", ["text", "workload"])
def test_a_device_or_a_pipe_is_never_read(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="a regular file"):
            READERS[reader](path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_trace_with_a_line_without_an_end_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_formats, "MOST_LINE", 1000)
    path = tmp_path / name
    path.write_text("x" * 5000, "utf-8")
    form = {"a.jsonl": trace_formats.mooncake, "a.csv": trace_formats.burstgpt}[name]
    with pytest.raises(InputError, match="lines of fewer"):
        list(form(path))


def test_a_yaml_file_makes_no_objects_and_its_aliases_are_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    for text in ("!!python/object/apply:os.system ['true']", "!!python/name:os.system", "a: !!python/object:os.X {}"):
        path.write_text(text, "utf-8")
        with pytest.raises(InputError):
            read_workload_file(path)
    rows = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30))]
    path.write_text("\n".join([*rows, "description: *a29"]), "utf-8")
    with pytest.raises(InputError, match="without aliases"):
        read_workload_file(path)


def test_a_deeply_nested_item_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "i.jsonl"
    path.write_text("[" * 200_000, "utf-8")
    with pytest.raises(InputError, match="one JSON object a line"):
        load_items(path)


def test_a_text_that_is_pasted_has_the_bound_of_a_file() -> None:
    for read in (lambda text: evidence_of_numbers(text, None), lambda text: evidence_of_metrics(text, "", 0.0, None)):
        with pytest.raises(InputError, match="at most 4 Mi"):
            read("x" * (MOST_BYTES + 1))


def test_an_address_that_holds_a_nested_config_does_not_grow_beyond_it() -> None:
    nested = "[" * 900 + ",".join("0" * 500_000) + "]" * 900
    address = base64.urlsafe_b64encode(zlib.compress(nested.encode(), 9)).decode()
    assert len(address) < 10_000
    found = unpacked(address)
    assert found is not None and len(found) < 3 * len(nested)
    assert unpacked(base64.urlsafe_b64encode(zlib.compress(b"[" + b"0," * 2**24 + b"0]", 9)).decode()) is None


def test_a_workload_is_never_a_folder_or_an_unknown_file(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "a.py"), "trace:zip:/a.zip", f"trace:burstgpt:{tmp_path}"):
        with pytest.raises((InputError, CannotRunError)):
            found = find(name)
            list(trace_formats.burstgpt(found.path))  # type: ignore[union-attr]


def test_nothing_is_ever_unpacked_to_disk() -> None:
    """A name in an archive becomes no path, since no archive is ever extracted."""
    for package in ("ledger", "core_engine", "experiments", "app"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Attribute):
                    assert node.attr not in ("extractall", "unpack_archive", "_extract_member"), file
                if isinstance(node, ast.Import):
                    assert "tarfile" not in [name.name for name in node.names], file


def test_every_upload_has_a_bound() -> None:
    assert 0 < MOST_UPLOAD_MB <= 200
    uploads = 0
    for file in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("file_uploader"):
                given = {word.arg for word in node.keywords}
                assert {"type", "max_upload_size"} <= given and "accept_multiple_files" not in given, file
                uploads += 1
    assert uploads >= 2
    streamlit = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))["server"]
    assert "enableXsrfProtection" not in streamlit and "enableCORS" not in streamlit  # both are on unless turned off
