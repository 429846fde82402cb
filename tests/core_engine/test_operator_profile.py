"""Operators of a step: counts and times of the compiled step's timers and of torch.profiler's events."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core_engine import operator_profile
from core_engine.operator_profile import (
    DISPATCH,
    Lap,
    TorchMeter,
    compiled_lap,
    kernel_lap,
    operator_lap,
    quicker_half,
    step_profile,
)
from core_engine.operator_sources import KERNELS, OPERATORS

STEP_H = Path(operator_profile.__file__).parent / "kernels" / "cpu" / "step.h"
CPU, CUDA = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA


def event(name: str, us: float = 0, on: object = CPU, children: tuple = (), **more: object) -> SimpleNamespace:
    span = SimpleNamespace(elapsed_us=lambda: us)
    return SimpleNamespace(
        name=name, device_type=on, time_range=span, self_cpu_time_total=us, cpu_children=list(children), **more
    )


@pytest.mark.parametrize("fused", [True, False])
def test_operators_of_a_compiled_step_are_counted_as_the_step_lists_them(fused: bool) -> None:
    body = STEP_H.read_text("utf-8").partition("void list_operators()")[2].partition("void lay_workspace()")[0]
    chosen = re.sub(r"(b\.fused|b\.flash) \? (add\(.*?\))\s*: (add\(.*?\));", r"\2;" if fused else r"\3;", body)
    lists = [
        (what == "layer", kinds.split(", ")) for what, kinds in re.findall(r"add\((layer|0), \{([A-Z_, ]+)\}", chosen)
    ]
    listed: dict[str, int] = {}
    for of_a_layer, kinds in lists:
        for kind in kinds:
            listed[kind.lower()] = listed.get(kind.lower(), 0) + (30 if of_a_layer else 1)
    assert {"embed", "head", "qkv" if fused else "query"} <= set(listed)
    assert compiled_lap(dict.fromkeys(listed, 5), 30, True).launches == listed


def test_an_operator_whose_timer_stayed_at_zero_is_not_in_the_step() -> None:
    lap = compiled_lap({"embed": 10, "qkv": 300, "merge": 0, "add": 60}, 3, one_call=False)
    assert lap.launches == {"embed": 1, "qkv": 3, "add": 6} and lap.host_calls == 10
    assert lap.seconds == pytest.approx({"embed": 1e-8, "qkv": 3e-7, "add": 6e-8})
    assert compiled_lap({"embed": 10}, 3, one_call=True).host_calls == 1


def test_kernels_of_a_device_are_counted_with_the_calls_that_launched_them() -> None:
    lap = kernel_lap([
        event("cudaLaunchKernel"), event("cuLaunchKernelEx"), event("cudaMemcpyAsync"), event("aten::mm", 50),
        event("gemm", 40, CUDA), event("gemm", 60, CUDA), event("Memcpy DtoH", 5, CUDA),
        event("marked by somebody", 200, CUDA, is_user_annotation=True),
    ])  # fmt: skip
    assert lap.launches == {"gemm": 2, "Memcpy DtoH": 1} and lap.host_calls == 3
    assert lap.seconds == pytest.approx({"gemm": 1e-4, "Memcpy DtoH": 5e-6})


def test_a_captured_graph_is_one_call_for_all_of_its_kernels() -> None:
    lap = kernel_lap([event("cudaGraphLaunch"), *(event(f"kernel{i}", 1, CUDA) for i in range(9))])
    assert sum(lap.launches.values()) == 9 and lap.host_calls == 1


def test_torch_operators_that_only_call_others_or_look_at_a_tensor_are_no_launch() -> None:
    view = event("aten::resolve_conj", 1)
    product = event("aten::mm", 100, children=(view,))
    whole = event("aten::linear", 7, children=(event("aten::t", 2), product))
    lap = operator_lap([whole, *whole.cpu_children, view])
    assert lap.launches == {DISPATCH: 0, "aten::mm": 1} and lap.host_calls == 1
    assert lap.seconds == pytest.approx({DISPATCH: 1e-5, "aten::mm": 1e-4})


def test_figures_are_means_over_the_quicker_half_and_add_up() -> None:
    laps = [Lap({"a": 2, "b": 1}, {"a": 2.0 * slow, "b": 1.0 * slow}, 3) for slow in (1.0, 9.0, 1.2, 5.0)]
    assert quicker_half(laps) == [0, 2]
    found = step_profile(laps)
    assert [(one.name, one.launches) for one in found.operators] == [("a", 2), ("b", 1)]
    assert found.operators[0].seconds == pytest.approx(2.2) and found.seconds == pytest.approx(3.3)
    assert found.launches == 3 and found.host_calls == 3


def test_torch_on_a_cpu_is_really_profiled() -> None:
    meter, x = TorchMeter(torch.device("cpu")), torch.ones(8, 8)
    assert meter.counts == OPERATORS and TorchMeter(torch.device("cuda")).counts == KERNELS
    for _ in range(2):
        with meter:
            x @ x + x
    launches = {one.name: one.launches for one in step_profile(meter.laps).operators}
    assert {name: count for name, count in launches.items() if count} == {"aten::mm": 1, "aten::add": 1}


def test_a_step_that_fails_leaves_no_lap() -> None:
    meter = TorchMeter(torch.device("cpu"))
    with pytest.raises(ValueError), meter:
        raise ValueError
    assert meter.laps == []
