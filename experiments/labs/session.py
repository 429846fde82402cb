"""One learner's way through one lab: predict, run, look, answer, score. The command line and the page both go this way.

Owns the order of the steps and what is kept of each; refuses a step whose turn has not come in one line. A run is an
ordinary job of the store. Figures are kept when it is done, so that answers can be graded after it was deleted. Jobs
are imported where one is asked for: they load torch, which a list of labs does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from experiments.labs.figures import Known, compute_figures, filled
from experiments.labs.grade import TRIES, Grade, Score, check_answer, grade, right_answer, score
from experiments.labs.lab import Lab, Question, Texts
from experiments.labs.progress import Progress
from experiments.labs.quantities import convert, parse_quantity, say_quantity
from experiments.labs.words import say
from experiments.mistake_words import usual_mistake_told
from experiments.store import Run, Store
from ledger.errors import InputError

Attempt = Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """The prediction beside what came out, as a reader wants them; ratio: outcome over prediction, of numbers."""

    predicted: str
    outcome: str
    provenance: str
    ratio: float | None
    same: bool | None


class LabSession:
    """A lab, a learner's progress and the store of runs. Every step saves before it returns."""

    def __init__(self, lab: Lab, progress: Progress, store: Store) -> None:
        self.lab, self.progress, self.store = lab, progress, store
        self.kept = progress.load(lab.id)
        if self._is_of_before():
            with self._alone():
                self._refresh()

    # -- where it stands ------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """new, predicted, running, measured, answered or passed."""
        if self.kept["prediction"] is None:
            return "new"
        if self.kept["figures"] is None:
            return "running" if self.is_running() else "predicted"
        found = self.score()
        if found.passed:
            return "passed"
        return "answered" if found.answered == found.questions else "measured"

    @property
    def figures(self) -> dict[str, Known]:
        """What is known: after the experiment all figures, before it those that need no run."""
        if self.kept["figures"] is None:
            return self._early
        return {name: Known(**known) for name, known in self.kept["figures"].items()}

    @cached_property
    def _early(self) -> dict[str, Known]:
        return compute_figures(self.lab, None)

    def run(self) -> Run | None:
        """The run of the experiment as it really is; None without one, or when it was deleted."""
        if self.kept["run_id"] is None:
            return None
        from experiments import jobs

        try:
            return jobs.status(self.kept["run_id"], self.store)
        except InputError:
            return None

    def is_running(self) -> bool:
        """Whether the experiment is at work or waits for its turn."""
        run = self.run()
        return run is not None and run.state in ("queued", "running")

    def attempts(self, question: Question) -> Sequence[Attempt]:
        """What was answered so far, oldest first: {"text","credit","verdict","mistake","chosen","at"}."""
        found: Sequence[Attempt] = self.kept["answers"].get(question.id, ())
        return found

    def is_settled(self, question: Question) -> bool:
        """Whether there is nothing more to answer: right, used up, or not to be told from this run."""
        given = self.attempts(question)
        return len(given) >= len(TRIES) or any(one["verdict"] in ("right", "open") for one in given)

    def next_question(self) -> Question | None:
        """The first one without an answer."""
        return next((question for question in self.lab.questions if not self.attempts(question)), None)

    def score(self) -> Score:
        """The score so far."""
        return score(self.lab, self.kept["answers"])

    # -- the steps ------------------------------------------------------------------------------------------------

    def predict(self, text: str) -> None:
        """Keep what the learner expects. InputError when it is no answer, or was said before."""
        with self._alone():
            self._predict(text)

    def _predict(self, text: str) -> None:
        asked = self.lab.prediction
        if self.kept["prediction"] is not None:
            raise InputError("prediction", text[:60], f"one a lab; trilemma lab reset {self.lab.id} begins anew")
        value: float | str
        if asked.choices:
            value = _choice(text, asked.choices)
        else:
            value = parse_quantity(text, asked.unit)
        self.kept["prediction"] = {"text": text.strip()[:80], "value": value, "at": _now()}
        self._save()

    def start(self, *, started_by: str | None = None) -> str | None:
        """Start the experiment and return the run's id; a formula is computed at once, and there is no run.

        InputError before the prediction, while it runs, or when it is done. started_by: as `jobs.start` takes it.
        """
        with self._alone():
            return self._start(started_by)

    def _start(self, started_by: str | None) -> str | None:
        self._needs_prediction("run")
        if self.kept["figures"] is None and self.is_running():
            raise InputError("run", self.kept["run_id"], "one run at a time: it is still at work")
        if self.kept["figures"] is not None:
            raise InputError("run", self.lab.id, f"one run a lab; trilemma lab reset {self.lab.id} begins anew")
        if not self.lab.experiment.has_run:
            self._keep_figures({})
            return None
        from experiments import jobs

        asked = self.lab.experiment
        self.kept["run_id"] = jobs.start(asked.kind, asked.spec, self.store, started_by=started_by)
        self._save()
        return str(self.kept["run_id"])

    def collect(self) -> bool:
        """Take the figures of a run that is done; whether they are there. CannotRunError where its result lacks one."""
        if self.kept["figures"] is None and self.kept["run_id"] is not None:
            with self._alone():
                self._collect()
        return self.kept["figures"] is not None

    def _collect(self) -> bool:
        run = self.run()
        if self.kept["figures"] is None and run is not None and run.state == "done" and run.result is not None:
            self._keep_figures(run.result)
        return self.kept["figures"] is not None

    def answer(self, question_id: str, text: str) -> Grade:
        """Grade an answer and keep it. InputError before its turn, for a settled question, or for what is no answer."""
        with self._alone():
            return self._answer(question_id, text)

    def _answer(self, question_id: str, text: str) -> Grade:
        question = self.lab.question(question_id)
        if question is None:
            raise InputError("question", question_id[:60], ", ".join(one.id for one in self.lab.questions))
        self._needs_prediction("answer")
        if self.kept["figures"] is None:
            raise InputError("answer", question_id, f"the experiment first: trilemma lab run {self.lab.id}")
        if self.is_settled(question):
            raise InputError(
                "answer", question_id, f"a question that is still open; trilemma lab reset {self.lab.id} begins anew"
            )
        found = grade(question, check_answer(self.lab, question, text), self.figures)
        worth = TRIES[len(self.attempts(question))]
        self.kept["answers"].setdefault(question_id, []).append(
            {
                "text": text.strip()[:80],
                "credit": found.credit * worth,
                "verdict": found.verdict,
                "mistake": found.mistake,
                "chosen": list(found.chosen),
                "at": _now(),
            }
        )
        self._save()
        return found

    def reset(self) -> None:
        """Begin anew; the run stays in the store."""
        with self._alone():
            self._reset()

    def _reset(self) -> None:
        self.progress.reset(self.lab.id)
        self.kept = self.progress.load(self.lab.id)

    # -- words ----------------------------------------------------------------------------------------------------

    def texts(self, lang: str) -> Texts:
        """The lab's words; InputError for a language that there isn't."""
        say(lang, "right")
        return self.lab.texts[lang]

    def text(self, text: str, lang: str) -> str:
        """A text with the known figures in their places, save those that an open question asks for."""
        return self._filled(text, self.worded(lang), lang)

    def asking(self, text: str, lang: str) -> str:
        """A text that asks, or a choice: every figure is in its place, since the answer may need it."""
        return self._filled(text, self._in_words(lang), lang)

    def _filled(self, text: str, figures: Mapping[str, Known], lang: str) -> str:
        kept = self.kept["prediction"]
        return filled(text, figures, lang, None if kept is None else self.predicted(lang))

    def worded(self, lang: str) -> dict[str, Known]:
        """The figures as a reader sees them: the predicted one in its choice's words, withheld ones as asked below."""
        withheld, asked = self.withheld(), say(lang, "asked_below")
        return {
            name: replace(known, value=asked) if name in withheld else known
            for name, known in self._in_words(lang).items()
        }

    def _in_words(self, lang: str) -> dict[str, Known]:
        asked, figures = self.lab.prediction, self.figures
        if not asked.choices or asked.figure not in figures:
            return figures
        known, names = figures[asked.figure], self.texts(lang).prediction["choices"]
        return {**figures, asked.figure: replace(known, value=names.get(known.value, known.value))}

    def withheld(self) -> frozenset[str]:
        """Figures with the very value that an open question asks for: to show one would be to answer it."""
        figures = self.figures
        numbers = [one for one in self.lab.questions if one.kind == "number" and one.figure in figures]
        keys = [figures[str(one.figure)] for one in numbers if not self.is_settled(one)]
        asked = {(key.value, key.unit) for key in keys if key.value is not None}
        told = {one.figure for one in numbers if self.is_settled(one)} | {self.lab.prediction.figure}
        return frozenset(
            name
            for name, known in figures.items()
            if name not in told
            and self.lab.figures[name].given is None
            and not isinstance(known.value, list)
            and (known.value, known.unit) in asked
        )

    def why(self, lang: str) -> str:
        """The explanation, with the remarks that hold for the learner's own figures."""
        texts, figures = self.texts(lang), self.figures
        held = [one.id for one in self.lab.remarks if one.holds(figures[one.figure].value)]
        return self.text("\n\n".join([texts.why, *(texts.remarks[name].strip() for name in held)]), lang)

    def shown(self) -> tuple[str, ...]:
        """Figures of the results: the predicted one first."""
        return (self.lab.prediction.figure, *(name for name in self.lab.show if name != self.lab.prediction.figure))

    def compared(self, lang: str) -> Compared:
        """The prediction beside the outcome; after the experiment only."""
        asked, kept = self.lab.prediction, self.kept["prediction"]
        known = self.figures[asked.figure]
        if asked.choices:
            names = self.texts(lang).prediction["choices"]
            outcome = names.get(known.value, known.say(lang))
            return Compared(names[kept["value"]], outcome, known.provenance, None, kept["value"] == known.value)
        told = known.value is not None
        value = convert(known.value, known.unit, asked.unit) if told else None
        ratio = value / kept["value"] if value is not None and kept["value"] else None
        return Compared(self.predicted(lang), known.say(lang), known.provenance, ratio, None)

    def verdict(self, question: Question, attempt: Attempt, lang: str) -> str:
        """What an answer is told: right or wrong, the mistake behind it, why a distractor is one."""
        words = self.texts(lang).questions[question.id]
        parts = [say(lang, attempt["verdict"])]
        if attempt["mistake"]:
            own = words.get("mistakes", {})
            name = attempt["mistake"]
            parts.append(own[name] if name in own else usual_mistake_told(lang, name))
        parts += [words["wrong"][one] for one in attempt["chosen"] if one in words.get("wrong", {})]
        return self.text((" " if lang == "en" else "").join(part.strip() for part in parts), lang)

    def solution(self, question: Question, lang: str) -> str:
        """The right answer and why; for a settled question only."""
        right, words = right_answer(question, self.figures), self.texts(lang).questions[question.id]
        explained = self.text(words["explain"].strip(), lang)
        if right is None:
            return explained
        if isinstance(right, tuple):
            between = " → " if question.kind == "order" else say(lang, "join")
            answer = between.join(words["choices"][one] for one in right)
        else:
            answer = say_quantity(right, question.unit, lang)
        return f"{say(lang, 'solution', answer=self.asking(answer, lang).rstrip('.。'))} {explained}"

    def predicted(self, lang: str) -> str:
        """The prediction for a reader; after it was made only."""
        asked, value = self.lab.prediction, self.kept["prediction"]["value"]
        return self.texts(lang).prediction["choices"][value] if asked.choices else say_quantity(value, asked.unit, lang)

    # -- keeping --------------------------------------------------------------------------------------------------

    def _needs_prediction(self, step: str) -> None:
        if self.kept["prediction"] is None:
            raise InputError(step, self.lab.id, f"a prediction first: trilemma lab predict {self.lab.id} VALUE")

    def _keep_figures(self, result: Mapping[str, Any]) -> None:
        found = compute_figures(self.lab, result)
        self.kept["figures"] = {name: known.to_json() for name, known in found.items()}
        self._save()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A step from what is kept now: another page or a terminal may have gone on since."""
        with self.progress.alone(self.lab.id):
            self.kept = self.progress.load(self.lab.id)
            yield

    def _save(self) -> None:
        self.kept["edition"] = self.lab.edition
        self.progress.save(self.lab.id, self.kept)

    def _refresh(self) -> None:
        """A lab that has changed since: its figures are made again from the run, where that is still there."""
        if not self._is_of_before():
            return
        if not self._still_predicts():
            self._reset()
            return
        had_figures = self.kept["figures"] is not None
        self.kept["figures"] = None
        ids = {question.id for question in self.lab.questions}
        self.kept["answers"] = {name: given for name, given in self.kept["answers"].items() if name in ids}
        if not self.lab.experiment.has_run and had_figures:
            self._keep_figures({})
        elif not self._collect():
            self._save()

    def _is_of_before(self) -> bool:
        return self.kept["edition"] not in (None, self.lab.edition)

    def _still_predicts(self) -> bool:
        """Whether the prediction is one of what the lab asks now."""
        kept, choices = self.kept["prediction"], self.lab.prediction.choices
        return kept is None or (kept["value"] in choices if choices else isinstance(kept["value"], int | float))


def _choice(text: str, choices: Sequence[str]) -> str:
    """The id of a choice, given by id or letter."""
    place = "abcdefghijklmnopqrstuvwxyz".find(text.strip().lower()) if len(text.strip()) == 1 else -1
    if text.strip() in choices:
        return text.strip()
    if not 0 <= place < len(choices):
        letters = ", ".join("abcdefghijklmnopqrstuvwxyz"[: len(choices)])
        raise InputError("prediction", text.strip()[:60], f"one of {letters}")
    return choices[place]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
