"""All claims in one run: what quick mode leaves out, which stored runs it takes, and that nothing finished is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.claims import get_claim, load_claims, run_all, runner
from experiments.claims.budget import ALWAYS, QUICK_S, SLACK, allowed_s, estimates, running, shortest_first
from experiments.claims.run_all import CANT_RUN, FAILED, NOT_IN_QUICK, ClaimsCancelled, run_claims
from experiments.claims.runner import in_steps
from experiments.claims.spec import ClaimsSpec
from experiments.cli import run as command
from experiments.kinds import kind_of
from experiments.loadgen import Cancelled
from experiments.simulator import run as simulator
from experiments.simulator.deployment import SimulateSpec, deployed
from experiments.store import DamagedRecord, Store
from experiments.store.identity import code_hash, environment
from ledger.errors import CannotRunError, InputError

MEASURED = ("C08", "C10", "C42", "C46")


class Clock:
    """Time that passes only where a row takes it."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


class Rows:
    """A stand-in for the checks: a row takes its seconds, asking 20 times whether to stop, and ends as it is told."""

    def __init__(self, clock: Clock, took: Mapping[str, float] | None = None, **outcome: Any) -> None:
        self.clock, self.took, self.outcome, self.ran = clock, took or {}, outcome, []

    def __call__(self, spec: dict[str, Any], on_live: Any, should_cancel: Callable[[], bool]) -> dict[str, Any]:
        name = spec["claim"]
        self.ran.append(name)
        took = self.took.get(name, running()[name].seconds)
        for part in range(20):
            self.clock.s += took / 20
            on_live({"fraction": part / 20})
            if should_cancel():
                raise Cancelled
        told = self.outcome.get(name, "holds")
        if isinstance(told, BaseException):
            raise told
        return {"id": name, "verdict": told, "reason": "so", "evidence": [], "took_s": took, "run_id": f"run-{name}"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def started(store: Store, **spec: Any) -> tuple[str, dict[str, Any]]:
    checked = ClaimsSpec.from_dict(spec).to_dict()
    return store.create_run("claims", checked), checked


def verdicts(result: Mapping[str, Any]) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in result["rows"]}


# -- the table of durations ------------------------------------------------------------------------------------------


def test_every_row_that_is_no_knowledge_has_its_time_and_no_other() -> None:
    assert set(running()) == {claim.id for claim in load_claims() if claim.kind != "knowledge"}
    assert len(running()) == 44 and all(row.seconds > 0 and row.steps >= 1 for row in running().values())
    assert QUICK_S < 15 * 60


def test_what_always_runs_is_first_and_the_rest_shortest_first() -> None:
    claims = [get_claim(name) for name in ("C10", "C45", "C42", "C07", "C19")]
    seconds = {"C10": 2400.0, "C45": 900.0, "C42": 300.0, "C07": 950.0, "C19": 60.0}
    assert [claim.id for claim in shortest_first(claims, seconds)] == ["C45", "C07", "C19", "C42", "C10"]


@pytest.mark.parametrize(
    ("seconds", "left", "can_stop", "expected"),
    [(100, 500, True, 200), (100, 150, True, 150), (100, 150, False, None), (5, 40, False, 30), (600, 500, True, None)],
)
def test_a_row_may_take_twice_what_is_expected_where_that_is_left(seconds, left, can_stop, expected) -> None:
    assert allowed_s(seconds, left, can_stop=can_stop) == expected


def test_what_a_row_took_on_this_machine_stands_for_the_table(store: Store) -> None:
    spec = kind_of("claim").check({"claim": "C08"})
    assert estimates({"C08": spec}, store) == {"C08": running()["C08"].seconds}
    mine, other = environment(spec), {**environment(spec), "cpu": "another"}
    for took, where, code in ((70.0, mine, "old code"), (9.0, other, code_hash())):
        run_id = store.create_run("claim", spec, environment=where, code=code)
        store.update_run(run_id, state="done", result={"took_s": took})
    assert estimates({"C08": spec}, store) == {"C08": 70.0}
    longer = kind_of("claim").check({"claim": "C08", "options": {"repeats": 9}})
    assert estimates({"C08": longer}, store) == {"C08": running()["C08"].seconds}


# -- quick mode ------------------------------------------------------------------------------------------------------


