"""verify: how many drafts the target accepts, and the token that follows them. One rule for every proposer.

Rejection sampling (Leviathan et al. 2023, Chen et al. 2023): a draft x that was drawn from q is accepted with
probability min(1, p(x) / q(x)), p being what the target would draw from there; after the first rejection a token is
drawn from what is left of p, max(0, p - q). What comes out is distributed as p, whatever q is, as long as it is what
the draft was really drawn from.

A draft that was not drawn (an argmax, a look-up) has all of q on x: it is accepted with probability p(x), else a token
other than x is drawn, in proportion to p. That is what happens when a token is drawn from p as without drafts and
compared with x. So it is done that way: answers with such drafts are, token for token, those without, greedy or seeded,
and p is never needed whole. Greedy is the same with p on the likeliest token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from core_engine.plan import RowSampling
from core_engine.random_stream import uniform
from core_engine.sampling import draw

if TYPE_CHECKING:
    import torch


def verify(
    drafts: Sequence[int],
    draft_probs: torch.Tensor | None,
    chosen: Callable[[int], int],
    probs: Callable[[int], torch.Tensor],
    sampling: RowSampling,
    position: int,
) -> tuple[int, int]:
    """(accepted drafts, the token after them). position: where the first draft stands in its sequence.

    chosen(i) is the token that the target draws after i drafts, with its own number of purpose "sample"; probs(i),
    float64 [vocab_size], what it draws from: neither is asked for places behind a rejection. draft_probs [drafts,
    vocab_size] is what the drafts were drawn from; None: they were not drawn.
    """
    for place, draft in enumerate(drafts):
        if draft_probs is None:
            token = chosen(place)
            if token != draft:
                return place, token
            continue
        target, proposed = probs(place), draft_probs[place].double()
        proposed = proposed / proposed.sum()
        number = uniform(sampling.seed, position + place, sample_index=sampling.sample_index, purpose="accept")
        if not number * proposed[draft] < target[draft]:
            number = uniform(sampling.seed, position + place, sample_index=sampling.sample_index, purpose="residual")
            return place, draw(residual(target, proposed), number)
    return len(drafts), chosen(len(drafts))


def residual(target: torch.Tensor, proposed: torch.Tensor) -> torch.Tensor:
    """What is left of the target's distribution where the proposal's has been taken off; [vocab_size], any total.

    Where the two are equal but for rounding nothing is left; then it is the target's own.
    """
    left = (target - proposed).clamp(min=0)
    return left if bool(left.sum() > 0) else target
