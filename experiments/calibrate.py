"""Measures the ceilings of this machine: memory bandwidth and matrix rates by dtype, in about 20 seconds.

Owns the measuring, the stored file, and turning it into an Accelerator. Knows nothing of models. Each figure is the
median over repeats with its spread; what is copied and read is larger than any processor's cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from experiments.store import data_home
from experiments.whole_file import write_whole
from ledger.counted import counted
from ledger.errors import CannotRunError, InputError
from ledger.hardware import Accelerator, accelerator

VERSION = 1
FILE_NAME = "calibration.json"
BUDGET_S = 20.0
MAX_REPEATS = 40
MIN_REPEATS = 3
COPY_BYTES = {"cpu": 512 * 2**20, "cuda": 4 * 2**30}
# Side of the square matrices: at 2,048 an fp32 product does 341 FLOP/B, above any device's ridge for fp32.
SIDES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
LONGEST_PRODUCT_S = 0.6
GEMM_DTYPES = {"cpu": ("fp32", "bf16", "int8"), "cuda": ("fp32", "bf16", "fp16", "fp8", "int8")}

Progress = Callable[[str, float], None]  # (what is measured, share of the work done)


def calibrate(
    threads: int = 0, budget_s: float | None = None, on_progress: Progress = lambda _what, _share: None
) -> dict[str, Any]:
    """The measured ceilings of every device here, as stored in calibration.json. `threads` 0: as the engine uses.

    {"version", "date", "cpu", "threads", "torch", "duration_s", "provenance": "measured", "devices": [{"device",
    "name", "memory_bytes", "memory_source", "bandwidth": {"copy", "read"}, "gemm": {dtype: ...}}]}; a measurement is
    {"median", "low", "high", "repeats"} in bytes/s or operations/s, low and high being the 10th and 90th percentile.
    A dtype that does not work here is left out. InputError for a negative number of threads.
    """
    import torch

    from core_engine.environment import cpu_name, resolve_threads

    if threads < 0 or threads > 4096:
        raise InputError("threads", threads, "0 (every core) to 4,096")
    before, started = torch.get_num_threads(), time.perf_counter()
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    torch.set_num_threads(resolve_threads(threads))
    try:
        with torch.inference_mode():
            each_s = (BUDGET_S if budget_s is None else budget_s) / len(devices)
            found = [_device(name, each_s, on_progress) for name in devices]
        used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    return {
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "threads": used,
        "torch": torch.__version__,
        "duration_s": time.perf_counter() - started,
        "devices": found,
        "provenance": "measured",
    }


def store(result: Mapping[str, Any]) -> Path:
    """Write the calibration; the file is replaced whole, so an interrupted run leaves the old one. Returns its path."""
    path = calibration_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(result, indent=1, allow_nan=False).encode())
    except OSError as error:
        raise CannotRunError(f"calibration: {path} cannot be written ({error.strerror or error})") from error
    return path


def stored() -> dict[str, Any] | None:
    """The calibration of this machine; None when there is none, or the file is of another version or unreadable."""
    try:
        found = json.loads(calibration_file().read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("version") == VERSION and found.get("devices") else None


def calibration_file() -> Path:
    """Where the calibration is kept: $TRILEMMA_HOME/calibration.json."""
    return data_home() / FILE_NAME


def this_machine(device: str | None = None) -> Accelerator | None:
    """This machine as an accelerator, from the stored calibration; None before one. The GPU where there is one.

    `device` "cpu" or "cuda" asks for one of them. Bandwidth is the better of read and copy.
    """
    found = stored()
    if found is None:
        return None
    entry = next((item for item in found["devices"] if device in (None, item["device"])), None)
    return None if entry is None else as_accelerator(entry, found)


def as_accelerator(entry: Mapping[str, Any], calibration: Mapping[str, Any]) -> Accelerator:
    """One calibrated device as an accelerator."""
    threads = f", {counted(calibration['threads'], 'thread')}" if entry["device"] == "cpu" else ""
    return Accelerator(
        name="this",
        label=f"this machine ({entry['name']})",
        vendor="",
        memory_bytes=entry["memory_bytes"],
        memory_source=entry["memory_source"],
        bandwidth_bytes_per_s=max(item["median"] for item in entry["bandwidth"].values()),
        flops_per_s={dtype: item["median"] for dtype, item in entry["gemm"].items()},
        link_bytes_per_s=None,
        power_w=None,
        sources=(f"trilemma calibrate, {calibration['date']}{threads}, torch {calibration['torch']}",),
        provenance="measured",
    )


def find_accelerator(name: str) -> Accelerator:
    """An accelerator by name, alias, file, or "this" for the stored calibration ("this:cpu" beside a GPU)."""
    wanted, _, device = name.strip().lower().partition(":")
    if wanted == "this" and device:
        return accelerator("this", this_machine(device))
    return accelerator(name, this_machine())


def _device(device: str, budget_s: float, on_progress: Progress) -> dict[str, Any]:
    import torch

    rates = GEMM_DTYPES[device]
    each_s = budget_s / (len(rates) + 2)
    steps: list[tuple[str, Callable[[], dict[str, Any] | None]]] = [
        ("copy bandwidth", lambda: _copy(device, each_s)),
        ("read bandwidth", lambda: read_rate(device, each_s)),
        *((f"matrix rate, {dtype}", lambda dtype=dtype: _gemm(device, dtype, each_s)) for dtype in rates),
    ]
    measured: list[dict[str, Any] | None] = []
    for index, (what, measure) in enumerate(steps):
        on_progress(f"{device}: {what}", index / len(steps))
        measured.append(measure())
    copy, read, *gemm = measured
    memory_bytes, source = _memory(device)
    return {
        "device": device,
        "name": torch.cuda.get_device_name() if device == "cuda" else _cpu_label(),
        "memory_bytes": memory_bytes,
        "memory_source": source,
        "bandwidth": {"copy": copy, "read": read},
        "gemm": {dtype: item for dtype, item in zip(rates, gemm, strict=True) if item is not None},
    }


def _cpu_label() -> str:
    import torch

    from core_engine.environment import cpu_name

    return f"{cpu_name()}, {counted(torch.get_num_threads(), 'thread')}"


def _memory(device: str) -> tuple[int, str]:
    """(bytes, who says so): the driver for a GPU, the operating system otherwise."""
    if device == "cuda":
        import torch

        try:
            import pynvml  # the driver's own total; torch's is what is left after the driver's share

            pynvml.nvmlInit()
            return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total), "driver"
        except Exception:  # no NVML: torch's figure is close and needs nothing
            return int(torch.cuda.mem_get_info()[1]), "driver"
    import psutil

    return int(psutil.virtual_memory().total), "system"


def _copy(device: str, budget_s: float) -> dict[str, Any]:
    """Bytes/s of a copy: read and written bytes added."""
    import torch

    size = _fitting(COPY_BYTES[device], device)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return _rate(lambda: target.copy_(source), 2 * size, device, budget_s)


def read_rate(device: str, budget_s: float) -> dict[str, Any]:
    """Bytes/s of a sum in fp32, which reads every element once and writes nothing.

    A matrix-vector product will not do: on a 2-core AVX2 machine MKL's reached 15 GB/s where a sum reads 25.
    """
    import torch

    size = _fitting(COPY_BYTES[device], device)
    values = torch.ones(size // 4, device=device)
    return _rate(values.sum, 4 * len(values), device, budget_s)


def _gemm(device: str, dtype: str, budget_s: float) -> dict[str, Any] | None:
    """Operations/s of square products, the best of a few sizes; None where the dtype does not work on this device."""
    best: tuple[float, int] | None = None
    for side in SIDES[device]:
        try:
            product = _product(device, dtype, side)
            _timed(product, device)  # the first one pays for set-up
            took = _timed(product, device)
        except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
            break  # no kernel for this dtype and device
        if best is None or 2 * side**3 / took > best[0]:
            best = 2 * side**3 / took, side
        if took > LONGEST_PRODUCT_S / 8:  # the next side takes eight times as long
            break
    if best is None:
        return None
    return gemm_rate(device, dtype, best[1], budget_s)


def gemm_rate(device: str, dtype: str, side: int, budget_s: float) -> dict[str, Any]:
    """Operations/s of products of two `side` x `side` matrices."""
    return _rate(_product(device, dtype, side), 2 * side**3, device, budget_s) | {"side": side}


def _product(device: str, dtype: str, side: int) -> Callable[[], Any]:
    """A function that multiplies two `side` x `side` matrices, laid out as the engine's linear layers have them."""
    import torch

    if dtype == "int8":
        left, right = (torch.ones(side, side, dtype=torch.int8, device=device) for _ in range(2))
        return lambda: torch._int_mm(left, right.t())
    if dtype == "fp8":
        one = torch.ones((), device=device)
        a, b = (torch.ones(side, side, device=device).to(torch.float8_e4m3fn) for _ in range(2))
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    weight, x = (torch.rand(side, side, device=device).to(kind) for _ in range(2))
    return lambda: torch.mm(weight, x.t())


def _fitting(wanted_bytes: int, device: str) -> int:
    """`wanted_bytes`, or an eighth of the free memory where that is less: two such tensors are alive at once."""
    import psutil
    import torch

    free = torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
    return max(16 * 2**20, min(wanted_bytes, free // 8))


def _rate(run: Callable[[], Any], amount: float, device: str, budget_s: float) -> dict[str, Any]:
    """`amount` per second over repeats within the budget, after one run that does not count."""
    took = _timed(run, device)
    repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(budget_s / max(took, 1e-6))))
    return summary([amount / _timed(run, device) for _ in range(repeats)])


def summary(rates: list[float]) -> dict[str, Any]:
    """{"median", "low", "high", "repeats"} of rates; low and high are the 10th and 90th percentile."""
    cuts = quantiles(rates, n=10, method="inclusive") if len(rates) > 1 else [rates[0]] * 9
    return {"median": median(rates), "low": cuts[0], "high": cuts[-1], "repeats": len(rates)}


def _timed(run: Callable[[], Any], device: str) -> float:
    """Seconds of one run, finished on the device."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
