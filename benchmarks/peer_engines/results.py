"""Rounds of turns as medians, ratios of the same round, goals and Markdown tables. Knows no engine and no process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

Turns = Sequence[Mapping[str, Any]]  # {"round", "engine", "work", and the figures of turns.figures}

# Figure, what it is called in a table, factor to its unit there, digits, whether more is better.
DECODE = (
    ("ttft_s", "TTFT ms", 1e3, 0, False),
    ("ttft_p95_s", "p95", 1e3, 0, False),
    ("itl_s", "ITL ms", 1e3, 1, False),
    ("itl_p95_s", "p95", 1e3, 1, False),
    ("output_tokens_per_s", "output tok/s", 1, 1, True),
)
PREFILL = (("ttft_s", "TTFT ms", 1e3, 0, False), ("prefill_tokens_per_s", "prefill tok/s", 1, 0, True))


@dataclass(frozen=True)
class Goal:
    """One line of the list: what is asked for, what was found (None: not measured) and what it must reach."""

    text: str
    found: float | None
    needed: float
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """pass, fail or not measured."""
        if self.found is None:
            return "not measured"
        return "pass" if (self.found <= self.needed if self.at_most else self.found >= self.needed) else "fail"


def by_round(turns: Turns, engine: str, work: str, figure: str) -> dict[int, float]:
    """A figure of one engine in every round that has it."""
    return {
        turn["round"]: turn[figure]
        for turn in turns
        if turn["engine"] == engine and turn["work"] == work and figure in turn
    }


def middle(turns: Turns, engine: str, work: str, figure: str) -> float | None:
    """Median over the rounds; None when it was never measured."""
    found = by_round(turns, engine, work, figure)
    return median(found.values()) if found else None


def ratio(
    turns: Turns,
    over: str,
    under: Sequence[str],
    work: str,
    figure: str,
    best: Callable[[Sequence[float]], float] = max,
) -> float | None:
    """Median over the rounds of `over`'s figure / the `best` of those of `under`, each of the same round.

    None when no round has `over` and at least one of `under`.
    """
    ours = by_round(turns, over, work, figure)
    others = [by_round(turns, name, work, figure) for name in under]
    paired = [
        value / best([other[number] for other in others if number in other])
        for number, value in ours.items()
        if any(number in other for other in others)
    ]
    return median(paired) if paired else None


def speed_up(turns: Turns, ours: str, peers: Sequence[str], work: str, figure: str) -> float | None:
    """How many times as fast as the fastest of `peers`: above 1 is faster, for times and for rates alike."""
    if figure.endswith("per_s"):
        return ratio(turns, ours, peers, work, figure)
    found = ratio(turns, ours, peers, work, figure, min)
    return None if found is None else 1 / found


def goals(turns: Turns, startups: Mapping[str, float], counts: Mapping[str, float]) -> list[Goal]:
    """The list, judged in bf16. `counts`: decode_bytes of a token at batch 1, prefill_flops by length.

    The machine's own figures are turns of the engine "ceilings", one a round.
    """

    def against(text: str, peers: Sequence[str], work: str, figure: str, needed: float) -> Goal:
        return Goal(text, speed_up(turns, "ours", peers, work, figure), needed)

    found = [
        against("Batch-1 decode (ITL) against llama.cpp BF16", ["llamacpp"], "decode 1", "itl_s", 1.0),
        against("Batch-1 decode (ITL) against vLLM", ["vllm"], "decode 1", "itl_s", 2.2),
        against("Batch-1 decode (ITL) against transformers", ["transformers"], "decode 1", "itl_s", 4.0),
    ]
    for count, needed in ((8, 1.8), (32, 1.4)):
        text = f"Output tok/s at {count} against the faster of vLLM and llama.cpp BF16"
        found.append(against(text, ["vllm", "llamacpp"], f"decode {count}", "output_tokens_per_s", needed))
    for size in (512, 2048):
        text = f"Prefill of {size:,} against vLLM"
        found.append(against(text, ["vllm"], f"prefill {size}", "prefill_tokens_per_s", 1.0))
    for size in (512, 2048):
        reached = _of_ceiling(turns, f"prefill {size}", "ttft_s", counts[f"prefill_flops {size}"], GEMM)
        found.append(Goal(f"Prefill of {size:,}: share of the faster GEMM rate, linear + attention", reached, 0.70))
    reached = _of_ceiling(turns, "decode 1", "itl_s", counts["decode_bytes"], ("read_bytes_per_s",))
    found.append(Goal("Batch-1 decode: weights + KV read, share of the read bandwidth", reached, 0.75))
    ours, theirs = startups.get("ours"), startups.get("vllm")
    share = ours / theirs if ours is not None and theirs is not None else None
    found.append(Goal("Start-up to ready, share of vLLM's", share, 1 / 3, at_most=True))
    return found


def stricter(turns: Turns) -> list[Goal]:
    """The same comparisons against peers computing in fp32, where that was measured: no goals, but the harder ones."""
    asked = (
        ("Batch-1 decode (ITL) against vLLM in fp32", "vllm-fp32", "decode 1", "itl_s", 2.2),
        ("Batch-1 decode (ITL) against transformers in fp32", "transformers-fp32", "decode 1", "itl_s", 4.0),
        ("Output tok/s at 8 against vLLM in fp32", "vllm-fp32", "decode 8", "output_tokens_per_s", 1.8),
        ("Output tok/s at 32 against vLLM in fp32", "vllm-fp32", "decode 32", "output_tokens_per_s", 1.4),
        ("Prefill of 512 against vLLM in fp32", "vllm-fp32", "prefill 512", "prefill_tokens_per_s", 1.0),
        ("Prefill of 2,048 against vLLM in fp32", "vllm-fp32", "prefill 2048", "prefill_tokens_per_s", 1.0),
    )
    return _measured(turns, (("ours", *row) for row in asked))


def in_few_bits(turns: Turns) -> list[Goal]:
    """Quantized weights against llama.cpp's own formats, where both were measured."""
    asked = [
        (
            ours,
            f"Batch-1 decode (ITL), {ours} against llama.cpp {peer}",
            f"llamacpp-{peer}",
            "decode 1",
            "itl_s",
            needed,
        )
        for ours, peer, needed in (
            ("ours-as-stored", "q4_0", 1.0),
            ("ours-w4a16", "q4_0", 1.0),
            ("ours-w8a16", "q8_0", 1.15),
            ("ours-w8a8", "q8_0", 1.15),
        )
    ]
    asked += [
        (ours, f"Output tok/s at 8, {ours} against llama.cpp {peer}", f"llamacpp-{peer}", "decode 8", RATE, needed)
        for ours, peer, needed in (
            ("ours-as-stored", "q4_0", 2.0),
            ("ours-w4a16", "q4_0", 2.0),
            ("ours-w8a8", "q8_0", 1.8),
        )
    ]
    return _measured(turns, asked)


