import json
from pathlib import Path
from typing import Any

import pytest

from experiments import calibrate
from experiments.cli import calibrate as command
from experiments.cli import run
from ledger.errors import CannotRunError, InputError

MEASURED = {"median": 10.0, "low": 9.0, "high": 11.0, "repeats": 3}


def result(**changes: Any) -> dict[str, Any]:
    device = {
        "device": "cpu",
        "name": "a processor",
        "memory_bytes": 1000,
        "memory_source": "system",
        "bandwidth": {"copy": {**MEASURED, "median": 20e9}, "read": {**MEASURED, "median": 30e9}},
        "gemm": {"fp32": {**MEASURED, "median": 100e9}, "bf16": {**MEASURED, "median": 10e9}},
    }
    return {
        "version": calibrate.VERSION, "date": "2026-01-01T00:00:00+00:00", "cpu": "a processor", "threads": 2,
        "torch": "2", "duration_s": 1.0, "devices": [device], "provenance": "measured", **changes,
    }  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "COPY_BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(calibrate, "SIDES", {"cpu": (16, 32), "cuda": (64, 128)})


def test_every_ceiling_is_a_median_with_its_spread() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    threads, shown = torch.get_num_threads(), []
    found = calibrate.calibrate(1, 0.02, lambda what, share: shown.append((what, share)))
    device = found["devices"][-1]
    assert (device["device"], found["threads"], found["provenance"]) == ("cpu", 1, "measured")
    assert torch.get_num_threads() == threads
    figures = [*device["bandwidth"].values(), *device["gemm"].values()]
    assert set(device["bandwidth"]) == {"copy", "read"} and "fp32" in device["gemm"]
    assert all(0 < item["low"] <= item["median"] <= item["high"] and item["repeats"] >= 3 for item in figures)
    assert [share for _, share in shown] == sorted(share for _, share in shown)
    json.dumps(found, allow_nan=False)


def test_a_dtype_without_a_kernel_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    product = calibrate._product

    def refuse(device: str, dtype: str, side: int) -> Any:
        if dtype == "int8":
            raise RuntimeError("no such kernel")
        return product(device, dtype, side)

    monkeypatch.setattr(calibrate, "_product", refuse)
    assert "int8" not in calibrate.calibrate(1, 0.02)["devices"][-1]["gemm"]


def test_the_stored_calibration_is_this_machine() -> None:
    assert calibrate.stored() is None and calibrate.this_machine() is None
    with pytest.raises(CannotRunError, match="trilemma calibrate"):
        calibrate.find_accelerator("this")
    calibrate.store(result())
    found = calibrate.find_accelerator("this")
    assert (found.provenance, found.memory_source, found.memory_bytes) == ("measured", "system", 1000)
    assert found.bandwidth_bytes_per_s == 30e9
    assert found.rate("bf16") == ("fp32", 100e9)  # an emulated bf16 is slower than fp32
    assert "2026-01-01" in found.sources[0] and "2 threads" in found.sources[0]
    assert calibrate.find_accelerator("h100").name == "h100-sxm"


def test_one_thread_is_a_thread() -> None:
    calibrate.store(result(threads=1))
    (source,) = calibrate.find_accelerator("this").sources
    assert "1 thread" in source and "threads" not in source


def test_a_gpu_comes_before_the_processor_and_both_can_be_asked_for() -> None:
    cpu = result()["devices"][0]
    calibrate.store(result(devices=[{**cpu, "device": "cuda", "memory_bytes": 5}, cpu]))
    assert calibrate.find_accelerator("this").memory_bytes == 5
    assert calibrate.find_accelerator("this:cpu").memory_bytes == 1000
    with pytest.raises(CannotRunError):
        calibrate.find_accelerator("this:tpu")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 0, "devices": [1]}', '{"version": 1, "devices": []}'])
def test_an_unreadable_calibration_counts_as_none(text: str) -> None:
    calibrate.calibration_file().write_text(text)
    assert calibrate.stored() is None


def test_the_command_prints_what_a_job_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def run_job(kind: str, spec: dict[str, Any], names: list[str]) -> tuple[None, dict[str, Any]]:
        asked.append((kind, spec))
        return None, {"found": result(), "kept_in": "calibration.json"}

    monkeypatch.setattr(command, "run_job", run_job)
    assert run(["calibrate", "--threads", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == result() and "kept in calibration.json" in err
    assert run(["calibrate", "--threads", "1"]) == 0
    assert "30 GB/s" in capsys.readouterr().out
    assert asked == [("calibrate", {"what": "ceilings", "threads": 1, "settings": {}})] * 2


@pytest.mark.slow
def test_the_command_measures_and_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == calibrate.stored()


def test_an_unwritable_place_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setenv("TRILEMMA_HOME", str(taken))
    with pytest.raises(CannotRunError, match="cannot be written"):
        calibrate.store(result())


@pytest.mark.parametrize("threads", [-1, 5000])
def test_threads_have_a_range(threads: int) -> None:
    with pytest.raises(InputError, match="threads"):
        calibrate.calibrate(threads)
