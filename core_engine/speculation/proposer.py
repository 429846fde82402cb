"""Who proposes tokens: the interface between the engine and every form of draft.

A proposer is asked for the whole batch at once, between two steps. It owns its weights and its cache and follows the
sequences by itself: it compares what its cache holds with the tokens it is shown and drops what differs, whether drafts
were rejected, cut by a stop, or the request was preempted. So nobody has to tell it what was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from core_engine.plan import Row, RowSampling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Ask:
    """A request that may be given drafts. tokens: prompt and output so far, of which all but the newest are computed.

    k: most drafts wanted, at least 1. sampling: how the target chooses the token after `tokens`; for the one after i
    drafts it is `sampling.after(drafts[:i])`, at position len(tokens) + i. slot: the request's own number below
    max_num_seqs for as long as it is not released.
    """

    request_id: str
    slot: int
    tokens: Sequence[int]
    k: int
    sampling: RowSampling


@dataclass(frozen=True)
class Draft:
    """At most k proposed ids, in order; none is an answer too.

    probs, float [len(tokens), vocab_size] on the CPU, rows summing to 1: what each token was really drawn from. None:
    not drawn at all (an argmax, a look-up), which is a distribution with all its weight on that token.
    """

    tokens: tuple[int, ...] = ()
    probs: torch.Tensor | None = None


NO_DRAFT = Draft()


class Proposer(Protocol):
    """A form of draft. Draws take their numbers from core_engine.sampling.uniform with purpose "draft"."""

    needs_hidden: bool  # whether `observe` has to be called

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft for each ask, in order. Greedy asks get argmax drafts without probs."""
        ...

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """The target's hidden states of a step that has been computed, before its tokens are known.

        rows lie one after another in hidden [tokens of the step, hidden_size], after the final norm, on the target's
        device and in its dtype or float32; it is not kept after the call. Drafts are among a row's tokens, prompts come
        in pieces, and what was found in the prefix cache never comes.
        """
        ...

    def release(self, request_id: str) -> None:
        """The request has ended or lost its slot; it may come back. Unknown ids are left alone."""
        ...

    def weights_bytes(self) -> int:
        """Bytes of the proposer's own weights really held; what it shares with the target is the target's."""
        ...

    def cache_bytes(self) -> int:
        """Bytes that its cache holds now for all requests."""
        ...
