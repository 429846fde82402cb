"""Gauges of /metrics: what is read from the engines, the threads and the canary when somebody looks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from experiments.metrics.objectives import Objective
from experiments.server.canary import ARMS, Canary
from experiments.server.engine_thread import Arm, EngineThread
from experiments.server.metrics import Metrics


def add_gauges(metrics: Metrics, thread: EngineThread, in_flight: Callable[[], int], canary: Canary | None) -> None:
    """Register all of them; called in the event loop's thread, whose CPU time is one."""
    for arm, engine in zip(thread.arms, metrics.engines, strict=True):
        labels = engine.labels
        metrics.gauge("vllm:num_requests_running", "Samples in the batch.", partial(_running, arm), **labels)
        metrics.gauge("vllm:num_requests_waiting", "Samples that wait.", partial(_waiting, arm), **labels)
        metrics.gauge(
            "vllm:kv_cache_usage_perc", "Share of KV blocks held; 1 is all.", partial(_kv_usage, arm), **labels
        )
    metrics.gauge("trilemma:http_requests_in_flight", "Requests that are not answered yet.", in_flight)
    if hasattr(time, "pthread_getcpuclockid"):
        words = "CPU time of a thread: the loop's share of a while bounds what the engine waited for the interpreter."
        metrics.gauge("trilemma:thread_cpu_seconds", words, time.thread_time, thread="loop")
        metrics.gauge("trilemma:thread_cpu_seconds", words, partial(_cpu_s, thread), thread="engine")
    if canary is not None:
        _add_canary(metrics, canary)


def _add_canary(metrics: Metrics, canary: Canary) -> None:
    metrics.gauge("trilemma:canary_share", "Share of the requests that go to B.", lambda: canary.share)
    metrics.gauge("trilemma:canary_rolled_back", "1 once B was rolled back.", lambda: canary.rolled_back is not None)
    for place, arm in enumerate(ARMS):
        count = partial(canary.counts.__getitem__, place)
        metrics.gauge("trilemma:canary_requests", "Requests sent to an arm.", count, arm=arm)
        for objective in canary.plan.objectives:
            read, labels = partial(_value, canary, objective, place), {"objective": objective.name, "arm": arm}
            metrics.gauge("trilemma:canary_objective_value", "In the window; NaN without samples.", read, **labels)
    for objective in canary.plan.objectives:
        read = partial(float, objective.limit)
        metrics.gauge("trilemma:canary_objective_limit", "An objective's limit.", read, objective=objective.name)


def _running(arm: Arm) -> float:
    return arm.load.running


def _waiting(arm: Arm) -> float:
    return arm.load.waiting


def _kv_usage(arm: Arm) -> float:
    return arm.load.used_blocks / arm.load.total_blocks


def _cpu_s(thread: EngineThread) -> float:
    """NaN once the thread has ended: the system must not be asked for one that is no more."""
    if thread.ident is None or not thread.is_alive():
        return math.nan
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def _value(canary: Canary, objective: Objective, place: int) -> float:
    judged = canary.judged(objective)
    value = judged.b if place else judged.a
    return math.nan if value is None else value
