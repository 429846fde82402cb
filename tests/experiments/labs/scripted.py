"""Results of a lab's experiment without its minutes: the real code of its kind of run on an engine without a model.

A kind that needs a model has a recorded result of the same shape in recorded/ID.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from experiments import calibrate, jobs
from experiments.bench import run_bench
from experiments.caching.run import run_cache
from experiments.claims import bounds
from experiments.compare import run_comparison
from experiments.factorial import run_factorial
from experiments.jitter.run import run_jitter
from experiments.labs import Lab, LabSession, Progress
from experiments.labs.grade import right_answer
from experiments.labs.lab import Question
from experiments.step_probe import Probe
from experiments.store import Store
from experiments.sweep.run import run_sweep
from ledger.model_spec import load_model_spec
from tests.core_engine.vectors import FlatIndex, WordEncoder
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.test_calibrate import result as calibration

RECORDED = Path(__file__).with_name("recorded")
WITHOUT_A_MODEL: dict[str, Callable[..., dict[str, Any]]] = {
    "bench": run_bench, "compare": run_comparison, "factorial": run_factorial, "jitter": run_jitter, "sweep": run_sweep,
}  # fmt: skip


def _claim(spec: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    """C02 with steps of 2 s, 30 ms and 200 ms on a machine of 100 GFLOP/s and 30 GB/s."""
    assert spec["claim"] == "C02", f"no scripted result of {spec['claim']}"
    found = ({"median": s, "low": s, "high": s, "repeats": 5} for s in (2.0, 0.03, 0.2))
    probe = Probe(load_model_spec("smollm2-135m"), "fp32", "cpu", 2, tuple(found))
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRILEMMA_HOME", home)
        calibrate.store(calibration())
        return bounds.check({}, lambda *_: probe)


def _cache(spec: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    """Pairs judged by an encoder that counts words."""
    return run_cache(spec, None, "0badcafe", encoder=WordEncoder(), make_index=FlatIndex)


WITHOUT_A_MODEL |= {"claim": _claim, "cache": _cache}


@cache
def scripted_result(lab: str, kind: str, spec: str) -> dict[str, Any]:
    """The result of a lab's experiment; `spec` is its JSON."""
    recorded = RECORDED / f"{lab}.json"
    if recorded.is_file():
        return dict(json.loads(recorded.read_text("utf-8")))
    result = WITHOUT_A_MODEL[kind](json.loads(spec), None, "0badcafe", rig=FakeRig(VirtualClock()))
    return dict(json.loads(json.dumps(result)))


@pytest.fixture
def scripted_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is done when it is started: its spec is checked as ever, its result is the scripted one."""

    def start(kind: str, spec: Any, store: Store, **_: Any) -> str:
        checked = jobs.checked_spec(kind, spec)
        run_id = store.create_run(kind, checked)
        lab = next(one for one in _known if one.experiment.spec == spec)
        store.update_run(run_id, state="done", result=scripted_result(lab.id, kind, json.dumps(checked)))
        return run_id

    monkeypatch.setattr(jobs, "start", start)


_known: list[Lab] = []


def session_of(lab: Lab, home: Path) -> LabSession:
    """A learner's session in a home of its own."""
    if all(known is not lab for known in _known):
        _known.append(lab)
    return LabSession(lab, Progress(home=home), Store(home / "runs.sqlite3"))


def measured(lab: Lab, home: Path, prediction: str | None = None) -> LabSession:
    """The session after prediction and experiment."""
    session = session_of(lab, home)
    session.predict(prediction or lab.prediction.choices[0] if lab.prediction.choices else prediction or "1")
    session.start()
    assert session.collect()
    return session


def right_text(session: LabSession, question: Question) -> str:
    """What a learner who knows types."""
    right = right_answer(question, session.figures)
    assert right is not None, f"{session.lab.id}: {question.id} can't be told from the run"
    if isinstance(right, tuple):
        return ",".join(right)
    return f"{right:.12g} {question.unit}".strip()


def wrong_text(session: LabSession, question: Question) -> str:
    """What a learner who does not know types: no usual mistake, no near miss, only distractors."""
    right = right_answer(question, session.figures)
    if question.kind == "order":
        assert isinstance(right, tuple)
        return ",".join(reversed(right))
    if isinstance(right, tuple):
        wrong = [choice for choice in question.choices if choice not in right]
        return ",".join(wrong if question.kind == "many" else wrong[:1])
    assert right is not None
    return f"{abs(right) * 3.7 + 11:.12g} {question.unit}".strip()