def test_quick_mode_ends_in_time_and_says_what_it_left_out(store: Store) -> None:
    clock = Clock()
    run_id, spec = started(store, quick=True)
    rows = Rows(clock)
    result = run_claims(spec, store, run_id, run_row=rows, now=clock)
    assert clock.s - 1000 <= QUICK_S and result["took_s"] <= QUICK_S
    assert [row["id"] for row in result["rows"]] == [claim.id for claim in load_claims()]
    found = verdicts(result)
    checkable = [claim for claim in load_claims() if claim.state == "checkable"]
    for claim in checkable:
        assert (found[claim.id] == "holds") == (claim.id in rows.ran), claim.id
        assert found[claim.id] in ("holds", NOT_IN_QUICK)
        assert claim.kind not in ALWAYS or found[claim.id] == "holds"
    assert found["C16"] == NOT_IN_QUICK and found["C19"] == "holds"
    left_out = next(row for row in result["rows"] if row["id"] == "C16")
    assert "4,300 s" in left_out["reason"] and "trilemma claims run C16" in left_out["reason"]
    assert left_out["evidence"] == [] and left_out["how"] is None
    assert result["counts"][NOT_IN_QUICK] == sum(verdict == NOT_IN_QUICK for verdict in found.values())


def test_a_row_that_takes_far_longer_than_expected_is_ended_and_the_next_ones_run(store: Store) -> None:
    clock = Clock()
    run_id, spec = started(store, quick=True, claims=["C08", "C27", "C42"])
    result = run_claims(spec, store, run_id, run_row=Rows(clock, {"C27": 5000.0}), now=clock)
    # C27 has 150 s expected and 300 allowed, C08 240 after it; C42's 300 s don't fit what is left of 840.
    assert verdicts(result) == {"C08": "holds", "C27": NOT_IN_QUICK, "C42": NOT_IN_QUICK}
    row = next(one for one in result["rows"] if one["id"] == "C27")
    assert row["allowed_s"] == SLACK * running()["C27"].seconds and "150 s were expected" in row["reason"]


def test_arithmetic_and_simulations_run_when_no_time_is_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.claims.spec.QUICK_S", 0.0)
    clock = Clock()
    run_id, spec = started(store, quick=True)
    rows = Rows(clock)
    run_claims(spec, store, run_id, run_row=rows, now=clock)
    assert set(rows.ran) == {claim.id for claim in load_claims() if claim.kind in ALWAYS}


def test_without_quick_every_row_runs_in_order(store: Store) -> None:
    clock = Clock()
    run_id, spec = started(store)
    rows = Rows(clock)
    run_claims(spec, store, run_id, run_row=rows, now=clock)
    assert rows.ran == [claim.id for claim in load_claims() if claim.state == "checkable"]


# -- stored runs -----------------------------------------------------------------------------------------------------


def kept(store: Store, **changed: Any) -> str:
    spec = kind_of("claim").check({"claim": "C08", "options": changed.pop("options", {})})
    own = {"code": code_hash(), "environment": environment(spec), **changed}
    run_id = store.create_run("claim", spec, **own)
    result = {"id": "C08", "verdict": "does not hold here", "reason": "stored", "evidence": [], "run_id": run_id}
    store.update_run(run_id, state="done", result=result)
    return run_id


def test_a_stored_run_of_the_same_code_and_machine_is_taken_with_its_date(store: Store) -> None:
    stored = kept(store)
    clock, (run_id, spec) = Clock(), started(store, quick=True, claims=["C08"])
    rows = Rows(clock)
    row = run_claims(spec, store, run_id, run_row=rows, now=clock)["rows"][0]
    assert rows.ran == [] and (row["verdict"], row["how"], row["run_id"]) == ("does not hold here", "stored", stored)
    assert row["ran_at"] == store.get_run(stored).updated_at
    run_id, spec = started(store, claims=["C08"])
    assert run_claims(spec, store, run_id, run_row=rows, now=clock)["rows"][0]["how"] == "ran", "quick mode alone does"


@pytest.mark.parametrize(
    "changed",
    [{"code": "other"}, {"environment": {"cpu": "other"}}, {"options": {"repeats": 2}},
     {"options": {"settings": {"threads": 1}}}],
)  # fmt: skip
def test_no_run_of_other_code_machine_or_options_is_taken(store: Store, changed: dict[str, Any]) -> None:
    kept(store, **changed)
    clock, (run_id, spec) = Clock(), started(store, quick=True, claims=["C08"])
    rows = Rows(clock)
    run_claims(spec, store, run_id, run_row=rows, now=clock)
    assert rows.ran == ["C08"]


