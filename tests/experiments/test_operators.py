"""Profiles: what may be asked, and a really profiled step of a tiny model in every kind of arm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.loadgen import Cancelled
from experiments.operators.run import run_profile
from experiments.operators.spec import ProfileSpec, parse_step, parse_vary
from experiments.operators_setup import STEPS, VARIED, Choice
from experiments.operators_view import arm_figures, operator_rows, profile_command, short_name, shown_rows
from experiments.store import Store
from ledger.errors import InputError
from tests.core_engine.conftest import make_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    make_llama(folder)
    return str(folder)


def settings(tiny: str, **more: Any) -> dict[str, Any]:
    return {"model": tiny, "dtype": "fp32", "threads": 1, "device": "cpu", **more}


@pytest.mark.parametrize(
    ("spec", "field", "accepted"),
    [
        ({"step": "decode"}, "--step", "decode:1x256"),
        ({"step": "decode:0x16"}, "--step", "sequences"),
        ({"step": "decode:1x99999999"}, "--step", "tokens"),
        ({"step": "train:1x16"}, "--step", "prefill"),
        ({"vary": ["batching", ["static", "continuous"]]}, "--vary", "fused_ops"),
        ({"vary": ["fused_ops", ["on"]]}, "--vary", "2 to 6"),
        ({"vary": ["fused_ops", ["on", "on"]]}, "--vary", "different"),
        ({"vary": ["fused_ops", ["on", "maybe"]]}, "fused_ops", "on, off"),
        ({"vary": ["fused_ops", ["off", "on"]], "settings": {"fused_ops": "on"}}, "--set", "varied"),
        ({"settings": {"batching": "static"}}, "--set", "single step"),
        ({"repeats": 0}, "--repeats", "1 to 200"),
        ({"steps": 3}, "spec", "repeats"),
        ({"vary": ["kv_splits", ["1", "2"]], "settings": {"attention": "naive"}}, "settings", "attention"),
    ],
)
def test_what_can_not_be_profiled_is_one_line(spec: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(InputError) as error:
        ProfileSpec.from_dict(spec)
    assert str(error.value).startswith(field) and accepted in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_step_and_a_variable_are_read_as_they_are_written() -> None:
    step = parse_step("decode:8x256")
    assert (step.phase, step.batch, step.seq_len) == ("decode", 8, 256)
    assert parse_vary("fused_ops=off, on") == ["fused_ops", ["off", "on"]]
    for text in ("fused_ops", "a=b=c"):
        with pytest.raises(InputError):
            parse_vary(text)


def test_every_choice_of_the_page_is_a_valid_spec() -> None:
    for step in STEPS:
        for varied in VARIED:
            jobs.checked_spec("profile", Choice(step, varied).spec())


def test_fusion_changes_the_launches_of_the_compiled_step(tiny: str, tmp_path: Path, compiled_kernels: None) -> None:
    store, lives = Store(tmp_path / "runs.sqlite3"), list[dict[str, Any]]()
    spec = ProfileSpec.from_dict(
        {"step": "decode:2x24", "vary": ["fused_ops", ["off", "on"]], "settings": settings(tiny), "repeats": 4}
    ).to_dict()
    run_id = store.create_run("profile", spec)
    result = json.loads(json.dumps(run_profile(spec, store, run_id, lives.append), allow_nan=False))
    apart, fused = result["arms"]
    assert apart["counts"] == fused["counts"] == "compiled operators" and fused["kernels"] == "compiled"
    names = {arm["value"]: {one["name"]: one["launches"] for one in arm["operators"]} for arm in result["arms"]}
    layers = names["on"]["qkv"]
    assert names["off"]["query"] == layers and names["off"]["add"] == 2 * layers and "qkv" not in names["off"]
    # apart: q, k, v for one, rotate and write for one, two additions, gate, up and the activation for one
    assert apart["launches"] - fused["launches"] == 7 * layers
    assert [change["launches"] for change in result["changes"]] == [-7 * layers]
    assert result["changes"][0]["step_s"]["pairs"] == result["repeats"] == 4
    for arm in result["arms"]:
        assert arm["host_calls"] == 1 and arm["outside_s"] >= 0
        assert arm["operators_s"] == pytest.approx(sum(one["seconds"] for one in arm["operators"]))
        assert sum(one["share"] for one in arm["operators"]) == pytest.approx(1)
    assert [len(record.record["laps"]) for record in store.records(run_id)] == [4, 4]
    assert lives[-1]["phase"] == "done" and lives[-1]["fraction"] == 1


def test_without_a_graph_every_operator_is_a_call(tiny: str, compiled_kernels: None) -> None:
    result = run_profile(
        {"step": "prefill:1x32", "vary": ["graph", ["off", "on"]], "settings": settings(tiny), "repeats": 3}, None, "x"
    )
    off, on = result["arms"]
    assert off["launches"] == on["launches"] == off["host_calls"] and on["host_calls"] == 1
    assert result["changes"][0]["launches"] == 0 and result["changes"][0]["host_calls"] == 1 - off["launches"]


def test_torch_beside_compiled_counts_another_thing(tiny: str, compiled_kernels: None) -> None:
    result = run_profile(
        {"step": "decode:1x16", "vary": ["kernels", ["torch", "compiled"]], "settings": settings(tiny), "repeats": 3},
        None, "x",
    )  # fmt: skip
    torch_arm, compiled = result["arms"]
    assert torch_arm["counts"] == "torch operators" and torch_arm["outside_s"] is None
    assert "aten::mm" in {one["name"] for one in torch_arm["operators"]}
    assert result["changes"][0]["launches"] is None and compiled["outside_s"] is not None
    rows = operator_rows(result)
    assert next(row for row in rows if row.name == "head").is_compiled
    assert not next(row for row in rows if row.name == "aten::mm").is_compiled


def test_one_arm_has_no_change(tiny: str) -> None:
    result = run_profile({"step": "decode:1x16", "settings": settings(tiny), "repeats": 1}, None, "x")
    assert result["changes"] == [] and result["variable"] is None and arm_figures(result)[0].value == ""


def test_a_profile_can_be_cancelled_and_a_step_too_long_is_refused(tiny: str) -> None:
    spec = {"step": "decode:1x16", "settings": settings(tiny)}
    with pytest.raises(Cancelled):
        run_profile(spec, None, "x", should_cancel=lambda: True)
    with pytest.raises(InputError, match="positions"):
        run_profile({**spec, "step": "decode:1x100000"}, None, "x")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
         "vectorized_elementwise_kernel"),
        ("_attend_kernel", "_attend_kernel"),
        ("aten::mm", "aten::mm"),
        ("(dispatch)", "(dispatch)"),
        ("void (anonymous namespace)::softmax_warp<float>(float*)", "softmax_warp"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH "),
        ("k" * 60, "k" * 43 + "…"),
    ],
)  # fmt: skip
def test_kernels_have_short_names(name: str, short: str) -> None:
    assert short_name(name).strip() == short.strip()


def test_many_operators_are_summed_in_the_last_row_of_a_chart() -> None:
    operators = [{"name": f"k{i}", "launches": 1, "seconds": 1.0 / (i + 1), "share": 0.1} for i in range(9)]
    result = {"arms": [{"value": "off", "counts": "CUDA kernels", "operators": operators}]}
    shown = shown_rows(operator_rows(result), most=4)
    assert [row.name for row in shown] == ["k0", "k1", "k2", "6"] and shown[-1].is_rest
    assert shown[-1].launches == (6,)


def test_the_command_profiles_a_spec_again() -> None:
    spec = ProfileSpec.from_dict({"vary": ["graph", ["off", "on"]], "settings": {"dtype": "bf16"}, "repeats": 6})
    assert profile_command(spec.to_dict()) == (
        "trilemma profile --step decode:1x256 --vary graph=off,on --set dtype=bf16 --repeats 6"
    )
