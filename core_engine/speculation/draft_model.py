"""A small Llama as the draft: an independent one with an embedding of its own, one distilled over the target's, or the
target's own first layers.

Follows each sequence by its ids alone, so that prefix hits, preemption and pieces of prompts make no difference to it:
what it has not seen it computes when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from core_engine.model.decoder import assemble
from core_engine.model.loader import OpenedModel
from core_engine.model.rope import RopeSpec
from core_engine.model.spec import DecoderSpec
from core_engine.plan import Row
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import EMBEDDING
from core_engine.speculation.artefact import Artefact, rounded_rows
from core_engine.speculation.draft_decoder import DraftDecoder, Piece
from core_engine.speculation.drafting import Choice, Shortlist, choose, common_prefix
from core_engine.speculation.proposer import Ask, Draft
from core_engine.speculation.target_parts import first_layers, tables_of

FINAL_NORM = "model.norm.weight"


def spec_of(artefact: Artefact, vocab_size: int, max_position: int) -> DecoderSpec:
    """The draft's layers as the engine's decoder takes them; vocab_size is that of its embedding."""
    shape = artefact.about["shape"]
    return DecoderSpec(
        hidden_size=shape["hidden_size"], intermediate_size=shape["intermediate_size"], num_layers=shape["num_layers"],
        num_heads=shape["num_heads"], num_kv_heads=shape["num_kv_heads"], head_dim=shape["head_dim"],
        vocab_size=vocab_size, max_position=max_position, rms_norm_eps=1e-5, rope=RopeSpec(shape["rope_theta"]),
        windows=(shape["window"],) * shape["num_layers"], tie_embeddings=False, eos_token_ids=(),
    )  # fmt: skip


def layers_of(artefact: Artefact) -> dict[str, torch.Tensor | QuantizedMatrix]:
    """The layers and the final norm by Hugging Face's names."""
    names = [name for name in artefact.tensors if name.startswith("model.layers.")]
    return {name: artefact.weight(name) for name in [*names, FINAL_NORM]}


def rows(matrix: torch.Tensor | QuantizedMatrix, ids: torch.Tensor) -> torch.Tensor | QuantizedMatrix:
    """Rows `ids` of a matrix."""
    return matrix.taken(matrix.codes[ids], ids) if isinstance(matrix, QuantizedMatrix) else matrix[ids]


class DraftModel:
    """Proposes what a small Llama would say next."""

    needs_hidden = False

    def __init__(self, decoder: DraftDecoder, shortlist: Shortlist) -> None:
        self._decoder, self._shortlist = decoder, shortlist
        self._held: dict[str, list[int]] = {}  # ids whose keys and values are in the cache

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A chain of drafts for each ask: one pass to catch up with its tokens, then one a draft."""
        choices = [Choice(ask, self._shortlist) for ask in asks]
        pieces = [self._missing(ask) for ask in asks]
        live = list(zip(asks, choices, strict=True))
        while live:
            _, logits = self._decoder.run(pieces)
            chosen = choose(logits, [choice for _, choice in live])
            going = [(pair, token) for pair, token in zip(live, chosen, strict=True) if pair[1].wants_more]
            live = [pair for pair, _ in going]
            pieces = [
                Piece(ask.request_id, len(ask.tokens) + len(choice.tokens) - 1, (token,))
                for (ask, choice), token in going
            ]
        for ask, choice in zip(asks, choices, strict=True):
            self._held[ask.request_id] = [*ask.tokens, *choice.tokens[:-1]]  # the last one was never an input
        return [choice.draft() for choice in choices]

    def _missing(self, ask: Ask) -> Piece:
        """The tokens that its cache lacks: at least the newest, whose logits are wanted."""
        same = common_prefix(self._held.get(ask.request_id, ()), ask.tokens)
        start = min(same, len(ask.tokens) - 1)
        return Piece(ask.request_id, start, tuple(ask.tokens[start:]))

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Nothing: it needs none of the target's."""

    def release(self, request_id: str) -> None:
        """Drop what is held for a request."""
        self._held.pop(request_id, None)
        self._decoder.release(request_id)

    def weights_bytes(self) -> int:
        """Bytes of its own weights."""
        return self._decoder.weights_bytes()

    def cache_bytes(self) -> int:
        """Bytes of its KV cache."""
        return self._decoder.cache_bytes()


def independent_draft(artefact: Artefact, vocab_size: int, max_position: int, *, compiled: bool) -> DraftModel:
    """The draft with an embedding of its own, whose rows of the shortlist are its head."""
    embedding = artefact.weight(EMBEDDING)
    named = {**layers_of(artefact), EMBEDDING: embedding}
    head = rows(embedding, artefact.shortlist)
    return _draft_model(spec_of(artefact, vocab_size, max_position), named, head, artefact.shortlist, compiled)


def self_draft(
    artefact: Artefact, embedding: torch.Tensor, head: torch.Tensor, max_position: int, *, compiled: bool
) -> DraftModel:
    """The draft distilled over the target's embedding and head [vocab_size, hidden], which its projections are folded
    into here: nothing of the target is computed while it drafts."""
    own = embedding.float() @ artefact.plain("project_in.weight").t()
    spec = spec_of(artefact, len(embedding), max_position)
    named = {**layers_of(artefact), EMBEDDING: rounded_rows(own)}
    return _draft_model(spec, named, _narrowed(artefact, head), artefact.shortlist, compiled)


def early_exit(artefact: Artefact, opened: OpenedModel, *, compiled: bool) -> DraftModel:
    """The target's own first layers, then the norm and projection that were trained in front of its head.

    The layers are held a second time, in int8, with keys and values of their own: the target's stay as they are,
    whatever format it is run in.
    """
    embedding, head = tables_of(opened)
    spec, layers = first_layers(opened, artefact.about["exit_layers"])
    named = {name: rounded_rows(tensor) if tensor.dim() == 2 else tensor for name, tensor in layers.items()}
    named |= {EMBEDDING: rounded_rows(embedding), FINAL_NORM: artefact.plain(FINAL_NORM)}
    return _draft_model(spec, named, _narrowed(artefact, head), artefact.shortlist, compiled)


def _narrowed(artefact: Artefact, head: torch.Tensor) -> QuantizedMatrix:
    """The target's head [vocab_size, hidden] over the shortlist, behind the draft's projection to it."""
    return rounded_rows(head[artefact.shortlist].float() @ artefact.plain("project_out.weight"))


def _draft_model(
    spec: DecoderSpec,
    named: Mapping[str, torch.Tensor | QuantizedMatrix],
    head: torch.Tensor | QuantizedMatrix,
    shortlist: torch.Tensor,
    compiled: bool,
) -> DraftModel:
    """From tensors by Hugging Face's names, the embedding with them, and a head [ids of the shortlist, hidden]."""
    weights = replace(assemble(replace(spec, tie_embeddings=True), named), head=head)
    decoder = DraftDecoder(replace(spec, vocab_size=head.shape[0]), weights, compiled=compiled)
    return DraftModel(decoder, Shortlist(shortlist, spec.vocab_size))
