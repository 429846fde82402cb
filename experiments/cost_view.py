"""A service as the figures of the Cost page: cards, a month, a request, and what each lever leaves of the work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from experiments.store import Run
from ledger.capacity import Deployment
from ledger.cost import Scenario, cost_report
from ledger.hardware import Accelerator
from ledger.model_spec import ModelSpec
from ledger.money import MONTH_S, SECONDS_PER_HOUR
from ledger.serving import Traffic

SOURCES = ("bound", "typed", "run")
MONTH_H = MONTH_S / SECONDS_PER_HOUR


@dataclass(frozen=True)
class CostSetting:
    """Traffic, what serves it, its price, and the levers to try.

    source: the throughput of a device is the bound of the roofline, typed (measured elsewhere on this card), or that of
    a stored run, which knows neither card nor model, so that only levers that change no step can be tried.
    """

    requests_per_s: float
    input_tokens: int
    output_tokens: int
    weights: str
    kv_dtype: str
    tp: int
    price_per_device_hour: float
    utilisation: float
    source: str = "bound"
    tokens_per_s_per_device: float | None = None
    tpot_slo_s: float | None = None
    concurrency: int | None = None
    levers: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class CostView:
    """The report, and one row for the service as it is, for each lever and for all together.

    A row: name, value, devices (before they are rounded up), cost (a month of these), cards, whole_cost (a month of
    whole cards), change_pct, provenance, how. None where the service cannot be run that way.
    """

    report: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def best(self) -> dict[str, Any] | None:
        """The lever that saves most alone; None when none saves anything."""
        saving = [row for row in self.rows if row["name"] not in ("base", "together") and (row["change_pct"] or 0) < 0]
        return min(saving, key=lambda row: row["change_pct"], default=None)


def cost_view(spec: ModelSpec, card: Accelerator, setting: CostSetting) -> CostView:
    """Everything the page draws. InputError for what cannot be."""
    scenario = scenario_of(spec, card, setting)
    report = cost_report(scenario, dict(setting.levers))
    price = setting.price_per_device_hour
    base = scenario_row(scenario, report)
    rows = [_row("base", "", base, None, price)]
    found = report["levers"]
    rows += [_row(row["name"], row["value"], row, row["saved_pct"], price) for row in found["each"]]
    if len(found["each"]) > 1:
        rows.append(_row("together", "", found["together"], found["together"]["saved_pct"], price))
    return CostView(report, rows)


def scenario_of(spec: ModelSpec, card: Accelerator, setting: CostSetting) -> Scenario:
    """The scenario of ledger.cost; without a deployment where the throughput is that of a stored run."""
    alone = setting.source == "run"
    device = "cpu" if card.memory_source == "system" else "cuda"
    deployment = Deployment(spec, weights=setting.weights, kv_dtype=setting.kv_dtype, tp=setting.tp, device=device)
    return Scenario(
        Traffic(setting.requests_per_s, setting.input_tokens, setting.output_tokens),
        deployment=None if alone else deployment,
        device=None if alone else card,
        concurrency=setting.concurrency,
        tpot_slo_s=setting.tpot_slo_s,
        measured_tokens_per_s=None if setting.source == "bound" else setting.tokens_per_s_per_device,
        utilisation=setting.utilisation,
        price_per_device_hour=setting.price_per_device_hour,
    )


def scenario_row(scenario: Scenario, report: dict[str, Any]) -> dict[str, Any]:
    """The service as it is, in the keys of a lever's row."""
    month, rate = report["month"], report["throughput"]["tokens_per_s_per_device"]
    exact = None if month is None else month["output_tokens_per_s"] / (rate * scenario.utilisation)
    cost = None if month is None else month["cost"]
    return {"devices_exact": exact, "cards": report["cards"], "cost": cost, "how": report["how"],
            "provenance": report["provenance"]}  # fmt: skip


def _row(name: str, value: Any, found: dict[str, Any], saved_pct: float | None, price: float) -> dict[str, Any]:
    exact = found["devices_exact"]
    return {
        "name": name,
        "value": value,
        "devices": exact,
        "cost": None if exact is None else exact * MONTH_H * price,
        "cards": found["cards"],
        "whole_cost": found["cost"],
        "change_pct": None if saved_pct is None else -saved_pct,
        "provenance": found["provenance"],
        "how": found["how"],
    }


def measured_rates(runs: Iterable[Run]) -> dict[str, tuple[Run, str, float]]:
    """ "RUN_ID" or "RUN_ID:ARM" -> (run, the arm's value, output tokens/s): what stored runs measured on one device."""
    found: dict[str, tuple[Run, str, float]] = {}
    for run in runs:
        result = run.result or {}
        if run.kind == "compare":
            for place, arm in enumerate(result.get("arms", ())):
                rate = arm["metrics"].get("output_tokens_per_s")
                if rate:
                    found[f"{run.id}:{place}"] = (run, str(arm["value"]), float(rate))
        elif result.get("output_tokens_per_s"):
            found[run.id] = (run, "", float(result["output_tokens_per_s"]))
    return found
