"""From a model setting to weights in memory, tokenizer and specs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.environment import resolve_device, resolve_dtype, resolve_threads
from core_engine.memory_readings import process_rss_bytes, return_freed_memory
from core_engine.model.decoder import Decoder, DecoderWeights, assemble
from core_engine.model.embedded import NAME as EMBEDDED_NAME
from core_engine.model.embedded import ensure_embedded
from core_engine.model.gguf import GgufFile
from core_engine.model.gguf_tokenizer import write_tokenizer
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from ledger.errors import InputError
from ledger.model_spec import ModelSpec

STORED_DTYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class LoadedModel:
    """Everything that engines of one model, device and dtype share. Weights never change once loaded.

    activation_peaks remembers, by the sizes of an engine, what its start-up measured: every run has a fresh engine.
    runtime_bytes is what was resident before the weights were read: interpreter, libraries, tokenizer.
    """

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    spec: ModelSpec
    activation_peaks: dict[tuple[int, ...], int] = field(default_factory=dict, compare=False)
    runtime_bytes: int | None = field(default=None, compare=False)

    @property
    def weights(self) -> DecoderWeights:
        """The tensors held."""
        return self.decoder.weights


def model_path(model: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """The directory or GGUF file of a model setting; InputError when it is neither."""
    if model == "embedded":
        return ensure_embedded(report)
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise InputError("model", model, "a directory, or a file whose name ends in .gguf")
    elif not path.is_dir():
        raise InputError(
            "model", model, "embedded, an existing directory with config.json and *.safetensors, or a .gguf file"
        )
    elif not (path / "config.json").is_file():
        raise InputError("model", model, "a directory with a config.json")
    return path


def read_config(directory: Path) -> dict[str, Any]:
    """config.json as a dict, with generation_config.json's end tokens when it has some."""
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
        generation = directory / "generation_config.json"
        if generation.is_file():
            eos = json.loads(generation.read_text("utf-8")).get("eos_token_id")
            config["eos_token_id"] = config.get("eos_token_id") if eos is None else eos
    except (OSError, ValueError) as error:
        raise InputError("model", str(directory), f"a readable config.json ({error})") from None
    if not isinstance(config, dict):
        raise InputError("model", str(directory), "a config.json that is an object")
    return config


def load_model(config: EngineConfig, report: Callable[[str], None] = lambda _: None) -> LoadedModel:
    """Load weights and tokenizer. InputError on a model it can't read, CannotRunError on a device that is not here."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    torch.set_num_threads(resolve_threads(config.threads))
    path = model_path(config.model, report)
    file = GgufFile(path) if path.is_file() else None
    raw = file.config if file is not None else read_config(path)
    spec = DecoderSpec.from_config(raw)
    name = EMBEDDED_NAME if config.model == "embedded" else path.stem if file is not None else path.name
    tokenizer = Tokenizer(path, spec.eos_token_ids) if file is None else _gguf_tokenizer(file, spec)
    runtime_bytes = process_rss_bytes()  # before the weights, so that it holds everything else and none of them
    if file is None:
        weights = assemble(spec, _read_tensors(path, device, dtype))
    else:
        weights = assemble(spec, dict(_gguf_tensors(file, device, dtype)))
    return_freed_memory()  # the parts that were joined
    model = ModelSpec.from_config(raw, name)
    return LoadedModel(name, Decoder(spec, weights), tokenizer, model, runtime_bytes=runtime_bytes)


def _gguf_tensors(file: GgufFile, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    for name, array in file.tensors():
        owned = array if array.flags.writeable else array.copy()  # float32 tensors are the mapped file itself
        yield name, torch.from_numpy(owned).to(device=device, dtype=dtype, copy=True)


def _gguf_tokenizer(file: GgufFile, spec: DecoderSpec) -> Tokenizer:
    with tempfile.TemporaryDirectory(prefix="trilemma-") as directory:
        write_tokenizer(file.fields, Path(directory))
        return Tokenizer(Path(directory), spec.eos_token_ids)


def _read_tensors(directory: Path, device: torch.device, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, torch.Tensor] = {}
    for path in _weight_files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dict
                    stored = file.get_slice(name).get_dtype()
                    if stored not in STORED_DTYPES:
                        raise InputError("model", f"{name} stored as {stored}", f"{', '.join(STORED_DTYPES)}")
                    if name in tensors:
                        raise InputError("model", f"{name} in two files", "every tensor once")
                    # copy=True: the file is mapped, and weights must be memory of their own to be counted.
                    tensors[name] = file.get_tensor(name).to(device=device, dtype=dtype, copy=True)
        except (SafetensorError, OSError) as error:
            raise InputError("model", str(path), f"a readable safetensors file ({error})") from None
    return tensors


def _weight_files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError):
            raise InputError("model", str(index), "a readable index with a weight_map") from None
        missing = [name for name in names if not (directory / name).is_file()]
        if missing:
            raise InputError("model", str(directory), f"all files of the index; missing: {', '.join(missing)}")
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    files = [single] if single.is_file() else sorted(directory.glob("*.safetensors"))
    if not files:
        raise InputError("model", str(directory), "a directory with *.safetensors")
    return files
