"""One run of all forms of draft: parts, repeats in turns, what is kept after each, and the result.

A part is a task, the constructed drafts, or a batch size. A block is one repeat of a part: plain decoding and every
form on the same prompts, one after another, the order turned round from repeat to repeat (A B C, C B A), so that a slow
drift of the machine falls on all alike. A block is a record of the run when it is done; a resumed run takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_engine.environment import cpu_name
from core_engine.speculation.load_draft import training_of
from experiments.live import LiveReport
from experiments.loadgen import Cancelled
from experiments.rig import Rig, busy_warning, machine
from experiments.speculation.constructed import ConstructedProposer, busy_wait
from experiments.speculation.drive import Passes, drive, name_of
from experiments.speculation.figures import OFF, Block, plain_row, rows_of
from experiments.speculation.parts import (
    ALPHAS,
    LENGTHS_ALPHA,
    POOR,
    Made,
    Part,
    arm_names,
    parts_of,
    planned,
)
from experiments.speculation.spec import SpeculationSpec
from experiments.speculation.tasks import prompt_ids
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from ledger.speculation import best_length, cost_at

WARM_UP_TOKENS = 8


def run_speculation(
    spec: SpeculationSpec | Mapping[str, Any],
    store: Store | None,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
    spend: Callable[[float], None] = busy_wait,
) -> dict[str, Any]:
    """Measure what a spec asks and return its JSON; every block is kept in `store` (None: nowhere) when it is done.

    A run that was stopped goes on after its last block. Raises Cancelled when the user asked to stop, InputError and
    CannotRunError as the engine does; a form that can't run here is a row with the reason. spend: how a constructed
    draft uses up its time.
    """
    checked = spec if isinstance(spec, SpeculationSpec) else SpeculationSpec.from_dict(spec)
    return _Run(checked, store, run_id, on_live, should_cancel, rig or Rig(), spend).run()


class _Run:
    def __init__(
        self,
        spec: SpeculationSpec,
        store: Store | None,
        run_id: str,
        on_live: Callable[[dict[str, Any]], None],
        should_cancel: Callable[[], bool],
        rig: Rig,
        spend: Callable[[float], None],
    ) -> None:
        self.spec, self.store, self.run_id = spec, store, run_id
        self.on_live, self.should_cancel, self.rig, self.spend = on_live, should_cancel, rig, spend
        self.around = machine()
        self.unavailable: list[dict[str, str]] = []
        self.training: dict[str, dict[str, Any] | None] = {}
        self.vocab_size = 0
        self.environment: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        names = arm_names(self.spec)
        kept = self._kept()
        live = LiveReport(
            self.on_live,
            arms=len(names),
            repeats=self.spec.repeats,
            extra_units=-_units(kept, len(names) * self.spec.repeats),
        )
        live.phase("loading")
        tokenizer = self.rig.tokenizer(self.spec.config())
        forms = self._available()
        parts = parts_of(self.spec, forms, lambda task, limit: prompt_ids(tokenizer, task, limit))
        self._warm_up(parts, live)
        first = {part: names.index(f"{part}: {OFF}") for part, _ in planned(self.spec)}
        blocks: dict[str, list[Block]] = {part.name: [] for part in parts}
        for repeat in range(1, self.spec.repeats + 1):
            for place, part in enumerate(parts):
                block = kept.get((place, repeat))
                if block is None or set(block) != {OFF, *part.labels}:
                    block = self._block(part, repeat, live, first[part.name])
                    self._keep(place, repeat, block)
                blocks[part.name].append(block)
        live.phase("done")
        return self._result(parts, blocks)

    def _check(self) -> None:
        if self.should_cancel():
            raise Cancelled

    def _available(self) -> list[str]:
        """Forms that an engine can be made for; the others are told with the reason."""
        found = []
        for form in self.spec.forms:
            self._check()
            try:
                self.rig.engine(self.spec.config(form))
                self.training[form] = training_of(self.spec.config(form))
                found.append(form)
            except (InputError, CannotRunError) as error:
                self.unavailable.append({"form": form, "reason": str(error)})
        return found

    def _warm_up(self, parts: Sequence[Part], live: LiveReport) -> None:
        """A few tokens with every form; nothing of it is counted."""
        live.phase("warmup")
        first = parts[0]
        for form in (OFF, *first.forms):
            engine = self.rig.engine(self.spec.config(form, first.batch))
            drive(engine, first.prompts[:1], 1, WARM_UP_TOKENS, self._check)
            self.vocab_size, self.environment = engine.loaded.spec.vocab_size, engine.environment

    # -- blocks --------------------------------------------------------------------------------------------------

    def _block(self, part: Part, repeat: int, live: LiveReport, first: int) -> dict[str, Any]:
        """One repeat of a part. Plain decoding comes first or last; constructed drafts need its answers, so first."""
        arms, drafted = [OFF, *part.labels], part.labels if repeat % 2 else part.labels[::-1]
        turned = [OFF, *drafted] if part.made or repeat % 2 else [*drafted, OFF]
        made = {one.label: one for one in part.made}
        found: dict[str, Any] = {}
        for label in turned:
            self._check()
            live.begin_run(first + arms.index(label), repeat)
            passes = self._made(part, made[label], found[OFF], repeat) if label in made else self._form(part, label)
            found[label] = passes.to_json()
            live.end_run(passes.tokens / passes.seconds if passes.seconds else None)
        return found

    def _form(self, part: Part, form: str) -> Passes:
        return self._drive(self.rig.engine(self.spec.config(form, part.batch)), part)

    def _made(self, part: Part, made: Made, plain: Mapping[str, Any], repeat: int) -> Passes:
        answers = {
            name_of(place): [*prompt, *answer]
            for place, (prompt, answer) in enumerate(zip(part.prompts, plain["answers"], strict=True))
        }
        proposer = ConstructedProposer(
            answers,
            made.alpha,
            made.c * (plain["plain_s"] or 0.0),
            vocab_size=self.vocab_size,
            seed=self.spec.seed + repeat,  # other mistakes every time, so that repeats add up to the acceptance
            spend=self.spend,
        )
        return self._drive(self.rig.engine(self.spec.config(batch=part.batch, k=made.k), proposer), part)

    def _drive(self, engine: Any, part: Part) -> Passes:
        return drive(engine, part.prompts, part.batch, self.spec.max_tokens, self._check)

    def _kept(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Blocks of an earlier start of this run, by the part's place and the repeat."""
        if self.store is None:
            return {}
        return {(record.arm, record.repeat): record.record["arms"] for record in self.store.records(self.run_id)}

    def _keep(self, place: int, repeat: int, block: Mapping[str, Any]) -> None:
        if self.store is not None:
            self.store.add_record(self.run_id, place, repeat, {"arms": block})

    # -- result --------------------------------------------------------------------------------------------------

    def _result(self, parts: Sequence[Part], blocks: Mapping[str, Sequence[Block]]) -> dict[str, Any]:
        tables = {
            part.name: {
                "plain": plain_row(blocks[part.name]),
                "rows": [
                    {**row, "training": self.training.get(row["form"])}
                    for row in rows_of(blocks[part.name], part.labels)
                ],
                "made": {one.label: {"alpha": one.alpha, "k": one.k, "c": one.c} for one in part.made},
            }
            for part in parts
        }
        by_kind: dict[str, list[dict[str, Any]]] = {
            kind: [{"name": part.name, **tables[part.name]} for part in parts if part.kind == kind]
            for kind in ("task", "constructed", "batch")
        }
        warning = busy_warning(self.around)
        config = self.spec.config()
        return {
            "num_draft_tokens": self.spec.num_draft_tokens,
            "repeats": self.spec.repeats,
            "tasks": by_kind["task"],
            "constructed": next(iter(by_kind["constructed"]), None),
            "lengths": self._lengths(by_kind),
            "batches": [{**one, "batch": int(str(one["name"]))} for one in by_kind["batch"]],
            "unavailable": self.unavailable,
            "settings": config.settings(),
            "run_id": self.run_id,
            "environment": {"cpu": cpu_name(), **self.around, **self.environment},
            "warnings": [warning] if warning else [],
            "provenance": "measured",
        }

    def _lengths(self, by_kind: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
        """v by length as measured with constructed drafts, and what the poor draft may cost at the one asked for."""
        if not by_kind["constructed"]:
            return None
        part = by_kind["constructed"][0]
        v_by_k = {
            row["k"]: row["v"]
            for row in part["rows"]
            if part["made"][row["form"]]["alpha"] == LENGTHS_ALPHA and row["v"] is not None
        }
        k = self.spec.num_draft_tokens
        slower = None if k not in v_by_k else cost_at(0.85, POOR, k, v_by_k[k])
        best = [
            {"alpha": alpha, "k": found[0], "speedup": found[1], "provenance": "computed"}
            for alpha in ALPHAS
            if v_by_k and (found := best_length(alpha, v_by_k, 0.0))
        ]
        return {
            "v_by_k": [{"k": k, "v": v, "provenance": "measured"} for k, v in sorted(v_by_k.items())],
            "best": best,
            "poor_c_for_15_pct": slower,
        }


def _units(kept: Mapping[tuple[int, int], Mapping[str, Any]], planned: int) -> int:
    """Arms that need not run again; something is always left to report."""
    return min(planned - 1, sum(len(block) for block in kept.values()))
