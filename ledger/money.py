"""Money from device time. Pure functions; a price is an assumption of the caller and labelled so where it is shown.

Every function returns None where the figure has no value (nothing was completed), never 0.
"""

from __future__ import annotations

import math
from typing import Any

from ledger.errors import InputError

SECONDS_PER_HOUR = 3600.0
MONTH_S = 30 * 24 * SECONDS_PER_HOUR  # every month here has 30 days
HOURS_A_MONTH = MONTH_S / SECONDS_PER_HOUR
UTILISATION = 0.7  # how busy a device may be on average: the rest is for peaks (an assumption)
ROUNDING = 1e-9  # a ratio this close above a whole number is that number


def cost_per_request(
    duration_s: float, completed_requests: int, price_per_device_hour: float = 1.0, num_devices: int = 1
) -> float | None:
    """Cost of one completed request: device-hours x price / requests. None when none completed.

    InputError for a negative or non-finite duration, price or count.
    """
    total = _total_cost(duration_s, price_per_device_hour, num_devices)
    return total / completed_requests if _count("completed_requests", completed_requests) else None


def cost_per_million_output_tokens(
    duration_s: float, output_tokens: int, price_per_device_hour: float = 1.0, num_devices: int = 1
) -> float | None:
    """Cost of a million output tokens: device-hours x price x 1e6 / tokens. None when there are no tokens."""
    total = _total_cost(duration_s, price_per_device_hour, num_devices)
    return total * 1e6 / output_tokens if _count("output_tokens", output_tokens) else None


def requests_per_device_hour(duration_s: float, completed_requests: int, num_devices: int = 1) -> float | None:
    """Completed requests in one hour of one device. None when no time passed."""
    _finite("duration_s", duration_s)
    _count("completed_requests", completed_requests)
    hours = duration_s * _devices(num_devices) / SECONDS_PER_HOUR
    return completed_requests / hours if hours > 0 else None


def request_cost(
    input_tokens: int,
    output_tokens: int,
    *,
    price_per_million_input: float = 0.0,
    price_per_million_output: float = 0.0,
    device_hours: float = 0.0,
    price_per_device_hour: float = 1.0,
) -> dict[str, Any]:
    """Cost of a request: input tokens x input price + output tokens x output price + device-hours held x price.

    Who buys tokens pays the first two terms, who runs devices the third; both only where a vendor charges both.
    InputError for a negative number.
    """
    terms = {
        "input": _count("input_tokens", input_tokens)
        * _finite("price_per_million_input", price_per_million_input)
        / 1e6,
        "output": _count("output_tokens", output_tokens)
        * _finite("price_per_million_output", price_per_million_output)
        / 1e6,
        "device": _finite("device_hours", device_hours) * _finite("price_per_device_hour", price_per_device_hour),
    }
    total = sum(terms.values())
    how = (
        f"{input_tokens:,} input tokens x {price_per_million_input:g} / 1,000,000"
        f" + {output_tokens:,} output tokens x {price_per_million_output:g} / 1,000,000"
        f" + {device_hours:.4g} device-hours x {price_per_device_hour:g} = {total:.6g}"
    )
    return {"total": total, "terms": terms, "how": how, "provenance": "computed"}


def cards_needed(
    output_tokens_per_s: float,
    tokens_per_s_per_device: float,
    utilisation: float = UTILISATION,
    devices_per_replica: int = 1,
) -> int:
    """Devices for a rate of output tokens when none may be busier than `utilisation`, in whole replicas.

    InputError for numbers of 0 or less, or a utilisation above 1.
    """
    _positive("output_tokens_per_s", output_tokens_per_s)
    _positive("tokens_per_s_per_device", tokens_per_s_per_device)
    replica = tokens_per_s_per_device * _devices(devices_per_replica) * _ceiling(utilisation)
    exact = output_tokens_per_s / replica
    return max(1, math.ceil(exact * (1 - ROUNDING))) * devices_per_replica


