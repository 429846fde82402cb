"""Medusa: heads that predict the next tokens all at once from the target's newest feature and the token it gave.

Each head is a residual block in front of the target's own head. There is no cache: a row whose feature was not observed
gets no draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from core_engine.kernels.linear import linear
from core_engine.plan import Row
from core_engine.speculation.artefact import Artefact
from core_engine.speculation.drafting import Choice, Shortlist
from core_engine.speculation.features import Features
from core_engine.speculation.proposer import NO_DRAFT, Ask, Draft

KEPT = 64  # tokens of a row: more than any number of drafts, and not a whole prompt


class Medusa:
    """Proposes with parallel heads. Draws of one ask are independent of one another, each from its head."""

    needs_hidden = True

    def __init__(
        self,
        embedding: torch.Tensor,
        blocks: tuple[torch.Tensor, torch.Tensor],
        scales: Sequence[float],
        head: torch.Tensor,
        shortlist: Shortlist,
    ) -> None:
        """embedding [vocab_size, hidden]; blocks: weight [heads * hidden, 2 * hidden] and bias; head [ids, hidden]."""
        self._embedding, self._head, self._shortlist = embedding, head, shortlist
        self._weight, self._bias = blocks
        self._scales = scales
        self._features = Features(KEPT)

    @property
    def num_heads(self) -> int:
        """Tokens that can be proposed."""
        return len(self._bias) // self._head.shape[1]

    @torch.inference_mode()
    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """As many drafts as there are heads, at most k, for each ask whose newest feature was observed."""
        found = {
            place: feature
            for place, ask in enumerate(asks)
            if (feature := self._features.latest(ask.request_id, ask.tokens, len(ask.tokens) - 2)) is not None
        }
        if not found:
            return [NO_DRAFT] * len(asks)
        most = min(self.num_heads, max(asks[place].k for place in found))
        logits = self._logits(torch.stack(list(found.values())), [asks[place].tokens[-1] for place in found], most)
        best = logits.argmax(-1).tolist()
        drafts = [NO_DRAFT] * len(asks)
        for row, place in enumerate(found):
            choice = Choice(asks[place], self._shortlist)
            for head in range(min(most, asks[place].k)):
                choice.add(logits[row, head], best[row][head])
            drafts[place] = choice.draft()
        return drafts

    def _logits(self, features: torch.Tensor, tokens: Sequence[int], heads: int) -> torch.Tensor:
        """[rows, heads, ids] from features [rows, hidden] and the token that each gave."""
        hidden = features.shape[1]
        ids = torch.tensor(tokens, device=self._embedding.device)
        embedded = self._embedding[ids].to(features)
        x = torch.cat([embedded / self._scales[0], features / self._scales[1]], -1)
        out = linear(x, self._weight[: heads * hidden], self._bias[: heads * hidden])
        states = features[:, None] + self._scales[1] * F.silu(out.view(len(tokens), heads, hidden))
        return linear(states.flatten(0, 1), self._head).view(len(tokens), heads, -1)

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Keep the newest features of each row."""
        self._features.observe(rows, hidden)

    def release(self, request_id: str) -> None:
        """Drop what is held for a request."""
        self._features.release(request_id)

    def weights_bytes(self) -> int:
        """Bytes of the blocks and of the copied rows of the head."""
        return self._weight.nbytes + self._bias.nbytes + self._head.nbytes

    def cache_bytes(self) -> int:
        """Bytes of features that wait to be used."""
        return self._features.num_bytes()


def medusa(artefact: Artefact, embedding: torch.Tensor, head: torch.Tensor) -> Medusa:
    """From trained blocks and the target's embedding and head [vocab_size, hidden]; the embedding is kept as it is."""
    count = sum(name.endswith(".bias") for name in artefact.tensors)
    weight, bias = (
        torch.cat([artefact.plain(f"blocks.{index}.{part}") for index in range(count)]) for part in ("weight", "bias")
    )
    rows = head[artefact.shortlist].float()
    shortlist = Shortlist(artefact.shortlist, len(embedding))
    return Medusa(embedding, (weight, bias), artefact.plain("scales").tolist(), rows, shortlist)
