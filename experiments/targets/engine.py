"""The engine in this process as a target: a fresh engine for every run, its text scored by its own paged path."""

from __future__ import annotations

from typing import Any

from core_engine.config import EngineConfig
from experiments import loadgen
from experiments.quality.agreement import MOST_REQUESTS, Agreement, mean_logprobs, same_token_ids, unknown
from experiments.rig import Rig, WarmUp, draw_workload, warm_up
from experiments.spec import BenchSpec
from experiments.targets.in_process import InProcess
from experiments.targets.target import OnPart, ShouldCancel, Target
from experiments.workloads import Workload, whole_prompt

BASELINE, CANDIDATE = 0, 1
Texts = list[tuple[tuple[int, ...], list[int]]]


class EngineTarget(InProcess):
    """Engines of one configuration, made by `rig`, which loads a model once for all targets that share it."""

    def __init__(self, config: EngineConfig, rig: Rig) -> None:
        super().__init__()
        self.config = config
        self._rig = rig

    def describe(self) -> dict[str, Any]:
        return {"kind": "engine"}

    def draw(self, spec: BenchSpec) -> Workload:
        return draw_workload(spec, self._rig.tokenizer(self.config))

    def warm_up(self, workload: Workload, should_cancel: ShouldCancel | None = None) -> WarmUp:
        return warm_up(self._rig, self.config, workload, should_cancel)

    def fresh(self) -> Any:
        return self._rig.engine(self.config)

    def agreement(
        self,
        candidate: Target,
        workloads: tuple[Workload, Workload],
        records: tuple[dict[str, Any], dict[str, Any]],
        on_part: OnPart = lambda arm, fraction: None,
    ) -> Agreement:
        """The same token ids, and the log-probability of this arm's text under both.

        Scoring asks no answer cache. Where the arms differ in what the semantic one may give, it is the log-probability
        of each arm's own answers under this arm instead: another question's answer is an unlikely one.
        """
        if not isinstance(candidate, EngineTarget):
            return unknown("text of an engine is scored by engines alone")
        if workloads[BASELINE].requests != workloads[CANDIDATE].requests:
            return unknown("the arms' tokenizers differ, so their token ids can't be compared")
        if _reuse(self.config) != _reuse(candidate.config):
            return Agreement(same_token_ids(*records), self._score_given(workloads, records, on_part))
        _, texts = answered_texts(workloads[BASELINE], records[BASELINE])
        first, second = (arm._score(number, texts, on_part) for number, arm in enumerate((self, candidate)))
        return Agreement(same_token_ids(*records), (first, second))

    def _score_given(
        self, workloads: tuple[Workload, Workload], records: tuple[dict[str, Any], dict[str, Any]], on_part: OnPart
    ) -> tuple[list[float | None], list[float | None]]:
        given = [
            dict(zip(*answered_texts(workload, record), strict=True))
            for workload, record in zip(workloads, records, strict=True)
        ]
        both = sorted(given[BASELINE].keys() & given[CANDIDATE].keys())
        asked = [[texts[number] for number in both] for texts in given]
        return self._score(BASELINE, asked[BASELINE], on_part), self._score(CANDIDATE, asked[CANDIDATE], on_part)

    def _score(self, arm: int, texts: Texts, on_part: OnPart) -> list[float | None]:
        on_part(arm, 0.0)
        return mean_logprobs(self._rig.engine(self.config), texts, lambda done: on_part(arm, done / len(texts)))


def _reuse(config: EngineConfig) -> tuple[str, float | None]:
    """What the semantic cache may give."""
    return config.semantic_cache, config.semantic_threshold if config.semantic_cache == "on" else None


def answered_texts(workload: Workload, record: dict[str, Any]) -> tuple[list[int], Texts]:
    """Numbers, and prompt and output ids, of the first 16 answered requests, in the order of arrival."""
    outputs = {request["id"]: request["output_token_ids"] for request in record["requests"]}
    answers = {loadgen.number_of(name): ids for name, ids in outputs.items() if ids}
    answered = [number for number in range(len(workload.requests)) if number in answers][:MOST_REQUESTS]
    return answered, [(whole_prompt(workload, number, answers), answers[number]) for number in answered]