def test_no_run_of_another_model_is_taken(store: Store, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    options = {"settings": {"model": str(model)}}
    kept(store, options=options)
    (model / "config.json").write_text('{"hidden_size": 64}')
    clock, (run_id, spec) = Clock(), started(store, quick=True, claims=["C08"], options=options)
    rows = Rows(clock)
    run_claims(spec, store, run_id, run_row=rows, now=clock)
    assert rows.ran == ["C08"]


# -- going on --------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_goes_on_after_its_last_finished_row(store: Store) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=list(MEASURED))
    rows = Rows(clock)
    with pytest.raises(ClaimsCancelled) as cancelled:
        run_claims(spec, store, run_id, should_cancel=lambda: len(rows.ran) == 3, run_row=rows, now=clock)
    assert rows.ran == ["C08", "C10", "C42"] and list(verdicts(cancelled.value.result or {})) == ["C08", "C10"]
    again = Rows(clock)
    result = run_claims(spec, store, run_id, run_row=again, now=clock)
    assert again.ran == ["C42", "C46"] and set(verdicts(result).values()) == {"holds"}
    assert [row["run_id"] for row in result["rows"]] == [f"run-{name}" for name in MEASURED]


def test_nothing_of_other_code_is_taken_up_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=["C08", "C10"])
    rows = Rows(clock, C10=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_claims(spec, store, run_id, run_row=rows, now=clock)
    monkeypatch.setattr(run_all, "code_hash", lambda: "newer")
    again = Rows(clock)
    run_claims(spec, store, run_id, run_row=again, now=clock)
    assert again.ran == ["C08", "C10"]


def test_the_time_of_an_earlier_start_counts_for_quick_mode(store: Store) -> None:
    clock, (run_id, spec) = Clock(), started(store, quick=True, claims=["C08", "C42", "C36"])
    rows = Rows(clock, {"C08": 450.0}, C36=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_claims(spec, store, run_id, run_row=rows, now=clock)
    result = run_claims(spec, store, run_id, run_row=Rows(clock), now=clock)
    assert verdicts(result) == {"C08": "holds", "C36": "holds", "C42": NOT_IN_QUICK}
    assert result["took_s"] == pytest.approx(750)


def test_a_row_whose_record_is_damaged_is_checked_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=["C08", "C10"])
    with pytest.raises(KeyboardInterrupt):
        run_claims(spec, store, run_id, run_row=Rows(clock, C10=KeyboardInterrupt()), now=clock)

    def damaged(*_: Any) -> dict[str, Any]:
        raise DamagedRecord("record: not to be read")

    monkeypatch.setattr(store, "record", damaged)
    again = Rows(clock)
    result = run_claims(spec, store, run_id, run_row=again, now=clock)
    assert again.ran == ["C08", "C10"] and set(verdicts(result).values()) == {"holds"}


def test_a_row_that_ends_the_process_twice_is_passed_over(store: Store) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=["C08", "C10"])
    for _ in range(2):
        with pytest.raises(SystemExit):
            run_claims(spec, store, run_id, run_row=Rows(clock, C08=SystemExit()), now=clock)
    result = run_claims(spec, store, run_id, run_row=Rows(clock), now=clock)
    assert verdicts(result) == {"C08": FAILED, "C10": "holds"} and "2 times" in result["rows"][0]["reason"]


def test_what_cannot_run_here_says_what_is_missing_and_offers_the_simulator(store: Store) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=["C06", "C24", "C42", "C46"])
    outcome = {"C24": CannotRunError("no second process can be started"), "C06": MemoryError(), "C42": KeyError("p50")}
    result = run_claims(spec, store, run_id, run_row=Rows(clock, **outcome), now=clock)
    assert verdicts(result) == {"C06": CANT_RUN, "C24": CANT_RUN, "C42": FAILED, "C46": "holds"}
    memory, ranks, fault, _ = result["rows"]
    assert ranks["reason"] == "no second process can be started"
    assert ranks["simulate"]["command"].startswith("trilemma simulate ") and "--tp 2" in ranks["simulate"]["command"]
    assert ranks["simulate"]["provenance"] == "simulated"
    assert memory["simulate"] is None, "quality can't be simulated"
    assert "KeyError" in fault["reason"]


