"""What a trained draft is worth: the target's own greedy replies, replayed through the proposer as the engine would.

A greedy reply is known beforehand, so the target need not run again: at each pass the proposer drafts from the text so
far, what equals the reply is accepted, and the pass gives one token more. Prompts are held out from training.
"""

from __future__ import annotations

import time
from typing import Any

from core_engine.plan import GREEDY, Row
from core_engine.speculation.drafting import common_prefix
from core_engine.speculation.proposer import Ask, Proposer
from core_engine.speculation.training.corpus import CorpusSpec, Sequences

HELD_OUT = CorpusSpec(num_prompts=64, sampled_every=0, held_out=True)
MEASURED_AT = 4  # drafts a pass


def replay(proposer: Proposer, text: Sequences, k: int = MEASURED_AT) -> dict[str, Any]:
    """Mean tokens a target pass, alpha by position (accepted / tested) and the mean time of a call, over `text`.

    The pass over the prompt, which no draft can shorten, is not counted. None where nothing was tested.
    """
    tested, accepted = [0] * k, [0] * k
    passes = emitted = 0
    spent_s = 0.0
    for index in range(len(text)):
        span, name = text.span(index), str(index)
        tokens, hidden = text.tokens[span].tolist(), text.hidden[span]
        computed, known = 0, text.prompt_tokens[index] + 1
        while known < len(tokens):
            row = Row(name, computed, tuple(tokens[computed : known - 1]), (), is_prefill=False)
            if proposer.needs_hidden:
                proposer.observe([row], hidden[computed : known - 1])
            ask = Ask(name, 0, tokens[:known], min(k, len(tokens) - known), GREEDY)
            began_s = time.perf_counter()
            (draft,) = proposer.propose([ask])
            spent_s += time.perf_counter() - began_s
            right = common_prefix(draft.tokens, tokens[known:])
            for place in range(min(right + 1, len(draft.tokens))):
                tested[place] += 1
                accepted[place] += place < right
            computed, passes = known - 1, passes + 1
            gained = min(right + 1, len(tokens) - known)
            known, emitted = known + gained, emitted + gained
        proposer.release(name)
    return {
        "prompts": len(text),
        "k": k,
        "target_passes": passes,
        "tokens_per_pass": round(emitted / passes, 4) if passes else None,
        "alpha_by_position": [round(a / n, 4) if n else None for a, n in zip(accepted, tested, strict=True)],
        "draft_ms_per_pass": round(1000 * spent_s / passes, 3) if passes else None,
    }
