"""A run of forms of draft on the fake engine, whose passes take 10 ms and 1 ms a token: all can be worked out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_engine.speculation.proposer import NO_DRAFT
from experiments.loadgen import Cancelled
from experiments.speculation import parts as module
from experiments.speculation.figures import OFF, plain_row, rows_of
from experiments.speculation.parts import arm_names
from experiments.speculation.run import run_speculation
from experiments.speculation.spec import SpeculationSpec
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import FakeRig, VirtualClock

PLAIN_S, TOKEN_S, K = 0.011, 0.001, 4
V = (0.010 + (K + 1) * TOKEN_S) / PLAIN_S
SMALL: dict[str, Any] = {"tasks": ["chat"], "forms": ["ngram"], "prompts": 2, "max_tokens": 64, "repeats": 2}


def measured(store: Store | None = None, run_id: str = "", rig: FakeRig | None = None, **spec: Any) -> dict[str, Any]:
    clock = VirtualClock() if rig is None else rig.clock
    return run_speculation(
        SpeculationSpec.from_dict({**SMALL, "batches": [], "constructed": False, **spec}), store, run_id,
        rig=rig or FakeRig(clock), spend=clock.sleep,
    )  # fmt: skip


def row(result: dict[str, Any], form: str) -> dict[str, Any]:
    return next(one for one in result["rows"] if one["form"] == form)


def test_a_look_up_on_answers_that_repeat_themselves() -> None:
    task = measured()["tasks"][0]
    found = row(task, "ngram")
    assert task["plain"]["pass_s"] == pytest.approx(PLAIN_S) and task["plain"]["prompts"] == 2
    assert found["identical"] == found["prompts"] == 2
    assert found["alpha"] == 1.0 and found["v"] == pytest.approx(V) and found["c"] == pytest.approx(0, abs=1e-6)
    assert 0 < found["drafted_share"] < 1  # the first 26 tokens of an answer have nothing like them before
    assert found["speedup"] == pytest.approx(found["predicted"]["speedup"], rel=0.05)
    assert found["verdict"] == "better" and found["advice"]["verdict"] == "pays"
    assert found["provenance"] == "measured" and found["predicted"]["provenance"] == "computed"


def test_constructed_drafts_follow_the_curve_and_the_poor_one_is_slower() -> None:
    part = measured(constructed=True, max_tokens=128, tasks=[])["constructed"]
    for one in part["rows"]:
        made = part["made"][one["form"]]
        assert one["alpha"] == pytest.approx(made["alpha"], abs=0.1)
        assert one["c"] == pytest.approx(made["c"], abs=0.002)
        assert one["v"] == pytest.approx((0.010 + (made["k"] + 1) * TOKEN_S) / PLAIN_S)
        assert one["speedup"] == pytest.approx(one["predicted"]["speedup"], rel=0.03)
        assert one["identical"] == one["prompts"] == 4
    perfect, poor = row(part, "constructed a=1 k=4 c=0"), row(part, "constructed a=0.3 k=4 c=0.169")
    assert perfect["tokens_per_pass"] == pytest.approx(K + 1, rel=0.03) and perfect["verdict"] == "better"
    assert poor["speedup"] < 0.85 and poor["verdict"] == "worse"
    assert poor["advice"]["verdict"] == "refuses" and poor["acceptance_rate"] < poor["alpha"]


def test_a_batch_in_which_verifying_costs_what_it_yields_loses_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    by_token = FakeRig(VirtualClock(), speed=lambda _: {"base_s": 0.010, "token_s": 0.003})
    monkeypatch.setattr(module, "constructed_drafts", lambda k: ())  # batches alone
    found = measured(rig=by_token, tasks=[], forms=[], batches=[1, 8], constructed=True)["batches"]
    one, eight = (row(part, "constructed a=0.8 k=4 c=0") for part in found)
    assert [part["batch"] for part in found] == [1, 8]
    assert eight["v"] > 1.5 * one["v"]
    assert one["speedup"] > 1 > eight["speedup"] and eight["prompts"] == 8
    assert one["advice"]["verdict"] == "pays" and eight["advice"]["verdict"] == "refuses"


def test_a_form_that_can_not_run_is_a_row_with_the_reason() -> None:
    class WithoutDrafts(FakeRig):
        def engine(self, config: Any, proposer: Any = None) -> Any:
            if config.speculation != OFF:
                raise CannotRunError("draft_model: no draft was trained for this model")
            return super().engine(config, proposer)

    result = measured(rig=WithoutDrafts(VirtualClock()))
    assert result["unavailable"] == [{"form": "ngram", "reason": "draft_model: no draft was trained for this model"}]
    assert result["tasks"][0]["rows"] == [] and result["tasks"][0]["plain"]["tokens_per_s"] > 0


def test_a_stopped_run_goes_on_after_its_last_block(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("speculation", {})
    whole = measured()
    rig, looks = FakeRig(VirtualClock()), iter([False] * 400)
    spec = SpeculationSpec.from_dict({**SMALL, "batches": [], "constructed": False})
    with pytest.raises(Cancelled):
        run_speculation(spec, store, run_id, should_cancel=lambda: next(looks, True), rig=rig, spend=rig.clock.sleep)
    done = store.record_keys(run_id)
    assert done == [(0, 1)]
    rig = FakeRig(VirtualClock())
    resumed = measured(store, run_id, rig)
    assert store.record_keys(run_id) == [(0, 1), (0, 2)]
    assert sum(config.speculation == "ngram" for config in rig.made) == 3  # tried, warmed up, and one block
    assert row(resumed["tasks"][0], "ngram")["alpha"] == row(whole["tasks"][0], "ngram")["alpha"]


def test_the_live_object_names_what_is_measured() -> None:
    seen: list[dict[str, Any]] = []
    clock = VirtualClock()
    spec = SpeculationSpec.from_dict({**SMALL, "batches": [2], "constructed": False})
    run_speculation(spec, None, "", seen.append, rig=FakeRig(clock), spend=clock.sleep)
    names = arm_names(spec)
    assert names == ["chat: off", "chat: ngram", "2: off", "2: ngram"]
    assert seen[-1]["phase"] == "done" and seen[-1]["fraction"] == 1.0
    assert all(0 <= one["arm"] < len(names) and 0 <= one["fraction"] <= 1 for one in seen)


def test_without_any_draft_the_rule_is_silent() -> None:
    class Mute:
        needs_hidden = False

        def propose(self, asks: Any) -> Any:
            return [NO_DRAFT for _ in asks]

        def release(self, request_id: str) -> None: ...

        def weights_bytes(self) -> int:
            return 0

        def cache_bytes(self) -> int:
            return 0

    class MuteRig(FakeRig):
        def engine(self, config: Any, proposer: Any = None) -> Any:
            return super().engine(config, Mute() if config.speculation != OFF else proposer)

    found = row(measured(rig=MuteRig(VirtualClock()))["tasks"][0], "ngram")
    assert found["alpha"] is None and found["v"] is None and found["predicted"]["speedup"] is None
    assert found["advice"]["verdict"] == "unknown" and found["speedup"] == pytest.approx(1)


def test_answers_that_differ_are_counted() -> None:
    one = {"k": 4, "tokens": 10, "seconds": 1.0, "drafting_s": 0.0, "passes": 10, "passes_drafted": 5, "plain_s": 0.1,
           "drafted_s": 0.1, "draft_s": 0.0, "tested": [5], "accepted": [5], "drafted": 5, "emitted": 10, "rows": 10,
           "answers": [[1, 2], [3, 4]], "held": {}}  # fmt: skip
    other = {**one, "answers": [[1, 2], [3, 5]]}
    assert rows_of([{OFF: one, "ngram": other}], ["ngram"])[0]["identical"] == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"settings": {"speculation": "ngram"}}, "speculation"),
        ({"forms": ["guessing"]}, "--forms"),
        ({"tasks": ["poetry"]}, "--tasks"),
        ({"tasks": [], "batches": [], "constructed": False}, "--tasks"),
        ({"batches": [0]}, "--batches"),
        ({"repeats": 99}, "--repeats"),
        ({"num_draft_tokens": 0}, "num_draft_tokens"),
        ({"predictions": {"ngram": {"alpha": 2}}}, "alpha"),
        ({"other": 1}, "spec"),
    ],
)
def test_a_wrong_spec_names_the_field(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SpeculationSpec.from_dict(wrong)


def test_a_spec_is_the_same_after_the_store(tmp_path: Path) -> None:
    spec = SpeculationSpec.from_dict({**SMALL, "settings": {"dtype": "fp32"}, "predictions": {"ngram": {"alpha": 0.5}}})
    store = Store(tmp_path / "runs.sqlite3")
    again = SpeculationSpec.from_dict(store.get_run(store.create_run("speculation", spec.to_dict())).spec)
    assert again == spec and again.predictions == {"ngram": {"alpha": 0.5, "speedup": None}}


def test_every_planned_part_is_named_apart() -> None:
    names = arm_names(SpeculationSpec())
    assert len(names) == len(set(names)) and module.TASKS[0] in names[0]


def test_a_rate_that_nothing_was_measured_for_is_missing_and_not_zero() -> None:
    """The first of many answers can end before the last begins: then no pass has them all."""
    nothing = {"tokens": 0, "seconds": 0.0, "plain_s": None, "answers": [[1]]}
    assert plain_row([{OFF: nothing}])["tokens_per_s"] is None
    assert plain_row([{OFF: nothing}, {OFF: nothing | {"tokens": 6, "seconds": 2.0}}])["tokens_per_s"] == 3.0
