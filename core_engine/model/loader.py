"""From a model setting to weights in memory, tokenizer and specs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.disaggregation.sides import TwoSides, start_sides
from core_engine.environment import resolve_device, resolve_dtype, resolve_threads
from core_engine.kernels.choice import COMPILED, TORCH, TRITON, KernelChoice, choose_kernels
from core_engine.memory_readings import process_rss_bytes, return_freed_memory
from core_engine.model.compiled import CompiledDecoder, PackedWeights
from core_engine.model.decoder import Decoder, DecoderWeights, assemble
from core_engine.model.embedded import ENLARGED, embedded_directory, ensure_embedded, find_gguf
from core_engine.model.embedded import NAME as EMBEDDED_NAME
from core_engine.model.enlarged import LABEL, EnlargedSource, enlarged_config
from core_engine.model.gguf import GgufFile
from core_engine.model.gguf_tokenizer import write_tokenizer
from core_engine.model.sources import DirectorySource, GgufSource, Source
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from core_engine.model.weights import Wanted, plain_or_stored, quantized, refuse, with_head
from core_engine.parallel.shards import REASON, ShardedModel, ShardedWeights, start_shards
from core_engine.quant.calibrate import read_text
from core_engine.quant.quantize import Cost, Named
from core_engine.quant.scheme import AS_STORED, Scheme
from ledger.errors import InputError, unknown_name
from ledger.model_spec import ModelSpec


@dataclass(frozen=True)
class LoadedModel:
    """Everything that engines of one model, device and dtype share. Weights never change once loaded.

    scheme is how weights were asked for; quantizing what it took to quantize them here, None where that was not done.
    activation_peaks remembers, by the sizes of an engine, what its start-up measured: every run has a fresh engine.
    runtime_bytes is what was resident before the weights were read: interpreter, libraries, tokenizer.
    """

    name: str
    decoder: Decoder | CompiledDecoder | ShardedModel | TwoSides
    tokenizer: Tokenizer
    spec: ModelSpec
    kernels: KernelChoice
    scheme: Scheme | None = None
    quantizing: Cost | None = field(default=None, compare=False)
    activation_peaks: dict[tuple[Any, ...], int] = field(default_factory=dict, compare=False)
    runtime_bytes: int | None = field(default=None, compare=False)

    @property
    def weights(self) -> DecoderWeights | PackedWeights | ShardedWeights:
        """The tensors held."""
        return self.decoder.weights

    @property
    def bytes_here(self) -> int:
        """Bytes of weights in this process."""
        return 0 if isinstance(self.decoder, ShardedModel) else self.weights.num_bytes()

    def close(self) -> None:
        """End the processes that hold it, where there are any; then it can't be used any more."""
        if isinstance(self.decoder, ShardedModel | TwoSides):
            self.decoder.close()


