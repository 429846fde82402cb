"""Builds and opens the C++ step. Owns the build, its cache and the C structures; knows no model.

The library is built once for a source, compiler and processor (about 15 s) and kept under the cache directory. It takes
no OpenMP runtime of its own: torch's is already in the process, and two pools of threads would stall each other.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from core_engine.environment import cpu_flags
from core_engine.model.embedded import cache_root
from ledger.errors import InputError

SOURCES = (
    "vec.h",
    "gemm.h",
    "cache.h",
    "decode.h",
    "prefill.h",
    "naive.h",
    "model.h",
    "quantized.h",
    "groups.h",
    "expand.h",
    "integer.h",
    "quantized.cpp",
    "work.h",
    "kv_blocks.h",
    "quantized_attention.h",
    "attend.h",
    "threads.h",
    "step.h",
    "step.cpp",
    "sampling.h",
    "sampling.cpp",
)
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
# Environment variable: vectors of so many bits, not the processor's widest, whose use lowers some processors' clock.
VECTOR_BITS = "TRILEMMA_VECTOR_BITS"
BUILD_LIMIT_S = 300
COMPILERS = ("g++", "c++", "clang++")


class Matrix(ctypes.Structure):
    """TrilemmaMatrix: where a packed matrix is and how its numbers are stored."""

    _fields_ = [
        ("panels", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("stride", "columns", "depth", "bits", "group", "scale_bytes", "offset")],
        *[(name, ctypes.c_int64) for name in ("groups_of_super", "signed_scales", "activation_group")],
        ("order", ctypes.c_void_p),
    ]


class Codes(ctypes.Structure):
    """TrilemmaCodes: addresses of what a quantized matrix is packed from."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("codes", "scale", "scale_codes", "offset", "offset_codes")]


class Layer(ctypes.Structure):
    """TrilemmaLayer: packed products, addresses of norms and biases (None where there is none), and the window."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("input_norm", "post_norm")],
        ("qkv", Matrix * 3),
        ("output", Matrix),
        ("gate_up", Matrix * 2),
        ("down", Matrix),
        *[(name, ctypes.c_void_p) for name in ("qkv_bias", "output_bias", "gate_up_bias", "down_bias")],
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("window", ctypes.c_int64),
    ]


class Model(ctypes.Structure):
    """TrilemmaModel: sizes, constants and addresses."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab")],
        ("epsilon", ctypes.c_double),
        ("attention_factor", ctypes.c_double),
        *[(name, ctypes.c_void_p) for name in ("inverse_frequencies", "embedding")],
        ("lookup", Matrix),
        ("head", Matrix),
        ("final_norm", ctypes.c_void_p),
        ("layer", ctypes.POINTER(Layer)),
    ]


class Batch(ctypes.Structure):
    """TrilemmaBatch: the rows of one step as int32 arrays, the cache, the buffers, and how it is to be computed."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("rows", "tokens", "wanted")],
        *[
            (name, ctypes.c_void_p)
            for name in ("token_ids", "starts", "counts", "table_starts", "tables", "wanted_tokens")
        ],
        ("num_blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("cache", "workspace", "logits", "best")],
        ("threads", ctypes.c_int64),
        ("kind_ns", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("one_call", "fused", "flash", "kv_splits", "workspace_floats")],
        *[(name, ctypes.c_int64) for name in ("kv_bits", "kv_key_by_token", "kv_outliers", "kv_sinks")],
        *[(name, ctypes.c_void_p) for name in ("slots", "open", "hidden")],
    ]


class Sampling(ctypes.Structure):
    """TrilemmaSampling: what rows are to be chosen from and how, as addresses of arrays."""

    _fields_ = [
        *[(name, ctypes.c_int64) for name in ("rows", "vocab", "threads")],
        *[
            (name, ctypes.c_void_p)
            for name in (
                *("logits", "places", "temperatures", "top_ps", "min_ps", "top_ks", "numbers"),
                *("changed_starts", "changed_ids", "changed_scores", "tokens"),
            )
        ],
    ]


@cache
def library() -> ctypes.CDLL:
    """This processor's library, built when it is not there yet. OSError with the reason when it can't be had."""
    return opened(width_flags())


def width_flags() -> tuple[str, ...]:
    """What $TRILEMMA_VECTOR_BITS adds to a build; InputError for a width that there is not."""
    bits = os.environ.get(VECTOR_BITS, "").strip()
    if bits not in ("", "128", "256", "512"):
        raise InputError(VECTOR_BITS, bits, "128, 256 or 512, or nothing for the processor's widest")
    return (f"-DTRILEMMA_WIDTH={int(bits) // 32}",) if bits else ()


def opened(flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library built with more flags than usual (-DTRILEMMA_WIDTH=4: as on another processor). As library()."""
    path = _built(compiler(), flags)
    for runtime in _openmp_runtimes():
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    found = ctypes.CDLL(str(path))
    for function in (found.trilemma_workspace, found.trilemma_step, found.trilemma_panel_bytes):
        function.restype = ctypes.c_int64
    found.trilemma_kinds.restype = ctypes.c_char_p
    return found


def _openmp_runtimes() -> list[Path]:
    """torch's, found without importing it, which takes a second."""
    package = find_spec("torch")
    if package is None or package.origin is None:
        return []
    return sorted(Path(package.origin).parent.glob("lib/lib*omp*.so*"))


def compiler() -> str:
    """$CXX, or the first of g++, c++ and clang++ that is there; OSError when there is none."""
    for name in [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise OSError(f"no C++ compiler was found ({os.environ.get('CXX') or ', '.join(COMPILERS)})")


def library_path(compiler: str, flags: tuple[str, ...] = ()) -> Path:
    """Where the library of this source, compiler, processor and these further flags is kept, built or not."""
    folder = Path(__file__).parent
    key = hashlib.sha256()
    for part in (
        *[(folder / name).read_bytes() for name in SOURCES],
        repr((compiler, FLAGS + flags, sorted(cpu_flags()))).encode(),
    ):
        key.update(part)
    return cache_root() / "kernels" / f"step-{key.hexdigest()[:16]}.so"


def _built(compiler: str, flags: tuple[str, ...]) -> Path:
    target = library_path(compiler, flags)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            _compile(compiler, flags, made)
            made.replace(target)  # another process may have been quicker: then this one's replaces the same bytes
    return target


def _compile(compiler: str, flags: tuple[str, ...], made: Path) -> None:
    folder = Path(__file__).parent
    compile_flags = [flag for flag in FLAGS + flags if flag != "-shared"]
    units = [(folder / name, made.with_suffix(f".{name}.o")) for name in SOURCES if name.endswith(".cpp")]
    for command in (
        *[[compiler, *compile_flags, "-c", str(source), "-o", str(objects)] for source, objects in units],
        [compiler, "-shared", *[str(objects) for _, objects in units], "-o", str(made)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise OSError(f"{compiler} was not done in {BUILD_LIMIT_S} s") from None
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
