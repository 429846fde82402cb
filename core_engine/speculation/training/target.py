"""The model that a draft is trained for, as training needs it: its tables, and text that it generates.

Text comes from an engine of its own in float32, whose steps a recorder watches in the place of a proposer. Hidden
states are those after the final norm, which the head multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.kernels.choice import COMPILED
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder, assemble
from core_engine.model.embedded import ENLARGED
from core_engine.model.loader import LoadedModel, OpenedModel, load_model, open_model
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from core_engine.model.weights import model_digest
from core_engine.plan import Row
from core_engine.quant.quantize import EMBEDDING, HEAD
from core_engine.request import SamplingParams
from core_engine.speculation.draft_model import FINAL_NORM
from core_engine.speculation.proposer import NO_DRAFT, Ask, Draft
from core_engine.speculation.target_parts import first_layers, tables_of

STEP_TOKENS = 512
ONE_MORE = SamplingParams(max_tokens=1, ignore_eos=True)
MIB = 2**20


@dataclass(frozen=True)
class Target:
    """A model in float32 on the CPU. embedding, head: [vocab_size, hidden_size]. fingerprint tells it from every other
    one."""

    name: str
    loaded: LoadedModel
    opened: OpenedModel
    embedding: torch.Tensor
    head: torch.Tensor
    fingerprint: str

    @property
    def spec(self) -> DecoderSpec:
        """Its sizes."""
        return self.loaded.decoder.spec

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self.loaded.tokenizer

    def replies(
        self, asked: Sequence[tuple[Sequence[int], SamplingParams]], batch: int
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each (prompt ids, how to go on), `batch` at a time: ids int32 [tokens] of prompt and reply but its newest
        token, and the hidden states float16 [tokens, hidden_size] at them."""
        recorder = _Recorder()
        engine = Engine(self._config(asked, batch), self.loaded, proposer=recorder)
        names = [engine.add(list(ids), params) for ids, params in asked]
        engine.expect_more_arrivals(False)
        while engine.has_unfinished():
            engine.step()
        found = []
        for name, (ids, _) in zip(names, asked, strict=True):
            hidden = recorder.states_of(name)
            tokens = [*ids, *engine.completion(name).token_ids][: len(hidden)]
            found.append((torch.tensor(tokens, dtype=torch.int32), hidden))
        return found

    def after_layers(self, count: int, sequences: Sequence[Sequence[int]], batch: int) -> torch.Tensor:
        """Hidden states float16 [tokens of all sequences, hidden_size] after the first `count` layers, each divided by
        its root mean square, as a final norm divides them."""
        spec, named = first_layers(self.opened, count)
        tables = {EMBEDDING: self.embedding} | ({} if spec.tie_embeddings else {HEAD: self.head})
        weights = assemble(spec, named | tables | {FINAL_NORM: torch.ones(spec.hidden_size)})
        kind = CompiledDecoder if self.loaded.kernels.kernels == COMPILED else Decoder
        first = replace(self, loaded=replace(self.loaded, decoder=kind(spec, weights), activation_peaks={}))
        return torch.cat([hidden for _, hidden in first.replies([(ids, ONE_MORE) for ids in sequences], batch)])

    def _config(self, asked: Sequence[tuple[Sequence[int], SamplingParams]], batch: int) -> EngineConfig:
        """Room for `batch` of the longest; nothing shared, so that every token is computed where it is watched."""
        spec = self.spec
        longest = max(len(ids) + params.max_tokens for ids, params in asked)
        token_bytes = 2 * 4 * spec.num_layers * spec.num_kv_heads * spec.head_dim
        block_size = EngineConfig().block_size
        blocks = batch * -(-longest // block_size)
        return EngineConfig.from_settings(
            {
                "dtype": "fp32", "device": "cpu", "prefix_cache": "off", "max_num_seqs": batch,
                "max_num_batched_tokens": max(STEP_TOKENS, batch), "draft_control": "fixed",
                "max_queue": max(len(asked), EngineConfig().max_queue),
                "kv_memory_mib": 1 + blocks * block_size * token_bytes // MIB,
            }
        )  # fmt: skip


class _Recorder:
    """Proposes nothing and keeps the hidden states of every request."""

    needs_hidden = True

    def __init__(self) -> None:
        self._kept: dict[str, list[torch.Tensor]] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """None at all."""
        return [NO_DRAFT] * len(asks)

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Copy them; a request that begins anew is kept anew."""
        for row, states in zip(rows, hidden.split([row.count for row in rows]), strict=True):
            if not row.start:
                self._kept[row.request_id] = []
            self._kept[row.request_id].append(states.half())

    def states_of(self, request_id: str) -> torch.Tensor:
        """All that were kept, [tokens, hidden_size]."""
        return torch.cat(self._kept[request_id])

    def release(self, request_id: str) -> None:
        """They are read when the request has ended."""

    def weights_bytes(self) -> int:
        """It has none."""
        return 0

    def cache_bytes(self) -> int:
        """Bytes of what is kept."""
        return sum(states.nbytes for kept in self._kept.values() for states in kept)


def open_target(config: EngineConfig, report: Callable[[str], None] = lambda _: None) -> Target:
    """The model of a configuration in float32 on the CPU; errors as load_model's."""
    plain = EngineConfig.from_settings(
        {"model": config.model, "kernels": config.kernels, "threads": config.threads, "dtype": "fp32", "device": "cpu"}
    )
    opened = open_model(plain, report)
    loaded = load_model(plain, report)
    # The enlarged model's drafts are the embedded one's: their tokens are the same.
    name = loaded.name if config.model != ENLARGED else loaded.name.split(" (")[0]
    return Target(name, loaded, opened, *tables_of(opened), model_digest(opened.path))