def _measured(turns: Turns, asked: Iterable[tuple[str, str, str, str, str, float]]) -> list[Goal]:
    """Of (ours, text, peer, work, figure, needed) those of which both sides were measured."""
    rows = [
        Goal(text, speed_up(turns, ours, [peer], work, fig), needed) for ours, text, peer, work, fig, needed in asked
    ]
    return [row for row in rows if row.found is not None]


RATE = "output_tokens_per_s"
GEMM = ("bf16_flops_per_s", "fp32_flops_per_s")


def _of_ceiling(turns: Turns, work: str, figure: str, amount: float, ceilings: Sequence[str]) -> float | None:
    """Median over the rounds of amount / time, as a share of the highest of the ceilings of the same round."""
    limits = [by_round(turns, "ceilings", "ceilings", ceiling) for ceiling in ceilings]
    paired = [
        amount / time_s / max(limit[number] for limit in limits if number in limit)
        for number, time_s in by_round(turns, "ours", work, figure).items()
        if any(number in limit for limit in limits)
    ]
    return median(paired) if paired else None


def agreement(ids: Mapping[str, Mapping[str, Sequence[Sequence[int]]]], first: int) -> dict[str, dict[str, float]]:
    """Of the `first` ids of every answer: the share equal to ours at the same place, and up to the first other one.

    ids: by engine and piece of work, the answers in the order of the prompts; only work that both did is compared.
    """
    found = {}
    for engine in [name for name in ids if name != "ours"]:
        pairs = [
            [a == b for a, b in zip(ours[:first], theirs[:first], strict=False)]
            for work in ids[engine].keys() & ids.get("ours", {}).keys()
            for ours, theirs in zip(ids["ours"][work], ids[engine][work], strict=True)
        ]
        places = sum(len(same) for same in pairs)
        before = sum(same.index(False) if False in same else len(same) for same in pairs)
        if places:
            found[engine] = {
                "answers": len(pairs),
                "ids": places,
                "equal": sum(map(sum, pairs)) / places,
                "equal_before_first_difference": before / places,
            }
    return found


def work_table(turns: Turns, engines: Sequence[str], work: str) -> str:
    """One piece of work as Markdown: an engine a row, medians, and how many times as fast ours is."""
    shown = PREFILL if work.startswith("prefill") else DECODE
    main = shown[-1][0] if shown is PREFILL else "itl_s"
    header = [work, *(label for _, label, *_ in shown), f"ours is faster ({'tok/s' if shown is PREFILL else 'ITL'})"]
    if shown is DECODE:
        header.append("(tok/s)")
    rows = []
    for engine in engines:
        if middle(turns, engine, work, "ttft_s") is None:
            continue
        cut = any(t.get("cut") for t in turns if t["engine"] == engine and t["work"] == work)
        cells = [f"{engine}{' (cut)' if cut else ''}"]
        cells += [_number(middle(turns, engine, work, name), factor, digits) for name, _, factor, digits, _ in shown]
        cells.append(_times(speed_up(turns, "ours", [engine], work, main)))
        if shown is DECODE:
            cells.append(_times(speed_up(turns, "ours", [engine], work, "output_tokens_per_s")))
        rows.append(cells)
    return markdown(header, rows)


def goals_table(found: Sequence[Goal]) -> str:
    """The list as Markdown."""
    rows = [
        [g.text, _number(g.found, 1, 2), f"{'at most' if g.at_most else 'at least'} {g.needed:.2f}", g.verdict]
        for g in found
    ]
    return markdown(["goal", "found", "needed", "verdict"], rows)


def goals_json(found: Sequence[Goal]) -> list[dict[str, Any]]:
    """The list for the file."""
    return [{**asdict(goal), "verdict": goal.verdict} for goal in found]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *rows])


def _number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
