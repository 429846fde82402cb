"""What a service costs a month, and with each lever pulled: fewer tokens, fewer device-hours, more concurrency.

A scenario's devices come from a throughput: measured, or the upper bound at the roof. A lever changes the scenario, and
everything is computed again, so that what levers save together is never the sum of what each saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ledger.capacity import Deployment
from ledger.errors import InputError
from ledger.formats import element_format, positive
from ledger.hardware import Accelerator
from ledger.kv_cache import length_warnings
from ledger.money import (
    UTILISATION,
    cards_needed,
    cost_per_million_output_tokens,
    cost_per_request,
    monthly_cost,
    request_cost,
    requests_per_device_hour,
)
from ledger.serving import ServingBound, Traffic, above_zero, serving_bound, share
from ledger.weight_formats import AS_STORED, weight_format

__all__ = [
    "LEVERS",
    "Lever",
    "Scenario",
    "cards_needed",
    "cost_of",
    "cost_per_million_output_tokens",
    "cost_per_request",
    "cost_report",
    "lever_value",
    "levers",
    "monthly_cost",
    "request_cost",
    "requests_per_device_hour",
]

SMALL_MODEL_COST = 0.1  # a request to the small model of a router, in requests of the large one (an assumption)


@dataclass(frozen=True)
class Scenario:
    """A service: its traffic, what serves it, and at which price.

    With `deployment` and `device` the throughput is the bound at the roof. `measured_tokens_per_s` (output tokens of
    one device) takes its place; then levers keep the measured share of the bound, which makes them estimates. Without
    a deployment only the measured figure is there, and levers that change a step are refused.
    `answered_share` of the requests never reach the model; `routed_share` go to a small one that costs
    `small_model_cost` of a request of this one.
    """

    traffic: Traffic
    deployment: Deployment | None = None
    device: Accelerator | None = None
    concurrency: int | None = None
    tpot_slo_s: float | None = None
    measured_tokens_per_s: float | None = None
    utilisation: float = UTILISATION
    price_per_device_hour: float = 1.0
    answered_share: float = 0.0
    routed_share: float = 0.0
    small_model_cost: float = SMALL_MODEL_COST

    def __post_init__(self) -> None:
        if (self.deployment is None or self.device is None) and self.measured_tokens_per_s is None:
            raise InputError("throughput", "unknown", "a model on a device, or tokens_per_s_per_device")
        if self.measured_tokens_per_s is not None:
            above_zero("tokens_per_s_per_device", self.measured_tokens_per_s)
        share("small_model_cost", self.small_model_cost)

    @property
    def devices_per_replica(self) -> int:
        """Devices that serve one request together."""
        return 1 if self.deployment is None else self.deployment.tp * self.deployment.pp

    @property
    def served_share(self) -> float:
        """Requests this model works for, those of the small model counted by what they cost."""
        return (1 - self.answered_share) * (1 - self.routed_share * (1 - self.small_model_cost))

    def served_how(self) -> str:
        """The requests this model works for, with the numbers put in; empty when it is all of them."""
        terms = [f"{self.traffic.requests_per_s:g} requests/s"]
        if self.answered_share:
            terms.append(f"(1 - {self.answered_share:g} answered from a cache)")
        if self.routed_share:
            terms.append(f"(1 - {self.routed_share:g} routed x (1 - {self.small_model_cost:g} of the cost))")
        served = self.traffic.requests_per_s * self.served_share
        return f"{' x '.join(terms)} = {served:.4g} requests/s of work; " if len(terms) > 1 else ""

    def bound(self) -> ServingBound | None:
        """The bound at the roof; None without a deployment and a device."""
        if self.deployment is None or self.device is None:
            return None
        return serving_bound(
            self.deployment, self.device, self.traffic, concurrency=self.concurrency, tpot_slo_s=self.tpot_slo_s
        )


@dataclass(frozen=True)
class Lever:
    """One way to pay less: what it changes, in words, and how a scenario looks with it."""

    name: str
    what: str
    accepted: str
    apply: Callable[[Scenario, Any], Scenario]
    changes_step: bool = True  # needs the roofline


def _traffic(**changes: Callable[[Traffic, float], Any]) -> Callable[[Scenario, Any], Scenario]:
    def apply(scenario: Scenario, value: Any) -> Scenario:
        new = {name: change(scenario.traffic, float(value)) for name, change in changes.items()}
        return replace(scenario, traffic=replace(scenario.traffic, **new))

    return apply


def _deployment(name: str) -> Callable[[Scenario, Any], Scenario]:
    def apply(scenario: Scenario, value: Any) -> Scenario:
        if scenario.deployment is None:
            raise InputError(name, value, "a model on a device")
        changes = {name: value} | ({"kv_group_size": None} if name == "kv_dtype" else {})
        return replace(scenario, deployment=replace(scenario.deployment, **changes))

    return apply


LEVERS: dict[str, Lever] = {
    lever.name: lever
    for lever in (
        Lever(
            "prefix_cache", "share of input tokens found in the prefix cache: no prefill, KV still counted",
            "a share from 0 to below 1", _traffic(cached_share=lambda _traffic, value: value),
        ),
        Lever(
            "shorter_prompts", "share of input tokens removed from every prompt", "a share from 0 to below 1",
            _traffic(input_tokens=lambda traffic, value: max(1, round(traffic.input_tokens * (1 - value)))),
        ),
        Lever(
            "shorter_answers", "share of output tokens removed from every answer", "a share from 0 to below 1",
            _traffic(output_tokens=lambda traffic, value: max(1, round(traffic.output_tokens * (1 - value)))),
        ),
        Lever(
            "answer_cache", "share of requests answered from a cache of answers", "a share from 0 to below 1",
            lambda scenario, value: replace(scenario, answered_share=value), changes_step=False,
        ),
        Lever(
            "routing", "share of requests sent to a small model", "a share from 0 to below 1",
            lambda scenario, value: replace(scenario, routed_share=value), changes_step=False,
        ),
        Lever("weights", "format of the weights", "a weight format", _deployment("weights")),
        Lever("kv_dtype", "format of the KV cache", "a KV format", _deployment("kv_dtype")),
        Lever(
            "concurrency", "most requests at once", "a whole number of requests",
            lambda scenario, value: replace(scenario, concurrency=value),
        ),
    )
}  # fmt: skip


def lever_value(name: str, text: object) -> float | int | str:
    """The value of a lever from text or a number, checked. InputError for an unknown lever or a wrong value."""
    if name not in LEVERS:
        raise InputError("lever", name, ", ".join(LEVERS))
    if name == "weights":
        return AS_STORED if text == AS_STORED else weight_format(str(text)).name
    if name == "kv_dtype":
        element_format(str(text))
        return str(text)
    try:
        number = float(str(text))
    except ValueError:
        raise InputError(name, text, LEVERS[name].accepted) from None
    if name == "concurrency":
        if not number.is_integer():  # not of an infinite number or NaN either
            raise InputError(name, text, LEVERS[name].accepted)
        return positive(name, int(number))
    return share(name, number)


def cost_of(scenario: Scenario, efficiency: float | None = None) -> dict[str, Any]:
    """What a scenario costs a month: throughput, devices, money. Devices and costs are None when it cannot be served.

    `efficiency` is measured throughput over the bound, of the scenario that was measured; the rate is then that share
    of this scenario's bound.
    """
    bound, output = scenario.bound(), scenario.traffic.output_tokens
    rate, provenance = _throughput(scenario, bound, efficiency)
    requests_per_s = scenario.traffic.requests_per_s * scenario.served_share
    shown = None if bound is None else bound.to_json(output)
    result: dict[str, Any] = {"tokens_per_s_per_device": rate, "bound": shown, "provenance": provenance}
    if rate is None:
        reason = "" if bound is None else bound.how
        return result | {"devices_exact": None, "cards": None, "cost": None, "month": None, "how": reason}
    month = monthly_cost(
        requests_per_s, scenario.traffic.input_tokens, output, rate, utilisation=scenario.utilisation,
        price_per_device_hour=scenario.price_per_device_hour, devices_per_replica=scenario.devices_per_replica,
    )  # fmt: skip
    month["provenance"] = provenance
    exact = requests_per_s * output / (rate * scenario.utilisation)
    return result | {
        "devices_exact": exact,
        "cards": month["cards"],
        "cost": month["cost"],
        "month": month,
        "how": scenario.served_how() + month["how"],
    }


def levers(scenario: Scenario, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What each lever saves alone and what all save together, against the scenario as it is.

    `saved_pct` is of the devices that the work takes before they are rounded up to whole ones, because a lever that
    saves a third of a device saves it for the next lever; `cost` is that of whole devices. `sum_of_each_pct` and
    `product_of_each_pct` show what adding the single savings, or taking them as independent, would have said.
    """
    values = {name: lever_value(name, value) for name, value in chosen.items()}
    for name in values:
        if LEVERS[name].changes_step and (scenario.deployment is None or scenario.device is None):
            raise InputError(name, values[name], "this lever only with a model on a device")
    base = cost_of(scenario)
    measured, bound = scenario.measured_tokens_per_s, base["bound"]
    roof = None if bound is None else bound["output_tokens_per_s_per_device"]
    efficiency = None if measured is None or roof is None else measured / roof
    # A measured rate without a bound says nothing about another step.
    step_unknown = measured is not None and efficiency is None

    def after(changed: Scenario, names: Iterable[str]) -> dict[str, Any]:
        if step_unknown and any(LEVERS[name].changes_step for name in names):
            return {**base, **dict.fromkeys(("devices_exact", "cards", "cost", "tokens_per_s_per_device"))}
        found = cost_of(changed, efficiency)
        return found if measured is None else found | {"provenance": "estimated"}  # no such service was measured

    rows, everything = [], scenario
    for name, value in values.items():
        found = after(LEVERS[name].apply(scenario, value), [name])
        rows.append({"name": name, "value": value, "what": LEVERS[name].what, **_row(base, found)})
        everything = LEVERS[name].apply(everything, value)
    together = _row(base, after(everything, values)) if rows else None
    singles = [row["saved_pct"] for row in rows if row["saved_pct"] is not None]
    left = 1.0
    for saved in singles:
        left *= 1 - saved / 100
    return {
        "base": base,
        "each": rows,
        "together": together,
        "sum_of_each_pct": sum(singles) if singles else None,
        "product_of_each_pct": 100 * (1 - left) if singles else None,
        "efficiency": efficiency,
        "note": "levers act on the same seconds, so what they save together is not the sum of what each saves alone",
    }


