"""The claims catalogue and its runner; the checks that run comparisons, against a stand-in for the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from experiments import loadgen
from experiments.claims import (
    arithmetic,
    get_claim,
    idle_slots,
    latency_parts,
    load_claims,
    memory_accounts,
    monthly,
    paging,
    prefix_reuse,
    run_claim,
)
from experiments.claims.batching import judge
from experiments.claims.catalogue import KINDS
from experiments.claims.runner import (
    CHECKED_BY_CACHE,
    CHECKED_BY_COMPARISON,
    CHECKED_BY_DRAFTS,
    CHECKED_BY_ENGINE,
    CHECKED_BY_EVALUATION,
    CHECKED_BY_FACTORIAL,
    CHECKED_BY_FORMULA,
    CHECKED_BY_JITTER,
    CHECKED_BY_LADDER,
    CHECKED_BY_LEVERS,
    CHECKED_BY_RUN,
    CHECKED_BY_SIMULATION,
    CHECKED_BY_SWEEP,
)
from experiments.compare import run_comparison
from experiments.factorial import run_factorial
from experiments.factorial.effects import EFFECTS
from experiments.labs import load_labs
from experiments.memory_view import account_rows
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

VERDICTS = ("holds", "holds with a limit", "does not hold here", "undecided")


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
    checks = (
        CHECKED_BY_FORMULA,
        CHECKED_BY_ENGINE,
        CHECKED_BY_EVALUATION,
        CHECKED_BY_COMPARISON,
        CHECKED_BY_DRAFTS,
        CHECKED_BY_FACTORIAL,
        CHECKED_BY_CACHE,
        CHECKED_BY_JITTER,
        CHECKED_BY_LADDER,
        CHECKED_BY_LEVERS,
        CHECKED_BY_RUN,
        CHECKED_BY_SIMULATION,
        CHECKED_BY_SWEEP,
    )
    runnable = {claim for by in checks for claim in by}
    assert {claim.id for claim in load_claims() if claim.state == "checkable"} == runnable


def test_the_rows_are_those_of_the_reference_list_told_anew(shared_dir):
    rows = yaml.safe_load((shared_dir / "claims.yaml").read_text(encoding="utf-8"))["claims"]
    for row in rows:
        claim = get_claim(row["id"])
        assert (claim.section, claim.kind) == (str(row["section"]), row["kind"])
        assert claim.statement != row["claim"]
        assert bool(claim.trap) or not row.get("trap"), f"{claim.id} lost its trap"


def test_an_open_claim_says_what_it_waits_for(monkeypatch):
    open_claim = replace(get_claim("c41"), lab=None, needs="the part that comes")
    monkeypatch.setattr("experiments.claims.runner.get_claim", lambda _: open_claim)
    result = run_claim("c41")
    assert result["id"] == "C41"
    assert result["verdict"] == "open"
    assert result["reason"] == "not checkable yet: it needs the part that comes"
    assert result["evidence"] == []


def test_a_claim_that_a_lab_teaches_names_the_lab():
    result = run_claim("c41")
    assert (result["verdict"], result["lab"]) == ("lab", "caching")
    assert "trilemma lab show caching" in result["reason"]


def test_every_lab_that_a_claim_names_is_there_and_covers_it():
    covered = {lab.id: lab.claims for lab in load_labs()}
    taught = [claim for claim in load_claims() if claim.kind == "knowledge"]
    assert all(bool(claim.lab) != bool(claim.needs) for claim in taught)
    for claim in load_claims():
        assert claim.lab is None or claim.id in covered.get(claim.lab, ()), f"{claim.id} is not covered by {claim.lab}"


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


@pytest.mark.parametrize(
    ("check", "inputs", "expected"),
    [
        (arithmetic.thirteen_billion, {}, "holds with a limit"),
        (arithmetic.thirteen_billion, {"tokens": 4096}, "holds"),
        (arithmetic.thirteen_billion, {"tokens": 64}, "does not hold here"),
        (arithmetic.seven_billion, {}, "holds with a limit"),
        (arithmetic.seven_billion, {"tokens": 262_144}, "holds"),
        (arithmetic.seven_billion, {"tokens": 32_768}, "does not hold here"),
        (monthly.month_of_a_7b_model, {}, "holds"),
        (monthly.month_of_a_7b_model, {"rate_per_s": 20}, "does not hold here"),
    ],
)
def test_a_formula_with_other_numbers_has_another_verdict(check, inputs, expected):
    assert check(**inputs)["verdict"] == expected


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


def _stand_in(results, seen=None):
    """Answers one comparison after another with (curves, metrics of both arms, further keys)."""
    left = list(results)

    def compare(spec):
        if seen is not None:
            seen.append(spec)
        curves, metrics, extra = left.pop(0)
        usual = {
            "baseline": 1.0,
            "candidate": 2.0,
            "change_pct": 100.0,
            "ci95": [50.0, 150.0],
            "verdict": "better",
            "noise_floor_pct": 2.0,
            "provenance": "measured",
            "samples": {"baseline": [], "candidate": []},
        }
        made = [{**usual, "name": name, **curves.get(name, {})} for name in ("ttft_s", "output_tokens_per_s")]
        return {
            "curves": made,
            "arms": [{"metrics": arm} for arm in metrics],
            "repeats": 3,
            "run_id": "00000000",
            **extra,
        }

    return compare


def _slots(share):
    return {"slots": {"idle_share": share, "idle_slot_steps": 10, "busy_slot_steps": 10}}


def test_c08_counts_idle_slot_steps_of_static_batching_on_mixed_lengths():
    seen = []
    result = run_claim("C08", compare=_stand_in([({}, [_slots(0.4), _slots(0.0)], {})], seen))
    assert (seen[0]["values"], seen[0]["workload"], seen[0]["repeats"]) == (["static", "continuous"], "mixed", 3)
    assert result["verdict"] == "holds" and "40%" in result["reason"]
    assert result["evidence"][0]["idle_share"] == [0.4, 0.0]


@pytest.mark.parametrize(
    ("static", "continuous", "expected"),
    [(0.4, 0.0, "holds"), (0.01, 0.0, "holds with a limit"), (0.0, 0.0, "does not hold here"), (None, 0.0, "undecided"),
     (0.3, 0.3, "does not hold here")],
)  # fmt: skip
def test_c08_is_judged_by_the_shares(static, continuous, expected):
    assert idle_slots.judge_static(static, continuous)[0] == expected


def test_c09_compares_dynamic_with_static_at_two_loads():
    seen = []
    answers = [({"ttft_s": {"verdict": "no difference"}}, [_slots(0.4), _slots(0.3)], {}),
               ({"ttft_s": {"verdict": "better"}}, [_slots(0.4), _slots(0.2)], {})]  # fmt: skip
    result = run_claim("C09", compare=_stand_in(answers, seen), options={"num_requests": 8})
    assert [(spec["rate_rps"], spec["num_requests"]) for spec in seen] == [(None, 8), (1.0, 8)]
    assert result["verdict"] == "holds with a limit" and "30%" in result["reason"]


@pytest.mark.parametrize(
    ("own_rate", "calm", "shares", "expected"),
    [
        ("better", "better", [0.3, 0.2], "holds"),
        ("inconclusive", "better", [0.3, 0.2], "holds with a limit"),
        ("better", "inconclusive", [0.3, 0.2], "undecided"),
        ("better", "no difference", [0.3, 0.2], "does not hold here"),
        ("better", "better", [0.0, 0.0], "does not hold here"),
        ("better", "better", [None, None], "undecided"),
    ],
)
def test_c09_is_judged_by_first_token_and_held_slots(own_rate, calm, shares, expected):
    assert idle_slots.judge_dynamic({"own_rate": own_rate, "calm": calm}, shares)[0] == expected


def _kv(wasted, running):
    kinds = {kind: {"bytes": wasted} for kind in ("internal", "reserved_unused", "external", "wasted")}
    return {"kv_waste": kinds, "concurrency": {"mean": running, "peak": 4}}


def test_c11_measures_both_layouts_in_one_small_pool_and_says_its_size():
    seen = []
    result = run_claim("C11", compare=_stand_in([({}, [_kv(40e6, 2.0), _kv(1e6, 9.0)], {})], seen))
    assert seen[0]["values"] == ["contiguous", "paged"] and seen[0]["workload"] == "long-tail"
    assert seen[0]["settings"]["kv_memory_mib"] == result["evidence"][0]["kv_memory_mib"] == 64
    assert result["verdict"] == "holds"
    assert result["evidence"][0]["reserved_unused_bytes"] == [40e6, 1e6]
    seen = []
    options = {"settings": {"kv_memory_mib": 96, "threads": 1}}
    run_claim("C11", compare=_stand_in([({}, [_kv(1.0, 2.0), _kv(1.0, 9.0)], {})], seen), options=options)
    assert seen[0]["settings"] == {"kv_memory_mib": 96, "max_num_seqs": 16, "threads": 1}


@pytest.mark.parametrize(
    ("wasted", "running", "expected"),
    [
        ([40e6, 1e6], [2.0, 9.0], "holds"),
        ([40e6, 1e6], [9.0, 9.0], "holds with a limit"),
        ([40e6, 30e6], [2.0, 9.0], "does not hold here"),
        ([None, None], [2.0, 9.0], "undecided"),
    ],
)
def test_c11_is_judged_by_waste_and_admitted_requests(wasted, running, expected):
    assert paging.judge_waste(wasted, running)[0] == expected


def _factorial(interaction, first_alone="better", second_alone="better", reading=None, seen=None):
    """A stand-in for a 2 x 2 experiment: gives every effect the same figures but for the verdict it is told."""
    told = {"first_alone": first_alone, "second_alone": second_alone, "interaction": interaction["verdict"]}

    def curve(effect):
        figures = {"name": "output_tokens_per_s", "baseline": 1.0, "candidate": 1.0, "noise_floor_pct": 2.0,
                   "provenance": "measured", **interaction}  # fmt: skip
        return {**figures, "verdict": told.get(effect, "inconclusive")}

    def factorial(spec):
        if seen is not None:
            seen.append(spec)
        (first, a), (second, b) = spec["factors"]
        return {
            "effects": {effect: [curve(effect)] for effect in EFFECTS},
            "readings": [reading or {}],
            "arms": [{"values": {first: x, second: y}, "metrics": _kv(1.0, 2.0)} for y in b for x in a],
            "repeats": 5,
            "run_id": "r",
        }

    return factorial


def _interaction(change_pct, ci95, verdict):
    return {"change_pct": change_pct, "ci95": ci95, "verdict": verdict}


def test_c12_measures_all_four_pairings_in_one_experiment():
    seen = []
    factorial = _factorial(_interaction(85.0, [60.0, 110.0], "better"), first_alone="no difference", seen=seen)
    result = run_claim("C12", options={"settings": {"batching": "dynamic", "threads": 1}}, factorial=factorial)
    assert [factor[0] for factor in seen[0]["factors"]] == ["kv_layout", "batching"]
    assert seen[0]["settings"] == {"kv_memory_mib": 64, "max_num_seqs": 16, "threads": 1}
    assert result["verdict"] == "holds"
    assert "multiplies throughput by 1.85 as much as under static [1.60, 2.10]" in result["reason"]
    assert "contiguous with static" in result["reason"]
    assert [row["part"] for row in result["evidence"]] == list(EFFECTS)


@pytest.mark.parametrize(
    ("interaction", "alone", "expected"),
    [
        (_interaction(80.0, [60.0, 100.0], "better"), "no difference", "holds"),
        (_interaction(80.0, [60.0, 100.0], "better"), "better", "holds with a limit"),
        (_interaction(80.0, [-10.0, 300.0], "inconclusive"), "better", "undecided"),
        (_interaction(0.0, [-2.0, 2.0], "no difference"), "better", "does not hold here"),
        (_interaction(-30.0, [-40.0, -20.0], "worse"), "better", "does not hold here"),
        (_interaction(None, None, "inconclusive"), "better", "undecided"),
    ],
)
def test_c12_is_judged_by_the_interaction(interaction, alone, expected):
    assert paging.judge_together(interaction, alone)[0] == expected


def _reading(first, second, together, verdict):
    product = 100 * ((1 + first / 100) * (1 + second / 100) - 1)
    return {"curve": "output_tokens_per_s", "first_alone_pct": first, "second_alone_pct": second,
            "together_pct": together, "product_pct": product, "interaction_ci95": [-60.0, -40.0],
            "verdict": verdict}  # fmt: skip


@pytest.mark.parametrize(
    ("reading", "alone", "expected", "said"),
    [
        (_reading(100, 200, 210, "worse"), ["better"] * 2, "holds", "together they give x3.10, their product would be"),
        (_reading(100, 200, 150, "worse"), ["better"] * 2, "holds", "the drafts cost more than they bring"),
        (_reading(-5, 200, 100, "worse"), ["worse", "better"], "holds with a limit", "not both are gains"),
        (_reading(9, 200, 100, "worse"), ["inconclusive", "better"], "undecided", "a gain by itself"),
        (_reading(100, 200, 500, "no difference"), ["better"] * 2, "does not hold here", "do not get in"),
        (_reading(100, 200, 700, "better"), ["better"] * 2, "does not hold here", "do not get in"),
        (_reading(100, 200, 400, "inconclusive"), ["better"] * 2, "undecided", "more repeats"),
    ],
)
def test_c30_holds_when_both_together_are_less_than_the_product(reading, alone, expected, said):
    stand_in = _factorial(_interaction(-50.0, [-60.0, -40.0], reading["verdict"]), *alone, reading=reading)
    result = run_claim("C30", factorial=stand_in)
    assert (result["verdict"], said in result["reason"]) == (expected, True)


def test_c12_and_c30_run_on_the_real_scheduler_with_a_virtual_clock(monkeypatch):
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    rig = FakeRig(clock, noise=0.01)

    def factorial(spec):
        return run_factorial(spec, None, "00000000", rig=rig)

    result = run_claim("C12", options={"repeats": 2}, factorial=factorial)
    assert result["verdict"] in VERDICTS and "Requests running at once" in result["reason"]
    assert {(c.batching, c.kv_layout) for c in rig.made} == {
        (policy, layout) for policy in ("static", "continuous") for layout in ("contiguous", "paged")
    }
    assert {(c.prefix_cache, c.kv_memory_mib) for c in rig.made} == {("off", 64)}
    rig.made.clear()
    result = run_claim("C30", options={"repeats": 2}, factorial=factorial)
    assert result["verdict"] in VERDICTS and "their product would be" in result["reason"]
    assert {(c.speculation, c.max_num_seqs) for c in rig.made} == {(s, n) for s in ("off", "ngram") for n in (1, 8)}


def test_c39_needs_fewer_prompt_tokens_the_same_answers_and_an_earlier_first_token():
    arms = [
        {"prefix": {"prefill_tokens": 5000, "hit_rate": None}},
        {"prefix": {"prefill_tokens": 900, "hit_rate": 0.8}},
    ]
    answer = ({"ttft_s": {"verdict": "better"}}, arms, {"quality": {"same_token_ids_share": 1.0}})
    seen = []
    result = run_claim("C39", compare=_stand_in([answer], seen))
    assert (seen[0]["variable"], seen[0]["values"], seen[0]["workload"]) == (
        "prefix_cache",
        ["off", "on"],
        "shared-prefix",
    )
    assert result["verdict"] == "holds" and "82%" in result["reason"]


@pytest.mark.parametrize(
    ("ttft", "prefill", "same", "expected"),
    [
        ("better", [5000, 900], 1.0, "holds"),
        ("no difference", [5000, 900], 1.0, "holds with a limit"),
        ("inconclusive", [5000, 900], 1.0, "undecided"),
        ("better", [5000, 900], 0.9, "does not hold here"),
        ("better", [5000, 5000], 1.0, "does not hold here"),
        ("better", [5000, 900], None, "undecided"),
    ],
)
def test_c39_is_judged_by_tokens_answers_and_ttft(ttft, prefill, same, expected):
    assert prefix_reuse.judge(ttft, prefill, same)[0] == expected


def test_c42_reads_the_unexplained_share_of_both_arms():
    arms = [{"unexplained_share": {"p50": 0.002, "p99": 0.008}, "latency_breakdown": {"queue_s": 1.0}}] * 2
    result = run_claim("C42", compare=_stand_in([({}, arms, {})]))
    assert result["verdict"] == "holds" and "0.20%" in result["reason"]
    assert result["evidence"][0]["queue_s"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("middle", "far", "expected"),
    [
        ([0.002, 0.004], [0.008, 0.009], "holds"),
        ([0.002, 0.004], [0.008, 0.02], "holds with a limit"),
        ([0.002, 0.02], [0.008, 0.02], "does not hold here"),
        ([None, None], [None, None], "undecided"),
    ],
)
def test_c42_is_judged_by_the_worse_arm(middle, far, expected):
    assert latency_parts.judge(middle, far)[0] == expected


@pytest.mark.parametrize(
    ("claim", "verdicts"),
    [
        ("C08", {"holds"}),
        ("C09", {"holds", "holds with a limit"}),
        ("C11", {"holds"}),
        ("C39", {"holds"}),
        ("C42", {"holds"}),
    ],
)
def test_checks_run_on_the_real_scheduler_with_a_virtual_clock(claim, verdicts, monkeypatch):
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    rig = FakeRig(clock, noise=0.01)
    result = run_claim(
        claim, options={"repeats": 3}, compare=lambda spec: run_comparison(spec, None, "00000000", rig=rig)
    )
    assert result["verdict"] in verdicts, result["reason"]
    assert result["evidence"] and all(row["repeats"] == 3 for row in result["evidence"])
    if claim == "C11":
        assert {config.prefix_cache for config in rig.made} == {"off"}
        assert {config.kv_memory_mib for config in rig.made} == {64}


def _memory(**measured):
    """`memory` of a run whose every account is as predicted, but for what is given."""
    mib = 2**20
    predicted = {
        "runtime": 260 * mib, "weights": 513 * mib, "kv_pool": 255 * mib, "padding_block": mib,
        "activation_peak": 8 * mib, "history": None,
    }  # fmt: skip
    accounts = {
        name: {"predicted_bytes": size, "measured_bytes": measured.get(name, size), "how": "", "measured_how": ""}
        for name, size in predicted.items()
    }
    total = measured.get("total", 1040 * mib)
    known = sum(account["measured_bytes"] or 0 for account in accounts.values())
    sums = {"predicted_bytes": 1037 * mib, "total_bytes": total}
    return {"accounts": accounts, **sums, "unexplained_bytes": None if total is None else total - known}


@pytest.mark.parametrize(
    ("measured", "expected", "said"),
    [
        ({}, "holds with a limit", "interpreter"),
        ({"runtime": 10 * 2**20, "total": 790 * 2**20}, "does not hold here", "total"),
        ({"weights": 513 * 2**20 - 1}, "does not hold here", "weights"),
        ({"activation_peak": 9 * 2**20}, "does not hold here", "activation_peak"),
        ({"total": 1140 * 2**20}, "does not hold here", "total"),
        ({"total": None}, "undecided", "can't be read"),
    ],
)
def test_c03_is_judged_account_by_account(measured, expected, said):
    seen = []

    def bench(spec):
        seen.append(spec)
        return {"memory": _memory(**measured)}

    result = run_claim("C03", bench=bench, options={"settings": {"threads": 1}})
    assert result["verdict"] == expected and said in result["reason"]
    assert seen[0]["settings"] == {"threads": 1}
    assert [item["account"] for item in result["evidence"]][-2:] == ["unexplained", "total"]


def test_c03_holds_where_the_four_accounts_are_nearly_everything():
    rows = account_rows(_memory(runtime=0, total=780 * 2**20))
    rows = [replace(row, predicted_bytes=777 * 2**20) if row.name == "total" else row for row in rows]
    assert memory_accounts.judge(rows)[0] == "holds"


def test_the_processs_peak_stands_last_beside_the_prediction():
    memory = {**_memory(), "process_peak_bytes": 1100 * 2**20}
    rows = account_rows(memory)
    assert [row.name for row in rows][-2:] == ["total", "process_peak"]
    assert rows[-1].difference_bytes == 1100 * 2**20 - memory["predicted_bytes"]
    assert memory_accounts.judge(rows)[0] == "holds with a limit"


def test_an_older_run_has_no_accounts():
    assert account_rows({"weights_bytes": 1}) == []
    assert memory_accounts.judge([])[0] == "undecided"


def test_a_claim_asked_by_the_command_line_and_by_a_page_is_one_spec():
    from experiments.kinds import kind_of
    from experiments.store.identity import spec_hash

    check = kind_of("claim").check
    typed = {"num_requests": "8", "repeats": "5", "settings": {"max_num_seqs": "4"}}
    chosen = {"repeats": 5, "num_requests": 8, "settings": {"max_num_seqs": 4}, "seed": None}
    specs = [check({"claim": "C10", "options": options}) for options in (typed, chosen)]
    assert specs[0] == specs[1] and specs[0]["options"]["num_requests"] == 8
    assert len(set(map(spec_hash, specs))) == 1
    assert check({"claim": "C10", "options": {"settings": {}}}) == check({"claim": "C10"})
    with pytest.raises(InputError):
        check({"claim": "C10", "options": {"workload": "chat"}})