def test_every_offered_simulation_can_be_deployed_and_one_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = {name: row.simulate.split() for name, row in running().items() if row.simulate}
    assert len(offered) > 20 and "C06" not in offered
    assert command(["simulate", *offered["C24"], "--requests", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == "simulated"
    made = []

    def deploy(spec: Mapping[str, Any]) -> dict[str, Any]:
        made.append(deployed(SimulateSpec.from_dict(spec)))
        return {"warnings": []}

    monkeypatch.setattr(simulator, "simulate", deploy)
    for name, words in offered.items():
        assert command(["simulate", *words, "--json"]) == 0, name
    assert len(made) == len(offered)


# -- knowledge, progress, the spec, the command ----------------------------------------------------------------------


def test_rows_of_knowledge_name_their_lab_or_what_they_wait_for(store: Store) -> None:
    clock, (run_id, spec) = Clock(), started(store, claims=["C28", "C41", "C45"])
    result = run_claims(spec, store, run_id, run_row=Rows(clock), now=clock)
    for row in result["rows"][:2]:
        lab = get_claim(row["id"]).lab
        expected = ("lab", f"trilemma lab show {lab}") if lab else ("open", "it needs")
        assert row["verdict"] == expected[0] and expected[1] in row["reason"]


def test_progress_is_that_of_all_rows_with_the_step_of_the_one_at_work(store: Store) -> None:
    clock, seen = Clock(), []
    run_id, spec = started(store, claims=["C08", "C42"])
    run_claims(spec, store, run_id, seen.append, run_row=Rows(clock), now=clock)
    fractions = [live["fraction"] for live in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert [live["claim"] for live in seen[::21]] == ["C08", "C42", None]
    assert seen[21]["repeat"] == 2 and seen[21]["repeats"] == 2
    assert seen[21]["eta_s"] == pytest.approx(running()["C42"].seconds)


def test_experiments_of_a_check_are_its_steps() -> None:
    seen: list[dict[str, Any]] = []
    tell = in_steps("C10", seen.append)
    for fraction in (0.0, 0.5, 1.0, 0.0, 1.0, 0.1):
        tell({"fraction": fraction})
    assert [live["experiment"] for live in seen] == [1, 1, 1, 2, 2, 3] and seen[0]["experiments"] == 3
    assert [round(live["fraction"], 2) for live in seen] == [0.0, 0.17, 0.33, 0.33, 0.67, 0.7]


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"quick": "yes"}, "quick"), ({"claims": ["C99"]}, "claim"), ({"claims": "C10"}, "claims"),
     ({"options": {"workload": "chat"}}, "option"), ({"fast": True}, "claims")],
)  # fmt: skip
def test_wrong_specs_are_refused_by_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        ClaimsSpec.from_dict(spec)
    assert error.value.field == field


def test_the_spec_round_trips_and_says_what_it_is() -> None:
    spec = kind_of("claims").check({"quick": True, "options": {"repeats": "2"}})
    assert ClaimsSpec.from_dict(spec).to_dict() == spec and len(spec["claims"]) == 50
    assert kind_of("claims").says(spec) == "50 claims quick" and kind_of("claims").resumable
    assert ClaimsSpec.from_dict({"claims": ["c10", "C08"]}).claims == ("C08", "C10")


def test_the_real_checks_by_formula_and_simulation_follow_through_a_worker(store: Store) -> None:
    run_id = jobs.start("claims", {"claims": ["C04", "C34", "C45"]}, store)
    run = jobs.wait(run_id, store)
    assert run.state == "done", run.error
    rows = (run.result or {})["rows"]
    assert [row["verdict"] for row in rows] == [runner.run_claim(row["id"])["verdict"] for row in rows]
    assert all(item["provenance"] in ("computed", "assumed") for row in rows for item in row["evidence"])
    assert {store.get_run(row["run_id"]).kind for row in rows} == {"claim"}


@pytest.mark.parametrize(
    "words",
    [["--quick"], ["--repeats", "2"], ["--resume", "x", "--all"], ["--all", "run", "C04"],
     ["--all", "--set", "speed=2"], ["--resume", "nobody"]],
)  # fmt: skip
def test_the_command_refuses_in_one_line(words: list[str], capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    assert command(["claims", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_command_prints_a_line_a_row(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))

    def start(kind: str, spec: dict[str, Any], store: Store, *, followed: bool) -> str:
        clock = Clock()
        run_id = store.create_run(kind, kind_of(kind).check(spec))
        rows = Rows(clock, C24=CannotRunError("no second process"), C42="undecided")
        store.update_run(run_id, state="done", result=run_claims(spec, store, run_id, run_row=rows, now=clock))
        return run_id

    monkeypatch.setattr(jobs, "start", start)
    assert command(["claims", "--all", "--quick"]) == 0
    told = capsys.readouterr().out
    assert "C24 can't run here: no second process" in told and "simulated instead: trilemma simulate" in told
    assert "C16 not decided in quick mode: " in told and "1 can't run here" in told
    assert command(["claims", "--all", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quick"] is True