def monthly_cost(
    requests_per_s: float,
    input_tokens: int,
    output_tokens: int,
    tokens_per_s_per_device: float,
    *,
    utilisation: float = UTILISATION,
    price_per_device_hour: float = 1.0,
    devices_per_replica: int = 1,
) -> dict[str, Any]:
    """A 30-day month at a constant rate: tokens, devices at a utilisation ceiling, device-hours, cost.

    `tokens_per_s_per_device` counts output tokens, measured or a bound. `cost` is what whole devices cost all month,
    `cost_of_busy_time` what the work alone takes (rented by the second, fully used).
    """
    rate = _positive("rate", requests_per_s)
    output_per_s = rate * _count("output_tokens", output_tokens)
    price = _finite("price_per_device_hour", price_per_device_hour)
    cards = cards_needed(output_per_s, tokens_per_s_per_device, utilisation, devices_per_replica)
    hours = cards * HOURS_A_MONTH
    requests = rate * MONTH_S
    busy_hours = output_per_s * MONTH_S / tokens_per_s_per_device / SECONDS_PER_HOUR
    cost = hours * price
    how = (
        f"{rate:g} requests/s x {output_tokens:,} = {output_per_s:,.6g} output tokens/s;"
        f" {output_per_s:,.6g} / ({tokens_per_s_per_device:,.6g} tokens/s a device x {utilisation:g})"
        f" = {output_per_s / (tokens_per_s_per_device * utilisation):.4g}, so {cards} devices"
        f" (whole replicas of {devices_per_replica}) x 720 h x {price:g} = {cost:,.6g}"
    )
    return {
        "requests": requests,
        "input_tokens": requests * _count("input_tokens", input_tokens),
        "output_tokens": output_per_s * MONTH_S,
        "output_tokens_per_s": output_per_s,
        "cards": cards,
        "device_hours": hours,
        "cost": cost,
        "busy_device_hours": busy_hours,
        "cost_of_busy_time": busy_hours * price,
        "cost_per_request": cost / requests,
        "cost_per_million_output_tokens": cost * 1e6 / (output_per_s * MONTH_S) if output_per_s else None,
        "utilisation_ceiling": utilisation,
        "utilisation": output_per_s / (cards * tokens_per_s_per_device),
        "price_per_device_hour": price,
        "how": how,
        "provenance": "computed",
    }


def answer_cache_saving(
    requests: float,
    hit_share: float,
    wrong_share_of_hits: float,
    *,
    cost_per_request: float,
    cost_per_lookup: float = 0.0,
    cost_per_wrong_answer: float = 0.0,
) -> float:
    """What a cache of answers saves on so many requests; below 0 when it costs more than it saves.

    Every request is looked up, a hit spares a request's cost, and a hit with the wrong answer costs what it does to put
    that right. InputError for a negative number or a share above 1.
    """
    for name, share in (("hit_share", hit_share), ("wrong_share_of_hits", wrong_share_of_hits)):
        if not 0 <= share <= 1:
            raise InputError(name, share, "a share from 0 to 1")
    hits = _finite("requests", requests) * hit_share
    wrong = hits * wrong_share_of_hits * _finite("cost_per_wrong_answer", cost_per_wrong_answer)
    looked_up = requests * _finite("cost_per_lookup", cost_per_lookup)
    return hits * _finite("cost_per_request", cost_per_request) - wrong - looked_up


def _total_cost(duration_s: float, price_per_device_hour: float, num_devices: int) -> float:
    _finite("duration_s", duration_s)
    _finite("price_per_device_hour", price_per_device_hour)
    return duration_s * _devices(num_devices) / SECONDS_PER_HOUR * price_per_device_hour


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise InputError(name, value, "a number of 0 or more")
    return value


def _positive(name: str, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise InputError(name, value, "a number above 0")
    return value


def _ceiling(utilisation: float) -> float:
    if not 0 < utilisation <= 1:
        raise InputError("utilisation", utilisation, "a share above 0, at most 1")
    return utilisation


def _count(name: str, value: int) -> int:
    if value < 0:
        raise InputError(name, value, "0 or more")
    return value


def _devices(num_devices: int) -> int:
    if num_devices < 1:
        raise InputError("num_devices", num_devices, "1 or more")
    return num_devices
