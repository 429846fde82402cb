"""From a sweep's limits to what somebody runs a service by: water lines, instances, a month's cost, where to save.

Pure functions over the result of a stored sweep and of stored experiments with levers. Of an instance:

- scale_out: the load from which one more is added (experiments.sweep.limits: limit x (1 - headroom) x scale_out_at);
- alarm: limit x (1 - headroom), from which the headroom is used up and somebody is told;
- refuse: the limit itself, the highest load that met the objectives (or the last before the first knee). Above it every
  request is late, so it is better to refuse some: rate_limit_rps at this value does it.

For a demand, instances = demand / scale_out, rounded up, so that each stays below its own scale-out line; the lines of
the fleet are those of an instance times their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experiments.store import Run
from ledger.errors import InputError
from ledger.money import MONTH_S, SECONDS_PER_HOUR

MONTH_H = MONTH_S / SECONDS_PER_HOUR
MOST_SAVINGS = 3
DIGITS = 9  # of a quotient: 1.1 / 0.1 is a hair above 11, and no reason for a twelfth instance
BETTER, WORSE, INCONCLUSIVE = "better", "worse", "inconclusive"
NO_LEVERS = "no lever was measured yet: trilemma levers --workload {workload} measures what each saves"


def advise_capacity(
    result: Mapping[str, Any],
    lever_runs: Iterable[Run] = (),
    *,
    demand_rps: float | None = None,
    price_per_device_hour: float | None = None,
    otherwise: Callable[[Mapping[str, Any]], list[dict[str, Any]]] = lambda _: [],
) -> dict[str, Any]:
    """{"instance": lines,"fleet": {"demand_rps","instances","devices","load_share","one_may_fail", lines} or null,
    "month": {"cost","cost_per_million_requests","device_hours","price_per_device_hour","price_provenance","formula"} or
    null,"savings": [{"lever","saved_pct","saved_ci95","saved_per_month","quality","same_workload","run_id",
    "provenance"}],"savings_reason","basis","reason","provenance"}; lines: {"scale_out_rps","alarm_rps","refuse_rps"}.

    otherwise: gives savings of the sweep's result where no stored experiment has any (experiments.capacity_ledger).
    result: a sweep's. demand and price: instead of those of the sweep. Lines are None, with the reason, where the sweep
    found no limit; fleet and month without a demand. InputError for a demand or price that is none, or a sweep of a
    variable, which has one load and no limit.
    """
    limits = result.get("limits")
    if limits is None:
        accepted = "a sweep over concurrency, rate or auto: one of a variable has one load and no limit"
        raise InputError("run", result.get("run_id"), accepted)
    demand = _positive("demand", limits["demand_rps"] if demand_rps is None else demand_rps)
    asked = result["price_per_device_hour"] if price_per_device_hour is None else price_per_device_hour
    price = _positive("price_per_device_hour", asked) or 0.0
    line = {
        "scale_out_rps": limits["scale_out_rps"],
        "alarm_rps": limits["instance_limit_rps"],
        "refuse_rps": limits["highest_rps"],
    }
    devices = _devices(result)
    fleet = _fleet(line, demand, devices)
    month = None if fleet is None else _month(fleet, price)
    savings = largest_savings(result, lever_runs) or _largest(otherwise(result))
    monthly = None if month is None else month["cost"]
    for one in savings:
        one["saved_per_month"] = None if monthly is None else monthly * one["saved_pct"] / 100
    return {
        "instance": {**line, "devices": devices},
        "fleet": fleet,
        "month": month,
        "savings": savings,
        "savings_reason": None if savings else NO_LEVERS.format(workload=_workload(result)),
        "basis": limits["basis"],
        "reason": limits["reason"],
        "provenance": "computed",
    }


def _positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise InputError(name, value, "a number above 0")
    return number


def _devices(result: Mapping[str, Any]) -> int:
    """Devices of an instance: its ranks."""
    settings = result.get("settings") or {}
    return int(settings.get("tensor_parallel", 1)) * int(settings.get("pipeline_parallel", 1))


def _fleet(line: Mapping[str, float | None], demand: float | None, devices: int) -> dict[str, Any] | None:
    scale_out, alarm, refuse = (line[name] for name in ("scale_out_rps", "alarm_rps", "refuse_rps"))
    if demand is None or not scale_out or alarm is None or refuse is None:
        return None
    count = max(1, math.ceil(round(demand / scale_out, DIGITS)))
    return {
        "demand_rps": demand,
        "instances": count,
        "devices": count * devices,
        "load_share": demand / (count * refuse),
        "one_may_fail": demand <= (count - 1) * refuse,
        **{name: count * each for name, each in zip(line, (scale_out, alarm, refuse), strict=True)},
        "formula": f"ceil({demand:g} / {scale_out:.4g}) = {count}",
    }


def _month(fleet: Mapping[str, Any], price: float) -> dict[str, Any]:
    hours = fleet["devices"] * MONTH_H
    cost = hours * price
    requests = fleet["demand_rps"] * MONTH_S
    return {
        "cost": cost,
        "cost_per_million_requests": 1e6 * cost / requests,
        "device_hours": hours,
        "price_per_device_hour": price,
        "price_provenance": "assumed",
        "formula": f"{fleet['devices']} x {MONTH_H:g} h x {price:g} = {cost:.6g}",
    }


def largest_savings(result: Mapping[str, Any], runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The levers that saved most, at most three, from stored experiments, newest first, each lever once.

    Those on the sweep's own workload come before others, and measured ones before simulated ones. A lever counts when
    its saving was decided and no loss of quality was, and when the sweep had not pulled it already; the newest decision
    stands, whichever way it went. What is simulated for a card that is not here says nothing of these instances. What a
    lever saves a month is in proportion: whole instances are only given back when it is enough.
    """
    workload, settings = _workload(result), result.get("settings") or {}
    found: dict[str, dict[str, Any]] = {}
    decided: set[tuple[str, str]] = set()
    told = sorted(
        (run for run in runs if run.kind == "levers" and run.result is not None and _counts(run.result)),
        key=lambda run: (_name(run.result) != workload, run.result is None or run.result["provenance"] != "measured"),
    )
    for run in told:
        for row in (run.result or {})["levers"]:
            change = (row["name"], str(row["to"]))
            if change in decided or row["verdict"] == INCONCLUSIVE:
                continue
            decided.add(change)
            is_open = settings.get(row["variable"], row["from"]) == row["from"]
            if row["name"] not in found and is_open and _pays(row):
                found[row["name"]] = _saving(row, run, _name(run.result) == workload)
    return _largest(found.values())


