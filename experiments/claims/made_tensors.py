"""AWQ and GPTQ on tensors made for what each of them claims, against rounding to nearest at the same bits.

AWQ's claim is about inputs of which few are much larger than the rest (arXiv 2306.00978), GPTQ's about inputs that go
together (arXiv 2210.17323). Errors are of the products on inputs that were not calibrated on, in float64.
"""

from __future__ import annotations

from typing import Any

OUT, DEPTH, TOKENS, GROUP = 96, 256, 2048, 64
LARGE, TIMES = (3, 40, 77, 120, 200), 30  # inputs that are so many times the others
CAUSES, OWN = DEPTH // 4, 0.1  # inputs mix so many causes, and a little of their own


def made_rows(seed: int = 0) -> list[dict[str, Any]]:
    """A row each: the squared error of the algorithm's products by that of rounding, below 1 where it gains."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=draw)

    weight, large, mix = random(OUT, DEPTH), random(2 * TOKENS, DEPTH), random(CAUSES, DEPTH)
    large[:, list(LARGE)] *= TIMES
    together = random(2 * TOKENS, CAUSES) @ mix + OWN * random(2 * TOKENS, DEPTH)
    return [
        _row("w4a16-awq", f"{len(LARGE)} of {DEPTH} inputs {TIMES} times the others", weight, large, _awq),
        _row("w4a16-gptq", f"{DEPTH} inputs that mix {CAUSES} causes", weight, together, _gptq),
    ]


def _row(name: str, inputs: str, weight: Any, x: Any, quantize: Any) -> dict[str, Any]:
    from core_engine.quant.rtn import round_to_nearest

    seen, unseen = x[:TOKENS], x[TOKENS:]
    rounded = round_to_nearest(weight, 4, GROUP, True).dequantized()
    errors = [_error(weight, found, unseen) for found in (rounded, quantize(weight, seen))]
    return {
        "part": f"{name} on made tensors: {inputs}", "weights": name, "bits": 4, "group": GROUP,
        "rounding_error": errors[0], "error": errors[1], "ratio": errors[1] / errors[0], "provenance": "measured",
    }  # fmt: skip


def _awq(weight: Any, x: Any) -> Any:
    from core_engine.quant.awq import Levels, clipped, input_scales
    from core_engine.quant.calibrate import InputSums

    levels, sums = Levels(4, GROUP, True), InputSums.of(x)
    scales, _ = input_scales(weight, sums.hessian, sums.mean_abs, levels)
    return clipped(weight * scales, sums.divided(scales).hessian, levels).dequantized() / scales


def _gptq(weight: Any, x: Any) -> Any:
    from core_engine.quant.calibrate import InputSums
    from core_engine.quant.gptq import gptq

    return gptq(weight, InputSums.of(x).hessian, 4, GROUP, True).dequantized()


def _error(weight: Any, found: Any, x: Any) -> float:
    return float((x.double() @ (found - weight).double().t()).square().mean())
