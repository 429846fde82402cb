"""A draft's layers and their KV cache: the engine's own decoders over blocks that are taken as sequences grow.

Owns the cache and who holds which block. Knows no target and no sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from core_engine.executor.batch import build_batch
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder, DecoderWeights
from core_engine.model.spec import DecoderSpec
from core_engine.plan import Row

BLOCK = 16
FIRST_BLOCKS = 32
PIECE = 256  # tokens of a sequence that are computed at a time: what bounds the memory of a long prompt


@dataclass(frozen=True)
class Piece:
    """Tokens of a sequence from position `start` on; with `inputs` [tokens, hidden] instead of looking them up."""

    request_id: str
    start: int
    tokens: Sequence[int]
    inputs: torch.Tensor | None = None


class _Inputs(Decoder):
    """Takes hidden states where the plain decoder looks tokens up."""

    inputs: torch.Tensor | None = None

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return super()._embed(token_ids) if self.inputs is None else self.inputs


class _CompiledInputs(CompiledDecoder):
    """The same in compiled code: the table that ids are looked up in is the inputs, whose ids count from 0."""

    def look_up_in(self, inputs: torch.Tensor) -> None:
        """inputs float32 [num_tokens, hidden], contiguous; the caller holds them until the step is done."""
        self._model.embedding = inputs.data_ptr()


class DraftDecoder:
    """Runs sequences by their request's id. Positions below a piece's start must have been computed before."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, *, compiled: bool) -> None:
        self.spec = spec
        self._decoder = _CompiledInputs(spec, weights) if compiled else _Inputs(spec, weights)
        self._dtype, self._device = weights.dtype, weights.device
        self._tables: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._cache = self._room(1)  # block 0 is nobody's: padding reads it
        self._grow(FIRST_BLOCKS)

    def weights_bytes(self) -> int:
        """Bytes of the weights really held."""
        return self._decoder.weights.num_bytes()

    def cache_bytes(self) -> int:
        """Bytes of the cache, blocks that are free at the moment too."""
        return self._cache.untyped_storage().nbytes()

    def release(self, request_id: str) -> None:
        """Give a sequence's blocks back."""
        self._free += self._tables.pop(request_id, [])

    @torch.inference_mode()
    def run(self, pieces: Sequence[Piece]) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states after the final norm and logits of each piece's last token, on the weights' device.

        [pieces, hidden] and [pieces, ids of the head].
        """
        while any(len(piece.tokens) > PIECE for piece in pieces):
            self._step([_cut(piece, 0, PIECE) for piece in pieces if len(piece.tokens) > PIECE])
            pieces = [_cut(piece, PIECE, None) if len(piece.tokens) > PIECE else piece for piece in pieces]
        return self._step(pieces)

    def _step(self, pieces: Sequence[Piece]) -> tuple[torch.Tensor, torch.Tensor]:
        counts = [len(piece.tokens) for piece in pieces]
        ends = list(accumulate(counts))
        given = [piece.inputs for piece in pieces if piece.inputs is not None]
        inputs = torch.cat(given) if given else None
        rows = [
            self._row(piece, end - count, inputs is not None)
            for piece, end, count in zip(pieces, ends, counts, strict=True)
        ]
        wanted = [end - 1 for end in ends]
        if isinstance(self._decoder, _CompiledInputs):
            if inputs is not None:
                inputs = inputs.float().contiguous()
                self._decoder.look_up_in(inputs)
            hidden = torch.empty(ends[-1], self.spec.hidden_size)
            logits = self._decoder.step(rows, wanted, self._cache, hidden=hidden)
            return hidden[wanted], logits
        batch = build_batch(rows, BLOCK, self._device, padding_block=0, windows=self.spec.windows)
        self._decoder.inputs = inputs
        hidden = self._decoder.forward(batch.token_ids, batch.positions, self._cache, batch.attention)
        last = hidden[wanted]
        return last, self._decoder.logits(last)

    def _row(self, piece: Piece, first: int, numbered: bool) -> Row:
        end = piece.start + len(piece.tokens)
        table = self._tables.setdefault(piece.request_id, [])
        missing = -(-end // BLOCK) - len(table)
        if missing > len(self._free):
            self._grow(max(missing, self._cache.shape[2]))
        table += [self._free.pop() for _ in range(missing)]
        tokens = tuple(range(first, first + len(piece.tokens))) if numbered else tuple(piece.tokens)
        return Row(piece.request_id, piece.start, tokens, tuple(table), is_prefill=len(tokens) > 1)

    def _room(self, blocks: int) -> torch.Tensor:
        spec = self.spec
        shape = (spec.num_layers, 2, blocks, BLOCK, spec.num_kv_heads, spec.head_dim)
        return torch.zeros(shape, dtype=self._dtype, device=self._device)

    def _grow(self, blocks: int) -> None:
        """More blocks; what is held stays in its place."""
        before = self._cache.shape[2]
        self._cache = torch.cat([self._cache, self._room(blocks)], dim=2)
        self._free += range(before + blocks - 1, before - 1, -1)


def _cut(piece: Piece, first: int, last: int | None) -> Piece:
    return replace(
        piece,
        start=piece.start + first,
        tokens=piece.tokens[first:last],
        inputs=None if piece.inputs is None else piece.inputs[first:last],
    )
