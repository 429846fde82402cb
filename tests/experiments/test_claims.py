"""The claims catalogue and its runner; the checks that are arithmetic or read one run's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from experiments.claims import (
    arithmetic,
    get_claim,
    load_claims,
    memory_accounts,
    monthly,
    run_claim,
)
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
from experiments.cli.claims import print_outcome
from experiments.labs import load_labs
from experiments.memory_view import account_rows
from experiments.report.words import Words
from ledger.errors import InputError
from tests.experiments.claim_answers import batching_answers


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
        run_claim("C10", options={"variable": "dtype"}, compare=batching_answers())


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


def test_a_series_of_points_is_counted_and_not_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    points = [{"t_s": 0.5 * i, "itl_p50_s": 0.04} for i in range(44)]
    print_outcome({"id": "C22", "statement": "s", "verdict": "holds", "reason": "r",
                   "evidence": [{"part": "chunked", "itl_p99_s": 0.2855, "timeline": points}]},
                  Words("en"))  # fmt: skip
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == "  part chunked, itl p99 s 0.2855, timeline of 44 points (--json has them)"
