"""Rule: speculative decoding pays, or the break-even says why it does not.

Its cause is in the arithmetic of ledger/speculation.py: a cycle must yield more tokens than the passes it takes. It
refuses when the speed-up that measured alpha, v and c make is below 1, and names the figure that stands in the way. It
is silent (`unknown`) without measured figures, and where what was measured as a whole contradicts the parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ledger.speculation import Costs, accepted_per_draft, break_even_alpha, break_even_cost, speedup, tokens_per_cycle

PAYS, REFUSES, UNKNOWN = "pays", "refuses", "unknown"
# Why it refuses: a verifying pass takes what all its tokens would, the drafts are wrong too often to pay even for
# nothing, they are dearer than they may be, or the parts say yes and the whole was measured to be slower.
VERIFYING, DRAFTING, ACCEPTANCE, MEASURED = "verifying", "drafting", "acceptance", "measured"
BETTER, WORSE = "better", "worse"


@dataclass(frozen=True)
class Advice:
    """What the rule says. reason: one of the causes above, "" when it pays or is silent.

    predicted: speed-up by the model; needed_alpha: from which it would pay at these costs, None where none would do;
    allowed_c: the draft's cost at which it would break even, below 0 where it would not even for nothing.
    """

    verdict: str
    reason: str
    predicted: float | None = None
    needed_alpha: float | None = None
    allowed_c: float | None = None
    tokens_per_cycle: float | None = None
    accepted_per_draft: float | None = None


def advise(alpha: float | None, k: int, costs: Costs | None, measured: str | None = None) -> Advice:
    """Whether to draft k tokens at this acceptance and these costs. measured: verdict of a timed comparison, if any.

    A measured verdict that is decided outweighs the model, which knows nothing of what acceptance depends on.
    """
    if alpha is None or costs is None:
        return Advice(UNKNOWN, "")
    found = speedup(alpha, k, costs)
    figures = Advice(
        UNKNOWN,
        "",
        predicted=found,
        needed_alpha=break_even_alpha(k, costs),
        allowed_c=break_even_cost(alpha, k, costs.v, parallel=costs.parallel),
        tokens_per_cycle=tokens_per_cycle(alpha, k, costs.drafted_share),
        accepted_per_draft=accepted_per_draft(alpha, k),
    )
    verdict, reason = _verdict(figures, k, costs, measured)
    return replace(figures, verdict=verdict, reason=reason)


def _verdict(figures: Advice, k: int, costs: Costs, measured: str | None) -> tuple[str, str]:
    assert figures.predicted is not None and figures.allowed_c is not None
    if measured == BETTER:
        return PAYS, ""
    if figures.predicted <= 1:
        if costs.v >= k + 1:
            return REFUSES, VERIFYING
        return REFUSES, ACCEPTANCE if figures.allowed_c <= 0 else DRAFTING
    if measured == WORSE:
        return REFUSES, MEASURED
    return (PAYS, "") if measured is None else (UNKNOWN, "")