def model_path(model: str, report: Callable[[str], None] = lambda _: None) -> Path:
    """The directory or GGUF file of a model setting; InputError when it is neither."""
    if model in ("embedded", ENLARGED):
        return ensure_embedded(report)
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise InputError("model", model, "a directory, or a file whose name ends in .gguf")
    elif not path.is_dir():
        raise unknown_name(
            "model",
            model,
            ("embedded", ENLARGED),
            f"embedded, {ENLARGED}, an existing directory with config.json and *.safetensors, or a .gguf file",
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


@dataclass(frozen=True)
class OpenedModel:
    """A model whose weights are still in its files. config is config.json's, or what a GGUF file says in its words."""

    path: Path
    config: dict[str, Any]
    file: GgufFile | None
    spec: DecoderSpec
    scheme: Scheme
    source: Source

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        if self.file is None:
            return Tokenizer(self.path, self.spec.eos_token_ids)
        with tempfile.TemporaryDirectory(prefix="trilemma-") as directory:
            write_tokenizer(self.file.fields, Path(directory))
            return Tokenizer(Path(directory), self.spec.eos_token_ids)

    def weights(
        self, wanted: Wanted, tokenizer: Tokenizer, calibration: Path | None, report: Callable[[str], None]
    ) -> tuple[Named, Cost | None]:
        """All weights by Hugging Face's names, and what quantizing them here took; None where nothing was."""
        cost = None
        if self.scheme.makes:
            text = read_text(calibration) if self.scheme.calibrated else None
            named, cost = quantized(self.spec, self.source, wanted, tokenizer, self.path, text, report)
        else:
            named = plain_or_stored(self.source, wanted)
        with_head(self.spec, named, self.source, wanted)
        return named, cost


def open_model(config: EngineConfig, report: Callable[[str], None] = lambda _: None) -> OpenedModel:
    """Open a model's files; InputError on one that can't be read, or can't be held as the variables ask."""
    path = model_path(config.model, report)
    file = GgufFile(path) if path.is_file() else None
    raw = file.config if file is not None else read_config(path)
    if config.model == ENLARGED:
        raw = enlarged_config(raw)
    spec, scheme = DecoderSpec.from_config(raw), Scheme.of(config)
    if file is not None:
        source: Source = GgufSource(file)
    elif scheme.weights == AS_STORED and path == embedded_directory():
        source = GgufSource(GgufFile(find_gguf()))  # the file that the directory was converted from
    else:
        source = DirectorySource(path, raw)
        if config.model == ENLARGED:
            source = EnlargedSource(source)
    refuse(spec, source, scheme)
    return OpenedModel(path, raw, file, spec, scheme, source)


def _name(model: str, opened: OpenedModel) -> str:
    if model == ENLARGED:
        return f"{EMBEDDED_NAME} ({LABEL})"
    if model == "embedded":
        return EMBEDDED_NAME
    return opened.path.stem if opened.file is not None else opened.path.name


def decoder_of(kernels: KernelChoice, spec: DecoderSpec, weights: DecoderWeights) -> Decoder | CompiledDecoder:
    """The decoder that computes with those kernels."""
    if kernels.kernels == COMPILED:
        return CompiledDecoder(spec, weights)
    if kernels.kernels == TRITON:
        from core_engine.model.triton_decoder import TritonDecoder  # imports triton

        return TritonDecoder(spec, weights)
    return Decoder(spec, weights)


def load_model(config: EngineConfig, report: Callable[[str], None] = lambda _: None) -> LoadedModel:
    """Load weights and tokenizer. InputError on a model it can't read or hold as asked, CannotRunError on a device or
    kernels that are not here."""
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    torch.set_num_threads(resolve_threads(config.threads))
    opened = open_model(config, report)
    spec = opened.spec
    if config.ranks > 1:
        return _load_ranks(config, opened, device, dtype, report)
    kernels = choose_kernels(config, device, dtype, spec.head_dim, report)
    name = _name(config.model, opened)
    if config.disaggregation == "on":
        return _load_sides(config, opened, device, dtype, kernels, report)
    tokenizer = opened.tokenizer()
    runtime_bytes = process_rss_bytes()  # before the weights, so that it holds everything else and none of them
    named, cost = opened.weights(Wanted(opened.scheme, device, dtype), tokenizer, None, report)
    weights = assemble(spec, named)
    del named
    decoder = decoder_of(kernels, spec, weights)
    model = ModelSpec.from_config(opened.config, name)
    scheme = opened.scheme
    del weights, opened
    return_freed_memory()  # the parts that were joined or packed, and the mapped files
    return LoadedModel(name, decoder, tokenizer, model, kernels, scheme, quantizing=cost, runtime_bytes=runtime_bytes)


def _load_ranks(
    config: EngineConfig,
    opened: OpenedModel,
    device: torch.device,
    dtype: torch.dtype,
    report: Callable[[str], None],
) -> LoadedModel:
    """The same with the weights in ranks, which read them: none are read here."""
    kernels = KernelChoice(TORCH, REASON)
    kernels.refuse_what_needs_compiled(config)
    model = ModelSpec.from_config(opened.config, _name(config.model, opened))
    tokenizer = opened.tokenizer()
    runtime_bytes = process_rss_bytes()
    sharded = start_shards(config, opened.spec, model, device, dtype, report)
    return LoadedModel(model.name, sharded, tokenizer, model, kernels, opened.scheme, runtime_bytes=runtime_bytes)


def _load_sides(
    config: EngineConfig,
    opened: OpenedModel,
    device: torch.device,
    dtype: torch.dtype,
    kernels: KernelChoice,
    report: Callable[[str], None],
) -> LoadedModel:
    """The same with the weights in a prefill and a decode process, which read them: none are read here."""
    model = ModelSpec.from_config(opened.config, _name(config.model, opened))
    tokenizer = opened.tokenizer()
    runtime_bytes = process_rss_bytes()
    sides = start_sides(config, opened.spec, device, dtype, report)
    return LoadedModel(model.name, sides, tokenizer, model, kernels, opened.scheme, runtime_bytes=runtime_bytes)
