"""Quality of candidates against a baseline on items and texts: the one entry for jobs, claims and the command line.

evaluate([{"weights": "w8a8"}], {}, default_items(), default_texts())

Owns the order of the work and the result's shape. Scores, statistics and verdicts are others'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_engine.config import EngineConfig
from core_engine.environment import cpu_name
from experiments.quality.arms import SPEED_CHARACTERS, Arm, Progress, sizes
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.quality.kept import InMemory, Kept
from experiments.quality.overlooked import Overlooked, find_overlooked
from experiments.quality.slices import BaselineRow, SliceRow, baseline_rows, judge_slices, row_json
from experiments.quality.spec import NOTHING, EvalSpec, items_hash, scoring_config
from experiments.quality.speed import Pairs, baseline_speed, measure_speed
from experiments.quality.texts import WINDOW_TOKENS, Text, WindowScores, default_texts, load_text, text_row
from experiments.rig import Rig, busy_warning, machine
from experiments.store import Store

ALL_TEXTS = "all texts"
OTHER_TOKENS = "the tokenizers differ: figures a token can't be compared"


@dataclass(frozen=True)
class Evaluation:
    """What was found. rows: a row a candidate and slice; text_rows: by candidate, a row a text, then of all.

    text_reason: why a candidate's texts were not compared. Scores are aligned with `items`. held and speed: bytes and
    timed steps by candidate, "" for the baseline (see held.py and speed.py); speed is empty where it was not asked for.
    """

    items: tuple[Item, ...]
    baseline_scores: tuple[ItemScore, ...]
    scores: dict[str, tuple[ItemScore, ...]]
    baseline_rows: tuple[BaselineRow, ...]
    rows: tuple[SliceRow, ...]
    text_rows: dict[str, list[dict[str, Any]]]
    text_reason: dict[str, str] = field(default_factory=dict)
    overlooked: Overlooked | None = None
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    speed: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)

    def row(self, candidate: str, slice_name: str) -> SliceRow:
        """The row of a candidate on a slice; KeyError when there is none."""
        found = [row for row in self.rows if (row.candidate, row.slice) == (candidate, slice_name)]
        if not found:
            raise KeyError((candidate, slice_name))
        return found[0]

    def to_json(self) -> dict[str, Any]:
        """The stable keys of the evaluation's JSON, without the item scores (see `record`)."""
        return {
            "baseline": {
                "slices": [row_json(row) for row in self.baseline_rows],
                "texts": self.text_rows.get("", []),
                **self._cost(""),
            },
            "candidates": [
                {
                    "label": label,
                    "slices": [row_json(row) for row in self.rows if row.candidate == label],
                    "texts": self.text_rows.get(label, []),
                    "texts_reason": self.text_reason.get(label),
                    **self._cost(label),
                }
                for label in self.scores
            ],
            "overlooked": None if self.overlooked is None else self.overlooked.to_json(),
            "items_hash": items_hash(self.items),
            "provenance": "measured",
        }

    def _cost(self, label: str) -> dict[str, Any]:
        return {"held": self.held.get(label), "speed": self.speed.get(label)}

    def record(self, label: str | None) -> dict[str, Any]:
        """Every item's scores under a candidate (None: the baseline), for whoever wants to look into a figure."""
        scores = self.baseline_scores if label is None else self.scores[label]
        return {
            "items": [
                {"id": item.id, "slice": item.slice, "answer": item.answer, "logprobs": list(score.logprobs),
                 "correct": score.correct}
                for item, score in zip(self.items, scores, strict=True)
            ]
        }  # fmt: skip


def evaluate(
    settings: Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]],
    baseline: Mapping[str, Any],
    items: Sequence[Item],
    texts: Sequence[Text],
    report: Progress | None = None,
    *,
    kept: Kept | None = None,
    rig: Rig | None = None,
    window_tokens: int = WINDOW_TOKENS,
    seed: int = 0,
    speed: bool = False,
) -> Evaluation:
    """Score the baseline and every candidate, and judge. With `speed` their steps are timed as well, in turns.

    settings: the candidates' settings, by label or in a row (labelled by what they set); a candidate may be {}.
    `kept` holds scores that were computed before (a Store: across processes). Raises Cancelled when the report says so,
    InputError and CannotRunError as the engine does, and for an item that no engine here can take.
    """
    named = settings if isinstance(settings, Mapping) else {_label(one): one for one in settings}
    report = report or Progress()
    return _evaluate(
        {label: scoring_config(one) for label, one in named.items()},
        scoring_config(baseline), items, texts, report, kept or InMemory(), rig or Rig(report.note), window_tokens,
        seed, speed,
    )  # fmt: skip


