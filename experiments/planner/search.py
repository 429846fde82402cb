"""The search: arithmetic for all, short simulations for the most promising, longer ones for those that are left.

Successive halving with fixed horizons, so that the same question has the same answer on any machine. Half of the places
of a round go to the cheapest, the other half to the front of tokens/s/user against tokens/s/card as far as it is known,
then to the next cheapest: a plan that is fast for its users is not dropped because another is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from experiments.planner.candidates import Candidate
from experiments.planner.evaluate import Evaluator, Tried
from experiments.planner.ledger_stage import Estimate, LedgerStage
from experiments.planner.pareto import front
from experiments.planner.spec import CARDS_IN_A_NODE, PlanSpec
from experiments.planner.traffic import PlanTraffic

OnProgress = Callable[[float, str], None]
MOST_APART = 3  # groups of prefill and decode replicas that are tried
MOST_SIDE = 4  # replicas on one side of such a group


@dataclass(frozen=True)
class Round:
    """places: candidates; requests that count at each rate; how near the highest rate is found, in how many steps."""

    places: int
    requests: int
    precision: float
    most_probes: int


ROUNDS = (Round(15, 60, 0.4, 4), Round(7, 150, 0.15, 4), Round(5, 300, 0.06, 5))


def search(
    spec: PlanSpec, stage: LedgerStage, traffic: PlanTraffic, evaluator: Evaluator, on_progress: OnProgress,
    rounds: Sequence[Round] = ROUNDS,
) -> list[Tried]:  # fmt: skip
    """Every candidate that was simulated to the last round, and as `requests` says how far each of the others came;
    those that miss an objective at every rate are counted in `stage.pruned`."""
    on_progress(0.0, "the ledger")
    estimates = stage.estimates()
    left = [Tried(one, one.candidate) for one in _promising(estimates, rounds[0].places, stage)]
    if spec.disaggregation:
        left += [Tried(one, group) for one, group in _groups(estimates, stage, spec)]
    weights = [one.places * one.requests * one.most_probes for one in rounds]
    over: list[Tried] = []
    for number, one in enumerate(rounds):
        if number:
            kept = _best(left, one.places, spec, traffic)
            over += [tried for tried in left if tried not in kept]
            left = kept
        met: list[Tried] = []
        for place, tried in enumerate(left):
            done = (sum(weights[:number]) + weights[number] * place / len(left)) / sum(weights)
            on_progress(done, f"round {number + 1} of {len(rounds)}: {label(tried.candidate)}")
            evaluator.search(tried, one.requests, one.precision, one.most_probes)
            if tried.limit is None:
                missed = ", ".join(sorted({name for at in tried.at.values() for name in at.missed}))
                stage.pruned.add("objective", tried.candidate, f"misses {missed} at {min(tried.at):.3g} requests/s")
            else:
                met.append(tried)
        left = met
    for tried in over:
        stage.pruned.add("halved", tried.candidate)
    return [*left, *over]


def replicas_for(rate_rps: float, limit_rps: float, headroom: float) -> int:
    """Replicas (or groups) for a rate, when each may take its limit less the headroom."""
    return max(1, ceil(rate_rps / (limit_rps * (1 - headroom)) - 1e-9))


def label(candidate: Candidate) -> str:
    """A candidate in a few words."""
    split = f"TP {candidate.tp}" + (f" x PP {candidate.pp}" if candidate.pp > 1 else "")
    apart = f", {candidate.prefill_replicas} prefill + {candidate.decode_replicas} decode" if candidate.is_apart else ""
    limits = f"{candidate.max_num_seqs} x {candidate.max_num_batched_tokens}"
    return f"{candidate.gpu}, {split}, {candidate.weights}, KV {candidate.kv_dtype}, {limits}{apart}"


def cost_per_hour(tried: Tried, spec: PlanSpec) -> float:
    """Of all replicas at the limit that was found."""
    assert tried.limit is not None
    count = replicas_for(spec.rate_rps, tried.limit, spec.headroom)
    return count * tried.candidate.devices * spec.price(tried.candidate.gpu)


def speeds(tried: Tried, traffic: PlanTraffic) -> tuple[float, float]:
    """(tokens/s of a user, tokens/s of a card) at the limit."""
    at = tried.at_limit
    assert at is not None
    tpot_s = at.metrics["tpot_s"]["mean"] or at.metrics["ttft_s"]["mean"]
    return 1 / tpot_s, at.rate * traffic.mean_output / tried.candidate.devices


def _promising(estimates: Sequence[Estimate], places: int, stage: LedgerStage) -> list[Estimate]:
    """The cheapest of every card, the cheapest in whole replicas, and those on the front, all by the estimate; the
    others are counted. Of one shape at most two, so that batching limits don't fill the places."""
    exact = sorted(estimates, key=lambda one: (one.exact_cost, one.cost_per_hour))
    cards = list(dict.fromkeys(one.candidate.gpu for one in exact))
    each = max(1, places // 2 // max(1, len(cards)))
    best = [one for card in cards for one in [own for own in exact if own.candidate.gpu == card][: 2 * each]]
    points = [(one.tokens_per_s_per_user, one.tokens_per_s_per_card) for one in estimates]
    order = [*best, *estimates[: places // 4], *(estimates[at] for at in front(points)), *exact]
    chosen: list[Estimate] = []
    per_card: dict[str, int] = {}
    for place, one in enumerate(order):
        like = sum(1 for other in chosen if other.candidate.shape == one.candidate.shape)
        is_enough = place < len(best) and per_card.get(one.candidate.gpu, 0) >= each
        if one not in chosen and len(chosen) < places and like < 2 and not is_enough:
            chosen.append(one)
            per_card[one.candidate.gpu] = per_card.get(one.candidate.gpu, 0) + 1
    for one in estimates:
        if one not in chosen:
            stage.pruned.add("estimate", one.candidate)
    return chosen


def _best(left: list[Tried], places: int, spec: PlanSpec, traffic: PlanTraffic) -> list[Tried]:
    """The cheapest of every card, then half of the places to the cheapest of all, the others to the front."""
    cheap = sorted(left, key=lambda one: (cost_per_hour(one, spec), -speeds(one, traffic)[1]))
    of_cards = {one.candidate.gpu: one for one in reversed(cheap)}
    on_front = [left[at] for at in front([speeds(one, traffic) for one in left])]
    order = [*of_cards.values(), *cheap[: -(-places // 2)], *on_front, *cheap]
    kept: list[Tried] = []
    for one in order:
        if one not in kept and len(kept) < places:
            kept.append(one)
    return kept


def _groups(estimates: Sequence[Estimate], stage: LedgerStage, spec: PlanSpec) -> list[tuple[Estimate, Candidate]]:
    """Prefill and decode replicas in about the ratio of their work, of the cheapest shapes whose cards have a link."""
    found: list[tuple[Estimate, Candidate]] = []
    shapes: set[Candidate] = set()
    for one in sorted(estimates, key=lambda each: each.exact_cost):
        cards = one.candidate.tp * one.candidate.pp
        if one.candidate.shape in shapes or stage.times(one.candidate).link is None or 2 * cards > CARDS_IN_A_NODE:
            continue
        shapes.add(one.candidate.shape)
        ratio = one.prefill_s / (one.output_tokens * one.decode_step_s / one.batch)
        prefill, decode = ratio_of(ratio, CARDS_IN_A_NODE // cards)
        group = replace(one.candidate, prefill_replicas=prefill, decode_replicas=decode)
        if spec.max_devices is None or group.devices <= spec.max_devices:
            found.append((one, group))
            stage.total += 1
        if len(found) == MOST_APART:
            break
    return found


def ratio_of(work: float, most: int) -> tuple[int, int]:
    """(prefill, decode) replicas, at most `most` in all and MOST_SIDE a side, whose ratio is nearest to that of their
    work; the fewest of equals."""
    sides = range(1, MOST_SIDE + 1)
    able = [(prefill, decode) for prefill in sides for decode in sides if prefill + decode <= most]
    return min(able, key=lambda pair: (round(abs(pair[0] / pair[1] / work - 1) if work else pair[0], 6), sum(pair)))
