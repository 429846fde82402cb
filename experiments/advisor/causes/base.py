"""The shape of a cause, and what several of them share: thresholds, what follows from several numbers, words.

A cause is a small class without state. Its `match` reads evidence and nothing else, and answers one of three ways: a
Finding; None, when the evidence says that this is not it; Missing, when the evidence does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from experiments.advisor.evidence import NUMBERS, SECONDS, SHARE, Evidence
from experiments.advisor.finding import Bound, Finding, Line, Missing

# A part of a latency is "most of it" from here.
MOST = 0.5
# Of an objective's limit, from here a latency is near it.
NEAR = 0.8
# The device is busy from here, and has room up to here; between the two nobody can say.
BUSY, ROOM = 0.7, 0.5
# KV memory is under pressure from here (mean of what is in use), full from here (the most at one moment).
PRESSED, FULL = 0.85, 0.95
# Seats count as all taken from here: some are between two requests.
TAKEN = 0.9
# Preemptions a request, from here they are no accident.
OFTEN = 0.02
# Of an objective's limit, below this a typical value keeps it with room to spare.
WELL_BELOW = 0.7
# A limit without an objective behind it weighs so much: it binds, but nobody said that it hurts.
UNSTATED = 0.6

Answer = Finding | Missing | None


class Cause(Protocol):
    """One cause. name and means are those of docs/advisor.md.

    explains: causes that follow from this one when both are found. latencies: whose objectives say whether it hurts.
    """

    @property
    def name(self) -> str: ...
    @property
    def means(self) -> str: ...
    @property
    def explains(self) -> tuple[str, ...]: ...
    @property
    def latencies(self) -> tuple[str, ...]: ...

    def match(self, evidence: Evidence) -> Answer:
        """What the evidence says of this cause."""
        ...


def hurts(evidence: Evidence, latencies: Iterable[str]) -> float:
    """How much a limit on these latencies matters: 1 where an objective on them is missed, 0 where all are met, and
    UNSTATED where there is none that can be judged."""
    missed = evidence.missed(*latencies)
    return UNSTATED if missed is None else float(missed)


def has_room(evidence: Evidence) -> bool | None:
    """Whether the device has room for more work in a step; None where no figure tells.

    A device that is busy all the time may still have room in every step: what its steps reach of its ceilings tells
    more than how long they are under way, where both are known.
    """
    reached = [share for share in (evidence.bandwidth_share, evidence.flops_share) if share is not None]
    if len(reached) == 2:
        return False if max(reached) >= BUSY else (True if max(reached) <= ROOM else None)
    if evidence.device_utilisation is not None:
        return False if evidence.device_utilisation >= BUSY else (evidence.device_utilisation <= ROOM or None)
    if reached and max(reached) >= BUSY:
        return False
    return True if evidence.busy_share is not None and evidence.busy_share <= ROOM else None


def kv_is_tight(evidence: Evidence) -> bool | None:
    """Whether KV memory keeps requests out or throws them out; None where nothing is known of it."""
    if evidence.preemptions or evidence.admission_waits:
        return True
    full = evidence.kv_peak_share is not None and evidence.kv_peak_share >= FULL
    pressed = evidence.kv_used_share is not None and evidence.kv_used_share >= PRESSED
    if full or pressed:
        return True
    known = (evidence.kv_used_share, evidence.kv_peak_share, evidence.preemptions)
    return None if all(value is None for value in known) else False


def memory_keeps_out(evidence: Evidence) -> bool:
    """Whether requests wait, or are thrown out, for want of KV memory rather than of a seat."""
    often = evidence.preemptions_per_request
    if evidence.admission_waits or (bool(evidence.preemptions) if often is None else often >= OFTEN):
        return True
    taken = evidence.seats_taken
    return bool(kv_is_tight(evidence)) and (taken is None or taken < TAKEN)


def misses_in_the_tail_alone(evidence: Evidence) -> bool:
    """Whether a typical gap between tokens keeps the missed objectives, so that something now and then makes them."""
    typical = evidence.itl_without_prefill_s
    if typical is None:
        typical = evidence.itl_p50_s if evidence.itl_p50_s is not None else evidence.tpot_p50_s
    limits = [one.limit for one in evidence.missed_objectives("itl", "tpot")]
    return typical is not None and bool(limits) and typical < WELL_BELOW * min(limits)


def line(text: str, figure: str = "") -> Line:
    """A line of evidence."""
    return Line(text, figure)


def told(evidence: Evidence, figure: str, words: str) -> Line | None:
    """`words` with a number of the evidence in the place of {}, in its unit; None where it is not known."""
    value = getattr(evidence, figure)
    if value is None:
        return None
    in_words = {SECONDS: seconds, SHARE: percent}.get(NUMBERS[figure]["unit"], number)
    return Line(words.format(in_words(float(value))), figure)


def some(evidence: Evidence, figure: str, words: str) -> Line | None:
    """As `told`, and None for 0 as well."""
    return told(evidence, figure, words) if getattr(evidence, figure) else None


def lines(*found: Line | None) -> tuple[Line, ...]:
    """The lines that there are."""
    return tuple(one for one in found if one is not None)


def missed_lines(evidence: Evidence, latencies: Iterable[str]) -> tuple[Line, ...]:
    """A line for each objective on these latencies that is missed."""
    return tuple(
        Line(f"{one.name} is {seconds(evidence.value_of(one))}, its objective {seconds(one.limit)}", f"{one.name}_s")
        for one in evidence.missed_objectives(*latencies)
    )


def near_lines(evidence: Evidence, latencies: Sequence[str], then: str) -> tuple[Line, ...]:
    """A line for each objective on these latencies that is nearly missed, with what a change does to it."""
    found = []
    for one in evidence.objectives:
        value = evidence.value_of(one)
        if (
            one.latency is not None
            and one.latency in latencies
            and value is not None
            and NEAR * one.limit <= value <= one.limit
        ):
            text = f"{one.name} is {seconds(value)}, near its objective of {seconds(one.limit)}: {then}"
            found.append(Line(text, f"{one.name}_s"))
    return tuple(found)


def seconds(value: float | None) -> str:
    """A time in words: 340 ms, 2.5 s."""
    if value is None:
        return "unknown"
    return f"{1000 * value:,.3g} ms" if value < 1 else f"{value:,.3g} s"


def percent(share: float) -> str:
    """A share in words: 34 %."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.2g} %"


def number(value: float) -> str:
    """A count in words."""
    return f"{value:,.4g}"


ONE_AT_A_TIME = Bound("C30", "Change this one alone and judge all five curves: changes made together can cancel.")
ROI_ORDER = Bound(
    "C43", "Settings come before code and code before architecture; measured gain over effort may order them otherwise."
)
