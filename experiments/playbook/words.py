"""What a ladder says in words, in English and Simplified Chinese: steps, recipes, reasons, and the whole.

The command line, the report and the page take their sentences from here, so that they say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.playbook.decide import from_nothing, mean_after
from experiments.playbook.outcomes import ADOPTED, NOT_DECIDED
from experiments.playbook.phrases import CURVES, PHRASES, RECIPE_TEXTS, STEP_TEXTS
from experiments.playbook.roi import AGREES, DISAGREES
from experiments.report.words import LANGUAGES, MISSING, interval, number, signed_percent

Row = Mapping[str, Any]
TITLE, MOVES, TRAP = 0, 1, 2


class Says:
    """The sentences of one language ("en" or "zh")."""

    def __init__(self, lang: str) -> None:
        self._place = LANGUAGES.index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """A phrase with its places filled."""
        return PHRASES[key][self._place].format(**values)

    # -- steps and recipes ---------------------------------------------------------------------------------------

    def step(self, name: str) -> str:
        """What a step is called; one of the user's own as they called it."""
        return STEP_TEXTS[name][TITLE][self._place] if name in STEP_TEXTS else name

    def moves(self, name: str) -> str | None:
        """What it should move; None for a step of the user's own."""
        return STEP_TEXTS[name][MOVES][self._place] if name in STEP_TEXTS else None

    def trap(self, name: str) -> str | None:
        """Where it does not pay; None for a step of the user's own."""
        return STEP_TEXTS[name][TRAP][self._place] if name in STEP_TEXTS else None

    def recipe(self, name: str) -> str:
        """A recipe's name."""
        return RECIPE_TEXTS[name][0][self._place]

    def scenario(self, name: str) -> str:
        """What a recipe is for, and what it tries first."""
        return RECIPE_TEXTS[name][1][self._place]

    def curve(self, name: str) -> str:
        """A guarded curve."""
        return CURVES[name][self._place] if name in CURVES else name

    def outcome(self, outcome: str) -> str:
        """Of a step."""
        return self(f"outcome_{outcome.replace(' ', '_').replace(chr(39), '')}")

    def verdict(self, verdict: str) -> str:
        """Of a curve."""
        return self(f"verdict_{verdict.replace(' ', '_')}")

    def effort(self, row: Row) -> str:
        """config (1 h), with the hours that are assumed."""
        return self("effort", kind=self(f"effort_{row['effort']}"), hours=number(row["hours"], 2))

    def changes(self, row: Row) -> str:
        """batching static → continuous, kv_layout contiguous → paged."""
        told = [f"{name} {first} → {second}" for name, (first, second) in row["changes"].items()]
        because = [self("because", name=name, value=value) for name, value in row["because"].items()]
        return self("list").join(told) + "".join(because)

    # -- reasons -------------------------------------------------------------------------------------------------

    def reasons(self, row: Row) -> list[str]:
        """A sentence a reason."""
        return [self.reason(reason) for reason in row["reasons"]]

    def reason(self, reason: Row) -> str:
        """One reason as a sentence."""
        code = reason["code"]
        if code == "undone":
            inner = " ".join(self.reason(one) for one in reason["reasons"] if one["code"] not in ("better", "allowed"))
            return self("undone", why=inner)
        if code in ("open", "leaning", "not_told"):
            return self(code, curves=self._curves(reason), repeats=self._repeats(reason))
        if code in ("better", "worse", "allowed", "answers"):
            return self(code, curves=self._curves(reason))
        if code == "objective":
            told = [self("objective_row", name=one["name"], limit=number(one["limit"]), value=number(one["value"]),
                         before=number(one["before"])) for one in reason["objectives"]]  # fmt: skip
            return self("objective", objectives=self("list").join(told))
        if code == "failing":
            return self("failing", share=_share(reason["share"]), before=_share(reason["before"]))
        if code == "there":
            told = [f"{name}={value}" for name, value in reason["values"].items()]
            return self("there", values=self("list").join(told))
        if code == "unseen":
            return self("unseen", variables=self("list").join(reason["variables"]))
        if code == "cant_run":
            return self("cant_run", error=str(reason["error"]).rstrip("."))
        if code.startswith("quality_"):
            return self._quality(reason)
        return self(code)

    def _quality(self, reason: Row) -> str:
        found = reason["ci95"]
        ends = MISSING if found is None else f"{_points(found[0])}, {_points(found[1])}"
        told = self(reason["code"], drop=_points(reason["drop"]), interval=ends, most=_points(reason["most_drop"]),
                    items=reason["items"])  # fmt: skip
        if reason["slices"]:
            slices = [self("slice", name=one["slice"], drop=_points(one["drop"])) for one in reason["slices"]]
            told += self("gap") + self("slices", slices=self("list").join(slices))
        if reason["code"] == "quality_open" and reason["items_needed"]:
            told += self("gap") + self("items_needed", items=f"{reason['items_needed']:,}")
        return told

    def _curves(self, reason: Row) -> str:
        return self("list").join(self._curve(curve) for curve in reason["curves"])

    def _curve(self, curve: Row) -> str:
        name = self.curve(curve["name"])
        if curve["from_nothing"]:
            return self("from_nothing", name=name, value=number(curve["mean_after"]))
        if curve["to_nothing"]:
            return self("to_nothing", name=name)
        return f"{name} {signed_percent(curve['change_pct'])} {interval(curve['ci95'])}"

    def _repeats(self, reason: Row) -> str:
        if reason["repeats"] is None:
            return self("repeats_unknown", made=reason["made"])
        return self("repeats_needed", repeats=reason["repeats"], made=reason["made"])

    # -- the whole -----------------------------------------------------------------------------------------------

    def sentence(self, row: Row, number_of: int) -> str:
        """A step in one paragraph: what it was, what became of it, why."""
        changed = self.changes(row)
        what = self("what", number=number_of, step=self.step(row["name"]), changes=changed) if changed else self(
            "what_plain", number=number_of, step=self.step(row["name"])
        )  # fmt: skip
        return self("paragraph", what=what, outcome=self.outcome(row["outcome"]),
                    why=self("gap").join(self.reasons(row)))  # fmt: skip

    def headline(self, result: Row) -> str:
        """What came of it all."""
        adopted = [self.step(row["name"]) for row in result["steps"] if row["outcome"] == ADOPTED]
        tried = [row for row in result["steps"] if row["comparison"]]
        if not tried:
            return self("nothing_tried")
        if not adopted:
            return self("nothing_adopted", count=len(tried))
        told = self("adopted", count=len(adopted), of=len(tried), steps=self("list").join(adopted))
        return self("gap").join(filter(None, (told, self.whole(result))))

    def whole(self, result: Row) -> str:
        """Start against end, as measured; nothing where it was not."""
        overall = result["overall"]
        if overall is None:
            return ""
        told = [self._moved(curve) for curve in overall["comparison"]["curves"] if curve["name"] in CURVES]
        return self("end_to_start", curves=self("list").join(filter(None, told)))

    def _moved(self, curve: Row) -> str:
        """A curve of the end with its verdict; nothing where it was not measured."""
        name = self.curve(curve["name"])
        if from_nothing(curve):
            return self("from_nothing", name=name, value=number(mean_after(curve)))
        if curve["change_pct"] is None:
            return ""
        return self("moved", name=name, change=signed_percent(curve["change_pct"]), interval=interval(curve["ci95"]),
                    verdict=self.verdict(curve["verdict"]))  # fmt: skip

    def left_out(self, result: Row) -> list[str]:
        """A line each for what could not run here, with the command that simulates it."""
        return [self("simulate", step=self.step(row["name"]), command=row["simulate"])
                for row in result["steps"] if row["simulate"]]  # fmt: skip

    def order(self, result: Row) -> str:
        """Whether the measured return has the article's order."""
        order = result["order"]
        names = [self.step(name) for name in order["measured"]]
        if not order["pairs"]:
            return self("order_none")
        against = [self("pair", second=self.step(pair["second"]), first=self.step(pair["first"]))
                   for pair in order["pairs"] if pair["verdict"] == DISAGREES]  # fmt: skip
        key = {AGREES: "order_agrees", DISAGREES: "order_disagrees"}.get(order["verdict"], "order_open")
        return self(key, order=self("then").join(names), against=self("list").join(against))

    def next(self, result: Row) -> list[str]:
        """What to do about steps that are not decided and could be."""
        return [self("next_open", step=self.step(row["name"])) for row in result["steps"]
                if row["outcome"] == NOT_DECIDED and row["reasons"][0]["code"] != "unseen"]  # fmt: skip

    def report(self, result: Row) -> list[str]:
        """The whole as paragraphs, as the command line prints them."""
        start = ", ".join(f"{name}={value}" for name, value in result["start"].items())
        opening = self("opening", workload=result["workload"].get("name", ""), start=start or self("defaults"),
                       slo=result["slo"] or self("no_objectives"), repeats=result["repeats"])  # fmt: skip
        steps = [self.sentence(row, place) for place, row in enumerate(result["steps"], start=1)]
        undone = self("list").join(map(self.step, result["undone"]))
        last = [self("undone_steps", steps=undone)] if undone else []
        return [self.headline(result), opening, *steps, *last, self.order(result), *self.next(result),
                *self.left_out(result)]  # fmt: skip


def _points(share: float) -> str:
    return f"{100 * share:.2g}"


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"
