"""Host work of a step: what of it is not the model, by the engine's own timers."""

from __future__ import annotations

from experiments.metrics.events import NS_PER_S, Record, summary


def host_work(record: Record) -> dict[str, dict[str, float | int | None]]:
    """{"host_s","share"}, each a summary over the steps whose model time is known.

    host_s = plan start to commit end - time in the decoder, in s: scheduling, sampling, block tables, text, event log.
    share = host_s / the whole step, 0..1. The arrays that the decoder's call is given count as its own.
    """
    steps = [step for step in record["steps"] if step.get("model_s") is not None]
    whole_s = [(step["commit_end_ns"] - step["plan_start_ns"]) / NS_PER_S for step in steps]
    host_s = [length - step["model_s"] for length, step in zip(whole_s, steps, strict=True)]
    shares = [host / length for host, length in zip(host_s, whole_s, strict=True) if length]
    return {"host_s": summary(host_s), "share": summary(shares)}
