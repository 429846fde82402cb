"""C31 and C43 from made-up ladders: the verdict follows what the ladder says, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.claims import run_claim
from experiments.claims.budget import seconds_of
from experiments.claims.climbing import spec_of
from experiments.kinds import KINDS
from experiments.playbook.roi import order_of, return_rows
from experiments.store import Store
from tests.experiments.playbook.test_ladder_parts import curve, step_row

BETTER = {"code": "better", "curves": []}


def row(name: str, outcome: str, change: float = 10.0, **more: Any) -> dict[str, Any]:
    made = step_row(name, outcome, change, **more)
    made["comparison"] |= {"repeats": 3}
    return {**made, "changes": {}, "because": {}, "reasons": [], "quality": None, "simulate": None, "moves": []}


def ladder(*rows: dict[str, Any], overall: Any = "adopted", undone: Any = ()) -> dict[str, Any]:
    aim = "output_tokens_per_s"
    returns = return_rows(rows, aim)
    reasons = {"adopted": [BETTER], "rolled back": [{"code": "worse", "curves": []}], "undecided": [
        {"code": "open", "curves": [], "repeats": 9, "made": 3}]}  # fmt: skip
    whole = None if overall is None else {
        "outcome": overall, "reasons": reasons[overall], "quality": None,
        "comparison": {"curves": [{**curve(aim, "better", 60), "provenance": "measured"}]}}  # fmt: skip
    return {"steps": list(rows), "overall": whole, "undone": list(undone), "aim": aim, "returns": returns,
            "order": order_of(returns), "run_id": "r1"}  # fmt: skip


ADOPTED = [row("continuous-paged", "adopted", 60), row("kv-int8", "adopted", 30), row("w8a8", "rolled back", -4)]


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (ladder(*ADOPTED), "holds"),
        (ladder(*ADOPTED, undone=["w8a8"]), "holds with a limit"),
        (ladder(*ADOPTED, overall="rolled back"), "does not hold here"),
        (ladder(*ADOPTED, overall="undecided"), "undecided"),
        (ladder(row("w8a8", "rolled back"), overall=None), "does not hold here"),
        (ladder(row("w8a8", "undecided"), overall=None), "undecided"),
        (ladder({**row("pd", "can't run here"), "comparison": None}, overall=None), "undecided"),
    ],
)
def test_c31_follows_the_ladder(result: dict[str, Any], verdict: str) -> None:
    found = run_claim("C31", ladder=lambda spec: result)
    assert found["verdict"] == verdict and found["reason"]
    assert re.search(r"[\u4e00-\u9fff]", found["reason_zh"]) and found["reason_zh"] != found["reason"]
    assert all(one["run_id"] == "r1" for one in found["evidence"])


def test_c31_names_what_the_curves_did_not_allow() -> None:
    found = run_claim("C31", ladder=lambda spec: ladder(*ADOPTED))
    assert "The curves did not allow" in found["reason"] and "曲线不允许采用" in found["reason_zh"]
    assert "W8A8" in found["reason"] and "W8A8" in found["reason_zh"]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"continuous-paged": 90, "kv-int8": 50, "w8a8": 30, "speculation": 20, "pd": 10}, "holds"),
        ({"continuous-paged": 90, "kv-int8": 50, "w8a8": 30}, "holds with a limit"),
        ({"continuous-paged": 20, "kv-int8": 50}, "does not hold here"),
        ({"continuous-paged": 41, "kv-int8": 40}, "undecided"),
        ({"continuous-paged": 41}, "undecided"),
    ],
)
def test_c43_follows_the_measured_return(changes: dict[str, float], verdict: str) -> None:
    result = ladder(*(row(name, "adopted", change) for name, change in changes.items()))
    found = run_claim("C43", ladder=lambda spec: result)
    assert found["verdict"] == verdict
    assert len(found["evidence"]) == len(changes)


def test_c43_does_not_hold_in_full_where_later_steps_return_alike() -> None:
    rows = [row("continuous-paged", "adopted", 60),
            *(row(name, "rolled back", -4) for name in ("kv-int8", "w8a8", "speculation", "pd"))]  # fmt: skip
    found = run_claim("C43", ladder=lambda spec: ladder(*rows))
    assert found["verdict"] == "holds with a limit" and "told apart" in found["reason"]


def test_c43_judges_the_finished_ladder_of_c31_with_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    kind = dataclasses.replace(KINDS["ladder"], run=lambda run, *_: ran.append(run.id) or ladder(*ADOPTED))
    monkeypatch.setitem(KINDS, "ladder", kind)
    store = Store(tmp_path / "runs.sqlite3")
    climbed = run_claim("C31", store=store)
    found = run_claim("C43", store=store)
    assert len(ran) == 1 and climbed["evidence"] and found["verdict"] == "holds with a limit"
    assert found["ran_at"] == store.get_run(ran[0]).updated_at
    day = found["ran_at"][:10]
    assert day in found["reason"] and day in found["reason_zh"]
    assert seconds_of({"took_s": 1.5, **found}) is None, "what reading took is not what climbing takes"
    run_claim("C43", store=store, options={"repeats": 2})
    run_claim("C31", store=store)
    assert len(ran) == 3, "another spec is another ladder, and C31 always climbs"


def test_both_ask_for_a_valid_ladder_and_the_user_may_change_its_load() -> None:
    spec = spec_of({"num_requests": 4, "repeats": 2, "settings": {"kv_memory_mib": 64}})
    checked = KINDS["ladder"].check(spec)
    assert checked["settings"]["kv_memory_mib"] == 64 and checked["num_requests"] == 4 and checked["repeats"] == 2
    assert KINDS["ladder"].check(checked) == checked
