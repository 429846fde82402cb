"""Money from device time. Pure functions; a price is an assumption of the caller and labelled so where it is shown.

Every function returns None where the figure has no value (nothing was completed), never 0.
"""

from __future__ import annotations

import math

from ledger.errors import InputError

SECONDS_PER_HOUR = 3600.0


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


def _total_cost(duration_s: float, price_per_device_hour: float, num_devices: int) -> float:
    _finite("duration_s", duration_s)
    _finite("price_per_device_hour", price_per_device_hour)
    return duration_s * _devices(num_devices) / SECONDS_PER_HOUR * price_per_device_hour


def _finite(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise InputError(name, value, "a number of 0 or more")


def _count(name: str, value: int) -> int:
    if value < 0:
        raise InputError(name, value, "0 or more")
    return value


def _devices(num_devices: int) -> int:
    if num_devices < 1:
        raise InputError("num_devices", num_devices, "1 or more")
    return num_devices