def cost_report(
    scenario: Scenario,
    chosen: Mapping[str, Any] | None = None,
    *,
    price_per_million_input: float = 0.0,
    price_per_million_output: float = 0.0,
    price_is_assumed: bool = True,
) -> dict[str, Any]:
    """A service's cost: tokens, throughput and where it is from, devices, a request, a month, levers."""
    traffic = scenario.traffic
    found = levers(scenario, chosen or {})
    base = found["base"]
    month = base["month"]
    hours = 0.0 if month is None else month["device_hours"] / month["requests"]
    prices = {
        "price_per_million_input": price_per_million_input, "price_per_million_output": price_per_million_output,
        "price_per_device_hour": scenario.price_per_device_hour,
    }  # fmt: skip
    deployment = scenario.deployment
    return {
        "model": None if deployment is None else deployment.spec.name,
        "gpu": None if scenario.device is None else scenario.device.to_json(),
        "requests_per_s": traffic.requests_per_s,
        "input_tokens": traffic.input_tokens,
        "output_tokens": traffic.output_tokens,
        "output_tokens_per_s": traffic.requests_per_s * traffic.output_tokens,
        "tpot_slo_s": scenario.tpot_slo_s,
        "throughput": {
            "tokens_per_s_per_device": base["tokens_per_s_per_device"],
            "bound": base["bound"],
            "efficiency": found["efficiency"],
            "provenance": base["provenance"],
        },
        "cards": base["cards"],
        "devices_per_replica": scenario.devices_per_replica,
        "request": None
        if month is None
        else request_cost(traffic.input_tokens, traffic.output_tokens, device_hours=hours, **prices),
        "month": month,
        "price_label": "assumed" if price_is_assumed else "given",
        "levers": {key: value for key, value in found.items() if key != "base"},
        "how": base["how"],
        "warnings": _warnings(scenario, found["efficiency"]),
        "provenance": base["provenance"],
    }


