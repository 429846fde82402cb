"""What a stored run was about, in the words of the page, where runs of several kinds stand in one list."""

from __future__ import annotations

from app.state import language, t, workload_name
from experiments.kinds import kind_of
from experiments.report.words import Words
from experiments.store import Run


def run_words(run: Run) -> str:
    """A comparison's variable, values and workload; of other kinds the kind and what the spec asks for."""
    spec = run.spec
    if run.kind == "compare":
        values = " → ".join(str(value) for value in spec["values"])
        vary = t("runs.vary", variable=t(f"var.{spec['variable']}"), values=values)
        return f"{vary} · {workload_name(spec['workload'])}"
    if run.kind == "jitter":
        arms = t("list_join").join(arm_name(name) for name, _ in spec["arms"])
        return f"{kind_words(run.kind)} · {arms} · {workload_name(spec['workload'])}"
    return f"{kind_words(run.kind)} · {kind_of(run.kind).says(spec)}"


def arm_name(name: str) -> str:
    """An arm of a jitter run: one of the default experiment in the reader's language, another as it is called."""
    from experiments.report.jitter import arm_name as named  # with all that reports are made of, which a list is not

    return named(name, Words(language()))


def kind_words(name: str) -> str:
    """A kind of run."""
    return t(f"runs.kind_{name}")