def _largest(savings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(savings, key=lambda one: (not one["same_workload"], -one["saved_pct"]))[:MOST_SAVINGS]


def _counts(result: Mapping[str, Any]) -> bool:
    """Whether an experiment ended, and on this machine or its simulation."""
    return not result["cancelled"] and str(result.get("gpu") or "this").lower() == "this"


def _pays(row: Mapping[str, Any]) -> bool:
    return row["verdict"] == BETTER and (row["quality"] is None or row["quality"]["verdict"] != WORSE)


def _saving(row: Mapping[str, Any], run: Run, same: bool) -> dict[str, Any]:
    return {
        "lever": row["name"],
        "from": row["from"],
        "to": row["to"],
        "saved_pct": row["saved_pct"],
        "saved_ci95": row["saved_ci95"],
        "quality": None if row["quality"] is None else row["quality"]["verdict"],
        "same_workload": same,
        "workload": _name(run.result),
        "run_id": run.id,
        "provenance": row["provenance"],
    }


def _workload(result: Mapping[str, Any]) -> str:
    found = result["workload"]
    return str(found["name"] if isinstance(found, Mapping) else found)


def _name(result: Mapping[str, Any] | None) -> str | None:
    return None if result is None else str(result["workload"]["name"])


def advice_lines(advice: Mapping[str, Any]) -> Sequence[str]:
    """The advice in sentences, for the command line; the page has its own catalogue."""
    one, fleet, month = advice["instance"], advice["fleet"], advice["month"]
    if one["refuse_rps"] is None:
        return [f"water lines: none; {advice['reason']}"]
    lines = [
        f"water lines of an instance, requests/s: add one above {one['scale_out_rps']:.4g}, alarm above"
        f" {one['alarm_rps']:.4g}, refuse above {one['refuse_rps']:.4g} (--set rate_limit_rps={one['refuse_rps']:.4g})"
    ]
    if fleet is not None and month is not None:
        lost = "one may fail" if fleet["one_may_fail"] else "without one the rest is above its limit"
        lost = "when it fails, nothing is served" if fleet["instances"] == 1 else lost
        lines += [
            f"for {fleet['demand_rps']:g} requests/s: {fleet['instances']} instances ({fleet['formula']}), each at"
            f" {fleet['load_share']:.0%} of its limit; {lost}; the fleet alarms above {fleet['alarm_rps']:.4g}",
            f"a month: {month['cost']:,.2f} at an assumed {month['price_per_device_hour']:g} per device-hour"
            f" ({month['formula']}), {month['cost_per_million_requests']:.4g} per million requests",
        ]
    lines += [_saving_line(saving) for saving in advice["savings"]] or [f"savings: {advice['savings_reason']}"]
    if len(advice["savings"]) > 1:
        lines.append("each saving is by itself: they overlap, so they do not add up")
    return lines


def _saving_line(saving: Mapping[str, Any]) -> str:
    low_high = saving["saved_ci95"]
    ends = "" if low_high is None else f" [{low_high[0]:.0f}, {low_high[1]:.0f}]"
    money = "" if saving["saved_per_month"] is None else f", {saving['saved_per_month']:,.2f} a month"
    where = "" if saving["same_workload"] else f" on another workload, {saving['workload']}"
    run = f", run {saving['run_id']}" if saving["run_id"] else ", by this machine's roofline"
    quality = "quality unknown" if saving["quality"] is None else f"quality: {saving['quality']}"
    return (
        f"saving: {saving['lever']} ({saving['from']} to {saving['to']}) {saving['saved_pct']:.0f} %{ends}{money};"
        f" {saving['provenance']}{where}{run}; {quality}"
    )
