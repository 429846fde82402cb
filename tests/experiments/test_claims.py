"""The claims catalogue and its runner."""

from __future__ import annotations

import pytest
import yaml

from experiments.claims import get_claim, load_claims, run_claim
from experiments.claims.batching import judge
from experiments.claims.catalogue import KINDS
from experiments.claims.runner import CHECKED_BY_COMPARISON, CHECKED_BY_FORMULA
from ledger.errors import InputError


def test_every_claim_is_complete_and_the_ids_are_c01_to_c50():
    claims = load_claims()
    assert [claim.id for claim in claims] == [f"C{i:02d}" for i in range(1, 51)]
    for claim in claims:
        assert claim.kind in KINDS
        assert claim.section
        assert claim.statement.endswith(".")
        assert claim.check.endswith(".")
        assert claim.trap is None or claim.trap.endswith(".")


def test_a_claim_is_open_exactly_when_no_check_exists():
    runnable = {*CHECKED_BY_FORMULA, *CHECKED_BY_COMPARISON}
    assert {claim.id for claim in load_claims() if claim.state == "checkable"} == runnable


def test_the_rows_are_those_of_the_reference_list_told_anew(shared_dir):
    rows = yaml.safe_load((shared_dir / "claims.yaml").read_text(encoding="utf-8"))["claims"]
    for row in rows:
        claim = get_claim(row["id"])
        assert (claim.section, claim.kind) == (str(row["section"]), row["kind"])
        assert claim.statement != row["claim"]
        assert bool(claim.trap) or not row.get("trap"), f"{claim.id} lost its trap"


def test_an_open_claim_says_what_it_waits_for():
    result = run_claim("c05")
    assert result["id"] == "C05"
    assert result["verdict"] == "open"
    assert result["reason"].startswith("not checkable yet: it needs ")
    assert result["evidence"] == []


def test_unknown_claims_and_options_are_refused():
    with pytest.raises(InputError, match="C01 to C50"):
        run_claim("C99")
    with pytest.raises(InputError, match="repeats"):
        run_claim("C10", options={"variable": "dtype"}, compare=_comparisons())


def test_a_13b_model_needs_far_more_than_tens_of_gb_for_sixteen_sequences():
    result = run_claim("C04")
    values = {(row["name"], row.get("sequences")): row["value"] for row in result["evidence"]}
    assert values["KV cache, 40 KV heads, fp16", 1] == 819_200 * 131_072
    assert values["KV cache, 40 KV heads, fp16", 16] == 819_200 * 131_072 * 16
    assert values["KV cache, 8 KV heads, fp16", 16] == pytest.approx(344e9, rel=0.002)
    assert values["weights, fp16", None] == pytest.approx(26e9, rel=0.01)
    assert result["verdict"] == "holds with a limit"
    assert all(row["provenance"] == "computed" for row in result["evidence"])


def test_a_7b_model_at_128k_has_a_cache_of_17_gb_and_1_19_times_its_weights():
    result = run_claim("C45")
    assert result["evidence"][0]["value"] == 17_179_869_184
    assert "1.19 times" in result["reason"]
    assert result["evidence"][1]["value"] < result["evidence"][2]["value"]
    assert result["verdict"] == "holds with a limit"


def _comparisons(static="better", dynamic="better", equal="no difference", seen=None):
    """A stand-in for the engine: gives each comparison the verdict it is told."""

    def compare(spec):
        if seen is not None:
            seen.append(spec)
        verdict = equal if spec["workload"] == "equal" else {"static": static, "dynamic": dynamic}[spec["values"][0]]
        curve = {
            "name": "output_tokens_per_s",
            "baseline": 50.0,
            "candidate": 90.0,
            "change_pct": 80.0,
            "ci95": [70.0, 90.0],
            "noise_floor_pct": 2.0,
            "verdict": verdict,
            "provenance": "measured",
        }
        return {"curves": [{**curve, "name": "ttft_s"}, curve], "repeats": 5, "run_id": "00000000"}

    return compare


def test_c10_runs_static_and_dynamic_on_mixed_and_static_on_equal():
    seen = []
    result = run_claim("C10", compare=_comparisons(seen=seen), options={"num_requests": 8})
    assert [(s["variable"], s["values"], s["workload"], s["repeats"], s["num_requests"]) for s in seen] == [
        ("batching", ["static", "continuous"], "mixed", "auto", 8),
        ("batching", ["dynamic", "continuous"], "mixed", "auto", 8),
        ("batching", ["static", "continuous"], "equal", "auto", 8),
    ]
    assert result["verdict"] == "holds with a limit"
    assert [row["curve"] for row in result["evidence"]] == ["output_tokens_per_s"] * 3
    assert "largest" in result["not_checked"]


@pytest.mark.parametrize(
    ("static", "dynamic", "equal", "expected"),
    [
        ("better", "better", "better", "holds"),
        ("better", "better", "no difference", "holds with a limit"),
        ("better", "better", "worse", "holds with a limit"),
        ("better", "no difference", "better", "holds with a limit"),
        ("better", "better", "inconclusive", "undecided"),
        ("better", "inconclusive", "no difference", "undecided"),
        ("inconclusive", "better", "no difference", "undecided"),
        ("worse", "better", "no difference", "does not hold here"),
        ("no difference", "better", "no difference", "does not hold here"),
    ],
)
def test_c10_is_judged_by_the_throughput_verdicts(static, dynamic, equal, expected):
    assert judge({"static_mixed": static, "dynamic_mixed": dynamic, "static_equal": equal})[0] == expected
