"""Our engine against transformers, vLLM and llama.cpp: same weights, same prompts, in turn, one at a time.

    python benchmarks/peers.py --prepare                # environments and model files, once
    python benchmarks/peers.py --tune                   # tries each engine's settings and keeps the best
    python benchmarks/peers.py --rounds 5 --out peers.json

Every engine is a process in an environment of its own and is stopped while it is not its turn. In every round each
piece of work goes through all engines (A B C D), so a ratio compares what was measured close together. What cannot be
installed or run here is a row with the reason. Greedy, end tokens ignored, prompts of token ids, no prefix cache.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from peer_engines import ceilings, model_files, results, venvs
from peer_engines.contestants import Contestant, all_ended
from peer_engines.settings import KINDS, chosen, contestant, tuned
from peer_engines.tuning import tune
from peer_engines.turns import Work, play, prompts_of, works

from core_engine.environment import cpu_name, resolve_threads
from core_engine.model.embedded import cache_root, ensure_embedded
from core_engine.model.loader import read_config
from core_engine.model.spec import DecoderSpec
from core_engine.model.tokenizer import Tokenizer
from ledger.errors import CannotRunError
from ledger.model_spec import ModelSpec
from ledger.operators import operators

IDS_COMPARED = 32
PARTS = ("decode", "prefill")


@dataclass
class Run:
    """What a run has found so far."""

    turns: list[dict[str, Any]] = field(default_factory=list)
    starts_s: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # engine, or engine and work: why
    ids: dict[str, dict[str, list[list[int]]]] = field(default_factory=dict)  # of round 0, decode alone


def main() -> None:
    """Prepare, tune or measure, as the arguments say."""
    given = arguments()
    root: Path = given.venvs
    threads = resolve_threads(0)
    raw = read_config(ensure_embedded(say))
    tokenizer = Tokenizer(ensure_embedded(), DecoderSpec.from_config(raw).eos_token_ids)
    missing = prepare(given.engines, root, tuple(shlex.split(given.pip_args)))
    for name, why in missing.items():
        say(f"{name}: {why}")
    able = [name for name in given.engines if name not in missing]
    if given.tune:
        for name in able:
            try:
                tune(name, root, threads, tokenizer, given.tune_rounds, given.longest_s, say)
            except CannotRunError as error:
                say(str(error))
    if given.prepare or given.tune:
        return
    run = Run(missing=missing)
    players = [contestant(name, root, threads, *chosen(name, root)) for name in able]
    with all_ended(players):
        players = start_all(players, given.starts, run)
        rounds(players, works(given.only, given.quick), given.rounds, tokenizer, threads, given.longest_s, run)
        report = summary(players, run, ModelSpec.from_config(raw, "embedded"), root, given)
    print(markdown(report))
    if given.out:
        given.out.write_text(json.dumps(report, indent=1), "utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=2, help="times each engine is started; the last one is kept")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help="decode,prefill")
    parser.add_argument("--quick", action="store_true", help="shorter answers, fewer sizes: to see that it works")
    parser.add_argument("--longest-s", type=float, default=90.0, help="a turn that would take longer is cut short")
    parser.add_argument("--out", type=Path, help="file for everything measured, as JSON")
    parser.add_argument("--venvs", type=Path, default=cache_root() / "peers", help="folder of the peers' environments")
    parser.add_argument("--pip-args", default="", help="more arguments for pip install")
    parser.add_argument("--prepare", action="store_true", help="make environments and model files, measure nothing")
    parser.add_argument("--tune", action="store_true", help="try settings, keep the best, measure nothing else")
    parser.add_argument("--tune-rounds", type=int, default=3)
    given = parser.parse_args()
    for name, allowed in (("engines", list(KINDS)), ("only", list(PARTS))):
        strange = [value for value in getattr(given, name) if value not in allowed]
        if strange:
            parser.error(f"--{name}: {', '.join(strange)} is not accepted; accepted: {', '.join(allowed)}")
    if min(given.rounds, given.starts, given.tune_rounds) < 1:
        parser.error("--rounds, --starts and --tune-rounds: at least 1")
    return given


def prepare(engines: list[str], root: Path, pip_args: tuple[str, ...]) -> dict[str, str]:
    """Make what is not there; {engine: why it can't take part}."""
    reasons: dict[str, str] = {}
    for peer in dict.fromkeys(KINDS[name].peer for name in engines):
        if peer is not None and venvs.why_missing(root, peer) is not None:
            say(f"Installing {peer} into {root / peer} (minutes; log: {root / peer}.log)")
            why = venvs.make(root, peer, pip_args)
            if why is not None:
                reasons[peer] = why
    llama = "llamacpp" not in reasons and venvs.why_missing(root, "llamacpp") is None
    model_files.write_all(root, venvs.python_of(root, "llamacpp") if llama else None, say)
    return {name: reasons[peer] for name in engines if (peer := KINDS[name].peer) in reasons}


def start_all(players: list[Contestant], times: int, run: Run) -> list[Contestant]:
    """Start every engine so many times, in turn; the last process of each stays. Returns those that started."""
    for number in range(times):
        for player in list(players):
            player.end()
            try:
                player.start()
            except CannotRunError as error:
                run.missing[player.name] = str(error)
                players.remove(player)
                player.end()
                continue
            run.starts_s.setdefault(player.name, []).append(player.startup_s)
            say(f"{player.name}: ready after {player.startup_s:.1f} s (start {number + 1})")
    return players


def rounds(
    players: list[Contestant],
    todo: list[Work],
    count: int,
    tokenizer: Tokenizer,
    threads: int,
    longest_s: float,
    run: Run,
) -> None:
    """Turns of all engines at all pieces of work, `count` times, with the machine's ceilings once a round."""

    def refused(player: Contestant, why: str) -> None:
        run.missing[f"{player.name}, {work.name}"] = why
        say(why)

    dtypes = ceilings.DTYPES
    for number in range(count):
        limits = ceilings.measure(threads, dtypes)
        dtypes = ceilings.worth_repeating(limits) if number == 0 else dtypes
        run.turns.append({"engine": "ceilings", "work": "ceilings", "round": number, **limits})
        for work in todo:
            prompts = prompts_of(work, tokenizer, number)
            able = [player for player in players if f"{player.name}, {work.name}" not in run.missing]
            for turn in play(able, work, prompts, longest_s, refused):
                ids = turn.pop("ids")
                if number == 0 and not work.is_prefill:
                    run.ids.setdefault(turn["engine"], {})[work.name] = ids
                run.turns.append({"round": number, **turn})
            say(f"round {number + 1} of {count}: {work.name} done")


def summary(
    players: list[Contestant], run: Run, spec: ModelSpec, root: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Everything as the file has it."""
    startups = {name: median(values) for name, values in run.starts_s.items()}
    settings = tuned(root)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "threads": resolve_threads(0), "system": platform.platform()},
        "rounds": given.rounds,
        "engines": {
            player.name: {
                "about": player.about,
                "options": player.options,
                "environment": chosen(player.name, root)[1],
                "tried": settings.get(player.name, {}).get("tried", []),
                "starts_s": run.starts_s[player.name],
                "startup_s": startups[player.name],
                "peak_bytes": player.peak_bytes(),
            }
            for player in players
        },
        "missing": run.missing,
        "same_ids": results.agreement(run.ids, IDS_COMPARED),
        "goals": results.goals_json(results.goals(run.turns, startups, counts(spec))),
        "against_fp32": results.goals_json(results.stricter(run.turns)),
        "in_few_bits": results.goals_json(results.in_few_bits(run.turns)),
        "turns": run.turns,
    }


def counts(spec: ModelSpec) -> dict[str, float]:
    """What the goals are counted over: bytes that a decode step at batch 1 reads half-way, operations of a prefill."""
    decode = operators(spec, "decode", 1, 128 + 64)
    found = {"decode_bytes": sum(item.weight_bytes + item.kv_bytes for item in decode)}
    for size in (512, 2048):
        found[f"prefill_flops {size}"] = sum(item.flops for item in operators(spec, "prefill", 1, size))
    return found


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    machine, turns = report["machine"], report["turns"]
    parts = [
        f"{machine['cpu']}, {machine['threads']} threads, {report['rounds']} rounds, {report['date']}. Medians; ratios "
        "are medians of the ratios of the same round; p95 is over one turn. A row marked (cut) made only a few tokens.",
    ]
    limits = {
        name: results.middle(turns, "ceilings", "ceilings", name) or 0.0 for name in ("read_bytes_per_s", *results.GEMM)
    }
    parts.append(
        f"Read bandwidth {limits['read_bytes_per_s'] / 1e9:.1f} GB/s; product of 2,048-cubes in torch: bf16 "
        f"{limits['bf16_flops_per_s'] / 1e9:.1f}, fp32 {limits['fp32_flops_per_s'] / 1e9:.1f} GFLOP/s."
    )
    engines = list(report["engines"])
    for work in dict.fromkeys(turn["work"] for turn in turns if turn["work"] != "ceilings"):
        parts.append(results.work_table(turns, engines, work))
    parts.append(_engine_table(report))
    parts.append(results.goals_table([_goal(row) for row in report["goals"]]))
    for further in ("against_fp32", "in_few_bits"):
        if report[further]:
            parts.append(results.goals_table([_goal(row) for row in report[further]]))
    if report["missing"]:
        parts.append(results.markdown(["not measured", "why"], [[k, v] for k, v in report["missing"].items()]))
    return "\n\n".join(parts)


def _engine_table(report: dict[str, Any]) -> str:
    rows = []
    for name, engine in report["engines"].items():
        same = report["same_ids"].get(name)
        rows.append(
            [
                name,
                " / ".join(f"{value:.1f}" for value in engine["starts_s"]),
                f"{engine['peak_bytes'] / 2**20:,.0f}",
                "-" if same is None else f"{same['equal_before_first_difference']:.0%} ({same['equal']:.0%})",
            ]
        )
    header = ["engine", "start-up s, in order", "peak MiB", f"first {IDS_COMPARED} ids as ours until one differs (all)"]
    return results.markdown(header, rows)


def _goal(row: dict[str, Any]) -> results.Goal:
    return results.Goal(row["text"], row["found"], row["needed"], row["at_most"])


def say(text: str) -> None:
    """A line of progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
