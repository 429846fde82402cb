"""What this machine can do at most, measured between the turns by the driver's own process."""

from __future__ import annotations

from experiments.calibrate import gemm_rate, read_rate

GEMM_SIDE = 2048
BUDGET_S = 2.0
DTYPES = ("bf16", "fp32")


def measure(threads: int, dtypes: tuple[str, ...] = DTYPES) -> dict[str, float]:
    """read_bytes_per_s, and DTYPE_flops_per_s of products of 2,048-cubes; medians over 2 s or three runs each."""
    import torch

    torch.set_num_threads(threads)
    with torch.inference_mode():
        read = read_rate("cpu", BUDGET_S)
        rates = {dtype: gemm_rate("cpu", dtype, GEMM_SIDE, BUDGET_S) for dtype in dtypes}
    found = {f"{dtype}_flops_per_s": rate["median"] for dtype, rate in rates.items()}
    return {"read_bytes_per_s": read["median"], **found}


def worth_repeating(found: dict[str, float]) -> tuple[str, ...]:
    """The dtypes that can be the faster one: an emulated bf16 product takes many seconds and never is."""
    best = max(found[f"{dtype}_flops_per_s"] for dtype in DTYPES)
    return tuple(dtype for dtype in DTYPES if found[f"{dtype}_flops_per_s"] > best / 2)
