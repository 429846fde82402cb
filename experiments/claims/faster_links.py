"""C24's simulated half: what tensor and pipeline parallelism bring over faster and slower links."""

from __future__ import annotations

from typing import Any

from ledger.device_profile import device_profile, named_link
from ledger.model_spec import load_model_spec
from ledger.step_time import Split, StepTimes

MODEL, CARD = "llama-3.1-70b", "h100-sxm"
RANKS = (1, 2, 4, 8)
LINKS = ("nvlink4", "pcie5", "ethernet-100")
BATCH, CONTEXT, PROMPT = 16, 2048, 2048


def simulated_links() -> list[dict[str, Any]]:
    """A decode step and a prompt on 1 to 8 ranks (tp) and stages (pp) over three links, and the share of all-reduces.

    One device is counted as if the model fitted there. Rows for a claim's evidence, labelled simulated.
    """
    return [_row(link, split) for link in LINKS for ranks in RANKS for split in _splits(ranks)]


def _splits(ranks: int) -> list[Split]:
    return [Split()] if ranks == 1 else [Split(tp=ranks), Split(pp=ranks)]


def _row(link: str, split: Split) -> dict[str, Any]:
    profile = device_profile(CARD)
    times = StepTimes(load_model_spec(MODEL), profile, weights="fp8", split=split, link=named_link(link))
    decode = times.shape([(CONTEXT, 1, 1, False)] * BATCH)
    prompt = times.shape([(0, PROMPT, 1, True)])
    decode_s = times.step_s(decode)
    return {
        "part": "simulated step",
        "model": MODEL,
        "gpu": CARD,
        "link": named_link(link).label,
        "tp": split.tp,
        "pp": split.pp,
        "decode_step_s": decode_s,
        "prompt_s": times.step_s(prompt),
        "all_reduce_share": times.reduce_s(BATCH) / decode_s,
        "error_band_pct": profile.error_band_pct,
        "provenance": "simulated",
    }
