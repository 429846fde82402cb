"""Reads the labs: experiments/labs/content/ID/{lab,en,zh}.toml, checked against each other before anyone sees them.

Every reference has to resolve (figures, keys and their arguments, claims, sections, choices), both languages have the
same texts with the same places for figures, and what is shown before the run needs no run. InputError names file and
field of the first thing that is wrong.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.kinds import KINDS
from experiments.labs.keys import ARITHMETIC, FORMULAS, check_path
from experiments.labs.lab import (
    FORMULA,
    LANGUAGES,
    PASS_MARK,
    Experiment,
    Figure,
    Lab,
    Prediction,
    Question,
    Remark,
    Texts,
    placeholders,
)
from experiments.labs.quantities import dimension_of
from experiments.mistake_words import USUAL
from ledger.errors import InputError, unknown_name

CONTENT = Path(__file__).with_name("content")
SECTIONS = (
    "1.1", "1.2", "2.1", "2.2", "3.1", "3.2", "4.1", "4.2", "4.3", "5.1", "5.2", "6.1", "6.2", "7.1", "7.2", "8.1",
    "8.2", "9.1", "9.2", "9.3", "9.4", "9.5", "9.6", "9.7", "9.8", "9.9", "9.10", "10.1", "10.2", "11",
)  # fmt: skip
KINDS_OF_QUESTION = ("number", "choice", "many", "order")
PROVENANCES = ("measured", "computed", "simulated", "estimated", "assumed")
FEWEST_QUESTIONS = 3
PLAIN_TEXTS = ("title", "summary", "goal", "theory", "experiment", "why")
_OF_A_FIGURE = ("unit", "given", "run", "key", "of", "provenance")


@cache
def load_labs() -> tuple[Lab, ...]:
    """All labs in their order."""
    folders = sorted(path for path in CONTENT.iterdir() if (path / "lab.toml").is_file())
    return tuple(sorted(map(read_lab, folders), key=lambda lab: (lab.order, lab.id)))


def get_lab(lab_id: str) -> Lab:
    """The lab of an id; InputError when there is none."""
    for lab in load_labs():
        if lab.id == lab_id:
            return lab
    raise unknown_name("lab", lab_id[:60], [lab.id for lab in load_labs()])


def read_lab(folder: Path) -> Lab:
    """The lab in a folder, checked; InputError names what is wrong."""
    raw = {name: _toml(folder / f"{name}.toml") for name in ("lab", *LANGUAGES)}
    table = _Table(raw["lab"], f"{folder.name}/lab.toml")
    # Of the language-free file: new words don't make a learner's finished run worthless.
    edition = hashlib.sha256((folder / "lab.toml").read_bytes()).hexdigest()[:12]
    lab = Lab(
        id=folder.name,
        order=table.take("order", int),
        sections=tuple(table.take("sections", list)),
        claims=tuple(table.take("claims", list)),
        minutes=table.take("minutes", int),
        reading=tuple(table.take("reading", list)),
        prediction=_prediction(table.part("prediction")),
        experiment=_experiment(table.part("experiment")),
        figures={name: _figure(name, part) for name, part in table.parts("figures")},
        show=tuple(table.take("show", list)),
        remarks=tuple(_remark(part) for part in table.every("remarks")),
        questions=tuple(_question(part) for part in table.every("questions")),
        texts={lang: _texts(_Table(_unwrapped(raw[lang]), f"{folder.name}/{lang}.toml")) for lang in LANGUAGES},
        edition=edition,
        pass_mark=table.take("pass_mark", float, PASS_MARK),
    )
    table.done()
    _Check(lab).all()
    return lab


@cache
def _claim_ids() -> tuple[str, ...]:
    """Ids of the claims, from their file: the package of their checks loads an engine, which labs don't need."""
    import yaml

    rows = yaml.safe_load(files("experiments").joinpath("claims", "claims.yaml").read_text(encoding="utf-8"))
    return tuple(row["id"] for row in rows["claims"])


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"lab {path.parent.name}", path.name, f"a readable file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"lab {path.parent.name}", path.name, f"valid TOML ({error})") from None


