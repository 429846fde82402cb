"""The findings of a sweep in sentences, for the command line; the page has its own catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Both knees, the rates that were not kept, goodput and limits, one line each; what was not found says why."""
    knees, limits = result["knees"], result["limits"]
    found = [_latency(knees["latency"]), f"served: {knees['offered']['reason']}", _memory(knees["memory"])]
    if result["goodput"] is not None:
        best = result["goodput"]
        found.append(f"most goodput: {best['goodput_rps']:.4g} requests/s that meet the objectives, at {best['label']}")
    if limits is not None:
        found.append(_limits(limits))
    return found


def _latency(knee: Mapping[str, Any]) -> str:
    if not knee["found"]:
        return f"latency knee: {knee['reason']}"
    low, high = knee["ci95"]
    text = (
        f"latency knee: after {knee['load']:g} [{low:g}, {high:g}], {knee['confidence']:.0%} of resamples of"
        f" {knee['resampled']} agree; {knee['reason']}"
    )
    line = knee["segmented"]
    if line is None:
        return text
    low, high = line["ci95"]
    return f"{text}; two lines meet at {line['load']:.3g} [{low:.3g}, {high:.3g}]"


def _memory(knee: Mapping[str, Any]) -> str:
    predicted = knee["predicted"]
    text = f"memory knee: {knee['reason']}"
    if knee["found"]:
        text += f"; {knee['running']} ran at once with {knee['context_tokens']:.0f} tokens each"
    if predicted is None:
        return text
    return (
        f"{text}; computed: the pool holds {predicted['all_mean']} sequences of mean length, {predicted['all_longest']}"
        f" of the longest ({predicted['formula']})"
    )


def _limits(limits: Mapping[str, Any]) -> str:
    if limits["instance_limit_rps"] is None:
        return f"limit of an instance: {limits['reason']}"
    text = (
        f"limit of an instance: {limits['instance_limit_rps']:.4g} requests/s, one more from"
        f" {limits['scale_out_rps']:.4g} on ({limits['formula']}); {limits['reason']}"
    )
    if limits["instances"] is not None:
        text += f"; {limits['instances']} instances for {limits['demand_rps']:g} requests/s"
    return text
