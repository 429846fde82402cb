import json

import pytest

from experiments.cli import run

MEASURED = ["cost", "--tokens-per-s-per-device", "1500"]


def test_a_month_at_a_measured_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*MEASURED, "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["month"]["output_tokens"] == 12_960_000_000
    assert (report["cards"], report["provenance"], report["price_label"]) == (5, "measured", "assumed")
    assert "assumed" in err


def test_the_embedded_model_at_the_roof_of_a_card_with_levers(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["cost", "smollm2-135m", "--gpu", "L4", "--lever", "weights=w8a8", "--lever", "answer_cache=0.3"]
    assert run(options) == 0
    out = capsys.readouterr().out
    assert "upper bound at the roof" in out and "all together" in out and "price assumed" in out
    assert run([*options, "--price-per-device-hour", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["price_label"] == "given"
    assert [row["name"] for row in report["levers"]["each"]] == ["weights", "answer_cache"]


def test_a_model_that_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "llama-3.1-70b", "--gpu", "l4"]) == 0
    assert "cannot be served: memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["cost"], "throughput"),
        (["cost", "smollm2-135m"], "--gpu"),
        (["cost", "--gpu", "l4"], "CONFIG"),
        (["cost", "smollm2-135m", "--gpu", "l5"], "gpu"),
        ([*MEASURED, "--lever", "routing"], "NAME=VALUE"),
        ([*MEASURED, "--lever", "luck=1"], "luck"),
        ([*MEASURED, "--rate", "many"], "--rate"),
        ([*MEASURED, "--rate", "0"], "rate"),
        ([*MEASURED, "--utilisation", "2"], "utilisation"),
        ([*MEASURED, "--price-per-device-hour", "-1"], "price_per_device_hour"),
        (["cost", "--tokens-per-s-per-device", "0"], "tokens_per_s_per_device"),
        ([*MEASURED, "--tp", "4"], "--tp"),
        ([*MEASURED, "--concurrency", "8"], "--concurrency"),
        ([*MEASURED, "--tpot-slo", "0.05"], "--tpot-slo"),
        ([*MEASURED, "--weights", "fp8"], "--weights"),
        (["cost", "smollm2-135m", "--gpu", "l4", "--lever", "concurrency=inf"], "concurrency"),
        (["cost", "smollm2-135m", "--gpu", "l4", "--lever", "concurrency=nan"], "concurrency"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options) == 2
    out, err = capsys.readouterr()
    assert not out and said in err.splitlines()[-1]


def test_a_lever_after_which_nothing_fits_has_no_saving(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "llama-3.1-70b", "--gpu", "h100", "--weights", "w4a16", "--lever", "weights=bf16"]) == 0
    assert "no lever leaves a service that can be served" in capsys.readouterr().out


def test_lengths_over_the_models_maximum_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "llama-3.1-8b", "--gpu", "h100", "--input-tokens", "200000"]) == 0
    assert "200,500 tokens are more than the model's maximum of 131,072" in capsys.readouterr().err