class _Table:
    """A TOML table that remembers what was taken of it, so that a misspelt field is an error and not nothing."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where, self._taken = values, where, set[str]()

    def take(self, name: str, kind: type | tuple[type, ...], *default: Any) -> Any:
        """A field; InputError when it is missing (without a default) or of another type."""
        self._taken.add(name)
        if name not in self.values and default:
            return default[0]
        value = self.values.get(name)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
            value = float(value)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InputError(f"{self.where}: {name}", value, " or ".join(one.__name__ for one in kinds))
        return value

    def part(self, name: str) -> _Table:
        """A table inside."""
        return _Table(self.take(name, dict), f"{self.where}: {name}")

    def parts(self, name: str) -> Iterable[tuple[str, _Table]]:
        """Every named table of a table."""
        inside = self.part(name)
        return [(key, inside.part(key)) for key in inside.values]

    def every(self, name: str) -> Iterable[_Table]:
        """Every table of an array of tables; there may be none."""
        rows = self.take(name, list, [])
        return [_Table(row, f"{self.where}: {name}[{place}]") for place, row in enumerate(rows)]

    def done(self) -> None:
        """InputError for a field that nobody asked for."""
        for name in self.values:
            if name not in self._taken:
                raise InputError(f"{self.where}: {name}", self.values[name], f"one of {', '.join(sorted(self._taken))}")


def _prediction(table: _Table) -> Prediction:
    found = Prediction(table.take("figure", str), table.take("unit", str, ""), tuple(table.take("choices", list, [])))
    table.done()
    return found


def _experiment(table: _Table) -> Experiment:
    found = Experiment(table.take("kind", str), table.take("spec", dict, {}))
    table.done()
    return found


def _figure(name: str, table: _Table) -> Figure:
    args = {key: value for key, value in table.values.items() if key not in _OF_A_FIGURE}
    return Figure(
        name=name,
        unit=table.take("unit", str, ""),
        given=table.values.get("given"),
        run=table.take("run", str, None),
        key=table.take("key", str, None),
        of=tuple(table.take("of", list, [])),
        args=args,
        provenance=table.take("provenance", str, None),
    )


def _remark(table: _Table) -> Remark:
    found = Remark(
        table.take("id", str), table.take("figure", str), table.take("below", float, None),
        table.take("above", float, None), table.take("equal", (str, float), None),
    )  # fmt: skip
    table.done()
    return found


def _question(table: _Table) -> Question:
    answer = table.take("answer", (str, list), [])
    found = Question(
        id=table.take("id", str),
        kind=table.take("kind", str),
        figure=table.take("figure", str, None),
        unit=table.take("unit", str, ""),
        tolerance=table.take("tolerance", float, 0.02),
        absolute=table.take("absolute", float, None),
        mistakes=table.take("mistakes", dict, {}),
        choices=tuple(table.take("choices", list, [])),
        answer=(answer,) if isinstance(answer, str) else tuple(answer),
        points=table.take("points", float, 1.0),
    )
    table.done()
    return found


def _texts(table: _Table) -> Texts:
    words = {name: table.take(name, str).strip() for name in PLAIN_TEXTS}
    found = Texts(
        **words,
        prediction=table.take("prediction", dict),
        figures=table.take("figures", dict, {}),
        remarks=table.take("remarks", dict, {}),
        questions=table.take("questions", dict),
    )
    table.done()
    return found


_FENCE = re.compile(r"(```.*?```)", re.DOTALL)
# A line that ends in Chinese and goes on in Chinese: the break in the file is no blank on the page.
_BROKEN_LINE = re.compile(r"(?<=[，。；：、！？）”])\n(?=[一-鿿（“A-Za-z`{]|\*\*)|(?<=[一-鿿])\n(?=[一-鿿（“])")


def _unwrapped(value: Any) -> Any:
    """The texts with the line breaks of the file taken out of Chinese sentences; code blocks as they are."""
    if isinstance(value, Mapping):
        return {key: _unwrapped(part) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    parts = _FENCE.split(value)
    return "".join(part if part.startswith("```") else _BROKEN_LINE.sub("", part) for part in parts)


class _Check:
    """All that a lab's parts have to say of each other."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def all(self) -> None:
        """InputError for the first thing that is wrong."""
        lab = self.lab
        self._in("sections", lab.sections, SECTIONS)
        self._in("claims", lab.claims, _claim_ids())
        self._that(bool(lab.reading), "reading", lab.reading, "at least one title")
        self._that(0 < lab.pass_mark <= 1, "pass_mark", lab.pass_mark, "a share above 0, at most 1")
        self._in("experiment.kind", [lab.experiment.kind], (*KINDS, FORMULA))
        for figure in lab.figures.values():
            self._figure(figure)
        self._in("show", lab.show, lab.figures)
        self._prediction()
        for remark in lab.remarks:
            self._in(f"remarks.{remark.id}", [remark.figure], lab.figures)
        ids = [question.id for question in lab.questions]
        self._that(
            len(set(ids)) == len(ids) >= FEWEST_QUESTIONS, "questions", ids, f"{FEWEST_QUESTIONS} ids that differ"
        )
        for question in lab.questions:
            self._question(question)
        for lang, texts in lab.texts.items():
            self._words(lang, texts)
        self._same_places()

    def _that(self, holds: bool, field: str, value: Any, accepted: str) -> None:
        if not holds:
            raise InputError(f"lab {self.lab.id}: {field}", value, accepted)

    def _in(self, field: str, values: Iterable[Any], known: Iterable[str]) -> None:
        known = list(known)
        for value in values:
            self._that(value in known, field, value, ", ".join(known))

    def _figure(self, figure: Figure) -> None:
        where = f"figures.{figure.name}"
        dimension_of(figure.unit)
        ways = [figure.given is not None, figure.run is not None, figure.key is not None]
        self._that(sum(ways) == 1, where, figure.name, "exactly one of given, run, key")
        self._that(figure.provenance in (None, *PROVENANCES), where, figure.provenance, ", ".join(PROVENANCES))
        if figure.run is not None:
            check_path(figure.run)
            self._that(self.lab.experiment.has_run, where, figure.run, "an experiment with a run")
        if figure.key is None:
            self._that(not figure.of and not figure.args, where, {**figure.args}, "arguments only beside key")
            return
        self._in(where, [figure.key], [*ARITHMETIC, *FORMULAS])
        self._in(f"{where}.of", figure.needs(), self.lab.figures)
        self._not_of_itself(figure.name, ())
        function: Callable[..., Any] = ARITHMETIC.get(figure.key) or FORMULAS[figure.key]
        self._that(not figure.of or figure.key in ARITHMETIC, f"{where}.of", figure.of, "arguments by name: @FIGURE")
        try:
            inspect.signature(function).bind(*figure.of, **figure.args)
        except TypeError as error:
            self._that(False, where, figure.args, f"the arguments of {figure.key} ({error})")

    def _not_of_itself(self, name: str, seen: tuple[str, ...]) -> None:
        self._that(name not in seen, f"figures.{name}", name, "a figure that is not made of itself")
        figure = self.lab.figures.get(name)
        for other in () if figure is None else figure.needs():
            self._not_of_itself(other, (*seen, name))

    def _prediction(self) -> None:
        asked = self.lab.prediction
        self._in("prediction.figure", [asked.figure], self.lab.figures)
        dimension_of(asked.unit)
        unit = self.lab.figures[asked.figure].unit
        same = bool(asked.choices) or dimension_of(unit) == dimension_of(asked.unit)
        self._that(same, "prediction.unit", asked.unit, f"a unit like {unit}")

    def _question(self, question: Question) -> None:
        where, figures = f"questions.{question.id}", self.lab.figures
        self._in(f"{where}.kind", [question.kind], KINDS_OF_QUESTION)
        if question.figure is not None:
            self._in(f"{where}.figure", [question.figure], figures)
            told = question.figure == self.lab.prediction.figure
            self._that(not told, f"{where}.figure", question.figure, "another one: the results show what was predicted")
        if question.kind == "number":
            self._that(question.figure is not None, f"{where}.figure", None, "a figure: no answer is typed")
            self._that(not question.choices and not question.answer, where, question.answer, "a figure alone")
            unit = figures[question.figure or ""].unit
            self._that(
                dimension_of(unit) == dimension_of(question.unit), f"{where}.unit", question.unit, f"like {unit}"
            )
            self._in(f"{where}.mistakes", question.mistakes.values(), figures)
            self._that(0 < question.tolerance <= 0.5, f"{where}.tolerance", question.tolerance, "above 0, at most 0.5")
            return
        self._that(not question.mistakes, f"{where}.mistakes", question.mistakes, "no mistakes: distractors explain")
        self._that(
            len(set(question.choices)) == len(question.choices) >= 2, where, question.choices, "2 choices or more"
        )
        self._in(f"{where}.answer", question.answer, question.choices)
        given = len(question.answer)
        right = {
            "choice": (question.figure is None) == (given == 1) and given <= 1,
            "many": 1 <= given < len(question.choices) and question.figure is None,
            "order": sorted(question.answer) == sorted(question.choices),
        }
        self._that(right[question.kind], f"{where}.answer", question.answer, "what the kind of question needs")

    def _words(self, lang: str, texts: Texts) -> None:
        lab = self.lab
        before = {name for name in lab.figures if not lab.needs_run(name)}
        for path, text in _walk(texts):
            early = path in ("title", "summary", "goal", "theory", "experiment") or path.startswith("prediction")
            known = before if early else {*lab.figures, "prediction"}
            self._that(bool(text.strip()), f"{lang}: {path}", text, "a text")
            self._that("$" not in text, f"{lang}: {path}", "$", "formulas in code blocks")
            self._in(f"{lang}: {path}", placeholders(text), known)
        self._same(f"{lang}: prediction", texts.prediction, ("ask", *(["choices"] if lab.prediction.choices else [])))
        if lab.prediction.choices:
            self._same(f"{lang}: prediction.choices", texts.prediction["choices"], lab.prediction.choices)
        self._same(f"{lang}: figures", texts.figures, {lab.prediction.figure, *lab.show})
        self._same(f"{lang}: remarks", texts.remarks, {remark.id for remark in lab.remarks})
        self._same(f"{lang}: questions", texts.questions, {question.id for question in lab.questions})
        for question in lab.questions:
            self._question_words(f"{lang}: questions.{question.id}", question, texts.questions[question.id])

    def _question_words(self, where: str, question: Question, words: Mapping[str, Any]) -> None:
        own = {name for name in question.mistakes if name not in USUAL}
        needed = {"ask", "explain"} | ({"choices"} if question.choices else set()) | ({"mistakes"} if own else set())
        explained = question.kind in ("choice", "many")
        self._same(where, words, needed | ({"wrong"} if explained else set()))
        if question.choices:
            self._same(f"{where}.choices", words["choices"], question.choices)
        if own:
            self._same(f"{where}.mistakes", words["mistakes"], own)
        if explained:
            # Where a run says which one is right, each of them can be the distractor.
            self._same(f"{where}.wrong", words["wrong"], set(question.choices) - set(question.answer))

    def _same(self, field: str, found: Iterable[str], wanted: Iterable[str]) -> None:
        self._that(set(found) == set(wanted), field, sorted(found), ", ".join(sorted(wanted)) or "nothing")

    def _same_places(self) -> None:
        every = [{path: sorted(placeholders(text)) for path, text in _walk(one)} for one in self.lab.texts.values()]
        for other in every[1:]:
            for path, names in every[0].items():
                self._that(other.get(path) == names, path, other.get(path), f"the same figures in both: {names}")


def _walk(texts: Texts) -> Iterable[tuple[str, str]]:
    """(path, text) of every text."""

    def inside(prefix: str, value: Any) -> Iterable[tuple[str, str]]:
        if isinstance(value, Mapping):
            for key, part in value.items():
                yield from inside(f"{prefix}.{key}" if prefix else key, part)
        elif isinstance(value, str):
            yield prefix, value
        else:
            raise InputError(prefix, value, "a text")

    return list(inside("", vars(texts)))
