"""EAGLE: one decoder layer that continues the target's features, and reads them with the target's own head.

Position i reads the target's feature there and the embedding of token i + 1, and predicts the feature of position
i + 1, whose logits draft token i + 2. Further drafts read the layer's own features instead. Its keys and values are
kept only for positions whose feature was the target's: those computed while drafting are computed again, from the true
features, at the next call. So full acceptance leaves no hole.

What the proposer never sees (a prefix found in the cache, tokens computed while nobody looked) is missing from its
context: the layer's own sequence begins at the first feature seen after the gap, with positions counted from there.
Rotary positions are relative, so this is the same as attending to that much of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from core_engine.model.decoder import assemble
from core_engine.plan import Row
from core_engine.quant.quantize import EMBEDDING
from core_engine.speculation.artefact import Artefact, rounded_rows
from core_engine.speculation.draft_decoder import DraftDecoder, Piece
from core_engine.speculation.draft_model import layers_of, spec_of
from core_engine.speculation.drafting import Choice, Shortlist, choose, common_prefix
from core_engine.speculation.features import Features
from core_engine.speculation.proposer import NO_DRAFT, Ask, Draft


@dataclass
class _Held:
    """One request. tokens: ids that what is held depends on; done: positions from `first` on whose keys and values come
    from the target's features; last: the newest of those features [hidden_size]."""

    first: int = 0
    done: int = 0
    tokens: list[int] = field(default_factory=list)
    last: torch.Tensor | None = None

    @property
    def end(self) -> int:
        """The position whose feature is needed next."""
        return self.first + self.done


class Joint:
    """The layer's input: a projection of [embedding ; feature], each divided by its typical size."""

    def __init__(self, embedding: torch.Tensor, weight: torch.Tensor, scales: Sequence[float]) -> None:
        self._embedding = embedding
        self._weight = weight
        self._scales = scales

    def __call__(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """[tokens, hidden] from ids and features [tokens, hidden]."""
        ids = torch.tensor(tokens, device=self._embedding.device)
        embedded = self._embedding[ids].to(self._weight.dtype).to(self._weight.device)
        x = torch.cat([embedded / self._scales[0], features.to(self._weight.dtype) / self._scales[1]], -1)
        return (self._weight @ x.t()).t()

    def num_bytes(self) -> int:
        """Bytes of the projection."""
        return self._weight.nbytes


class Eagle:
    """Proposes by features."""

    needs_hidden = True

    def __init__(self, decoder: DraftDecoder, joint: Joint, shortlist: Shortlist) -> None:
        self._decoder, self._joint, self._shortlist = decoder, joint, shortlist
        self._features = Features()
        self._held: dict[str, _Held] = {}

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A chain of drafts for each ask whose newest feature was observed; none for others."""
        found = {place: piece for place, ask in enumerate(asks) if (piece := self._caught_up(ask)) is not None}
        choices = {place: Choice(asks[place], self._shortlist) for place in found}
        pieces = list(found.values())
        live = list(choices.items())
        while live:
            features, logits = self._decoder.run(pieces)
            chosen = choose(logits, [choice for _, choice in live])
            going = [row for row, (_, choice) in enumerate(live) if choice.wants_more]
            inputs = self._joint([chosen[row] for row in going], features[going]) if going else None
            live = [live[row] for row in going]
            pieces = [
                self._further(asks[place], choice, chosen[row], inputs[at : at + 1])
                for at, (row, (place, choice)) in enumerate(zip(going, live, strict=True))
                if inputs is not None
            ]
        return [choices[place].draft() if place in choices else NO_DRAFT for place in range(len(asks))]

    def _further(self, ask: Ask, choice: Choice, token: int, inputs: torch.Tensor) -> Piece:
        """The piece that reads the draft just chosen and the layer's own feature."""
        start = self._held[ask.request_id].done + len(choice.tokens) - 1
        return Piece(ask.request_id, start, (token,), inputs)

    def _caught_up(self, ask: Ask) -> Piece | None:
        """The positions to compute from the target's features, up to the newest; None when that was not observed."""
        held, tokens = self._held.setdefault(ask.request_id, _Held()), ask.tokens
        same = common_prefix(held.tokens, tokens)
        if same < len(held.tokens):  # position i depends on the tokens up to i + 1
            held.done, held.tokens, held.last = max(0, min(held.done, same - 1 - held.first)), held.tokens[:same], None
        run = self._features.take(ask.request_id, tokens, held.end)
        features = run.features
        if run.start != held.end:
            held.first, held.done = run.start, 0
        if not len(features) and held.last is not None and held.end == len(tokens) - 1:
            held.done, features = held.done - 1, held.last[None]  # asked again about the same tokens
        if not len(features) or held.end + len(features) != len(tokens) - 1:
            self._forget(ask.request_id)
            return None
        after = tuple(tokens[held.end + 1 :])
        piece = Piece(ask.request_id, held.done, after, self._joint(after, features))
        held.done, held.tokens, held.last = held.done + len(features), list(tokens), features[-1]
        return piece

    def _forget(self, request_id: str) -> None:
        self._held.pop(request_id, None)
        self._decoder.release(request_id)

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Keep the target's features until they are asked about."""
        self._features.observe(rows, hidden)

    def release(self, request_id: str) -> None:
        """Drop what is held for a request."""
        self._forget(request_id)
        self._features.release(request_id)

    def weights_bytes(self) -> int:
        """Bytes of its own weights, the copied rows of the head with them."""
        return self._decoder.weights_bytes() + self._joint.num_bytes()

    def cache_bytes(self) -> int:
        """Bytes of its KV cache and of features that wait to be used."""
        return self._decoder.cache_bytes() + self._features.num_bytes()


def eagle(
    artefact: Artefact, embedding: torch.Tensor, head: torch.Tensor, max_position: int, *, compiled: bool
) -> Eagle:
    """From a trained layer and the target's embedding and head [vocab_size, hidden]; the embedding is kept as it is."""
    hidden = head.shape[1]
    spec = spec_of(artefact, hidden, max_position)
    reading = rounded_rows(head[artefact.shortlist])
    named = {**layers_of(artefact), EMBEDDING: torch.zeros(hidden, hidden)}
    weights = replace(assemble(replace(spec, tie_embeddings=True), named), head=reading)
    decoder = DraftDecoder(replace(spec, vocab_size=reading.shape[0]), weights, compiled=compiled)
    joint = Joint(embedding, artefact.plain("fc.weight"), artefact.plain("scales").tolist())
    return Eagle(decoder, joint, Shortlist(artefact.shortlist, len(embedding)))