def _label(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "defaults"


def _evaluate(
    configs: Mapping[str, EngineConfig],
    base_config: EngineConfig,
    items: Sequence[Item],
    texts: Sequence[Text],
    report: Progress,
    kept: Kept,
    rig: Rig,
    window_tokens: int,
    seed: int,
    speed: bool,
) -> Evaluation:
    characters = sum(sizes(items)), sum(len(text.content) for text in texts)
    timed = SPEED_CHARACTERS * max(1, len(configs)) if speed else 0
    report.total = max(1, characters[0] * (1 + len(configs)) + characters[1] * max(1, len(configs)) + timed)
    base = Arm(0, base_config, rig, kept, report)
    before = base.item_scores(items)
    costs = _Costs(base, report, speed)
    scores: dict[str, tuple[ItemScore, ...]] = {}
    text_rows: dict[str, list[dict[str, Any]]] = {}
    reasons: dict[str, str] = {}
    for place, (label, config) in enumerate(configs.items(), start=1):
        arm = Arm(place, config, rig, kept, report)
        scores[label] = tuple(arm.item_scores(items))
        if texts and not _same_tokens(base, arm, texts):
            reasons[label] = OTHER_TOKENS
        elif texts:
            text_rows[label] = _text_rows(texts, window_tokens, base, arm)
        arm.let_go()
        costs.add(label, arm)
        if config != base_config:
            rig.let_go(config, keep=base_config)
    if texts and (not configs or reasons):
        text_rows[""] = _text_rows(texts, window_tokens, base, None)
    costs.add_baseline()
    report.phase("done", len(configs))
    return Evaluation(
        items=tuple(items),
        baseline_scores=tuple(before),
        scores=scores,
        baseline_rows=tuple(baseline_rows(items, before)),
        rows=tuple(judge_slices(items, before, scores)),
        text_rows=text_rows,
        text_reason=reasons,
        overlooked=find_overlooked(items, before, scores, seed) if scores and items else None,
        held=costs.held,
        speed=costs.speed,
    )


class _Costs:
    """What every arm holds and, where that is asked for, how fast it is, by label."""

    def __init__(self, base: Arm, report: Progress, timed: bool) -> None:
        self._base, self._report, self._timed = base, report, timed
        self._pairs: list[Pairs] = []
        self.held: dict[str, dict[str, Any]] = {"": base.held()}
        self.speed: dict[str, dict[str, Any]] = {}

    def add(self, label: str, arm: Arm) -> None:
        """Weigh an arm and time its steps beside the baseline's, while both are loaded."""
        self.held[label] = arm.held()
        if self._timed:
            self.speed[label], pairs = self._timed_beside(self._base, arm)
            self._pairs.append(pairs)

    def add_baseline(self) -> None:
        """The baseline's own steps: as timed beside the candidates, or alone when there are none."""
        if self._timed:
            if not self._pairs:
                self._pairs.append(self._timed_beside(self._base, self._base)[1])
            self.speed[""] = baseline_speed(self._pairs, self._base.loaded[1])

    def _timed_beside(self, base: Arm, arm: Arm) -> tuple[dict[str, Any], Pairs]:
        """Times an arm's steps, and tells how far that is as SPEED_CHARACTERS of text."""
        arms = [base.loaded, arm.loaded]
        self._report.phase("speed", arm.place)
        told = 0

        def done(share: float, seconds: float) -> None:
            nonlocal told
            amount = round(share * SPEED_CHARACTERS) - told
            told += amount
            self._report.computed(amount, seconds)

        return measure_speed(arms, self._report.check, done)


def _same_tokens(base: Arm, arm: Arm, texts: Sequence[Text]) -> bool:
    if base.config.model == arm.config.model:
        return True
    return all(base.tokenizer.encode(text.content) == arm.tokenizer.encode(text.content) for text in texts)


def _text_rows(texts: Sequence[Text], window_tokens: int, base: Arm, arm: Arm | None) -> list[dict[str, Any]]:
    rows, everything = [], list[WindowScores]()
    for text in texts:
        windows = base.text_scores(text, window_tokens, arm)
        everything += windows
        rows.append(text_row(text.name, windows, window_tokens))
    return [*rows, text_row(ALL_TEXTS, everything, window_tokens)] if len(texts) > 1 else rows


def run_evaluation(
    spec: EvalSpec | Mapping[str, Any],
    store: Store,
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
    *,
    rig: Rig | None = None,
) -> dict[str, Any]:
    """Evaluate what a spec asks and return its JSON; item scores become records of the run (arm 0: the baseline).

    Every batch is kept in `store` when it is done, so that the same spec, run again after a cancel or a crash, goes on
    from there. Raises as `evaluate`.
    """
    checked = spec if isinstance(spec, EvalSpec) else EvalSpec.from_dict(spec)
    texts = default_texts() if not checked.texts else [load_text(path) for path in checked.texts if path != NOTHING]
    configs, base, around = checked.candidates(), checked.baseline_config(), machine()
    found = evaluate(
        {label: config.settings() for label, config in configs.items()},
        base.settings(),
        checked.read_items(),
        texts,
        Progress(on_live, should_cancel),
        kept=store,
        rig=rig,
        window_tokens=checked.window_tokens,
        seed=checked.seed,
        speed=checked.speed,
    )
    for place, label in enumerate([None, *configs]):
        store.add_record(run_id, place, 1, found.record(label))
    result = found.to_json()
    result["baseline"]["settings"] = base.settings()
    for candidate in result["candidates"]:
        own = configs[candidate["label"]].settings()
        candidate["changed"] = {name: value for name, value in own.items() if value != base.settings()[name]}
    warning = busy_warning(around) if checked.speed else None
    return {
        **result,
        "window_tokens": checked.window_tokens,
        "seed": checked.seed,
        "run_id": run_id,
        "environment": {"cpu": cpu_name(), **around},
        "warnings": [warning] if warning else [],
    }