def _warnings(scenario: Scenario, efficiency: float | None) -> list[str]:
    found = []
    if efficiency is not None and efficiency > 1:
        found.append(
            f"the measured throughput is {efficiency:.2f} times the bound at the roof: check what was measured"
        )
    if scenario.deployment is not None:
        traffic = scenario.traffic
        found += length_warnings(scenario.deployment.spec, traffic.input_tokens + traffic.output_tokens)
    return found


def _throughput(scenario: Scenario, bound: ServingBound | None, efficiency: float | None) -> tuple[float | None, str]:
    """(output tokens/s of one device, where it is from); None when the scenario cannot be served."""
    roof = None
    if bound is not None and bound.requests_per_s is not None:
        roof = bound.requests_per_s * scenario.traffic.output_tokens / bound.devices
    if efficiency is not None:
        return (None if roof is None else roof * efficiency), "estimated"
    if scenario.measured_tokens_per_s is not None:
        return scenario.measured_tokens_per_s, "measured"
    return roof, "computed"


def _row(base: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """A lever's figures against the base; None where either cannot be served."""
    before, now = base["devices_exact"], after["devices_exact"]
    known = before is not None and now is not None
    return {
        "devices_exact": now,
        "cards": after["cards"],
        "cost": after["cost"],
        "tokens_per_s_per_device": after["tokens_per_s_per_device"],
        "bound": after["bound"],
        "saved": base["cost"] - after["cost"] if known else None,
        "saved_pct": 100 * (1 - now / before) if known else None,
        "how": after["how"],
        "provenance": after["provenance"],
    }
