"""An advice as text for a terminal, under the diagnosis of `trilemma advise --run`."""

from __future__ import annotations

from experiments.advisor.advice import Advice
from experiments.advisor.prediction import CurvePrediction


def print_advice(made: Advice) -> None:
    """The one next change, what it is predicted to do, what it takes, what would refute it, and its flags elsewhere."""
    from experiments.cli.tables import console, plain_table

    out = console()
    before = "" if made.from_value is None else f"{made.from_value} -> "
    after = "" if made.to_value is None else str(made.to_value)
    out.print(
        f"next change, against {made.cause}: {made.variable} {before}{after} (effort: {made.effort})", markup=False
    )
    out.print(f"  because {made.why}", markup=False)
    out.print(f"  refuted when {made.refuted_by}", markup=False)
    if made.prediction is not None:
        table = plain_table("curve", "predicted change", "80 % band", "would be called", "from", "label")
        for curve in made.prediction.curves:
            table.add_row(curve.name, *_cells(curve), curve.source, curve.provenance or "-")
        out.print(table)
        for note in made.prediction.notes:
            out.print(f"  {note}", markup=False)
    for flag in made.flags:
        told = " ".join(filter(None, (flag.text, flag.note and f"({flag.note})")))
        out.print(f"  {flag.engine}: {told}", markup=False)
    for one in made.passed_over:
        out.print(f"  later: {one.variable} -> {one.to_value} ({one.reason})", markup=False)
    out.print(f"  {made.no_test or 'the page Advisor runs the comparison that tests it (trilemma ui)'}", markup=False)


def _cells(curve: CurvePrediction) -> tuple[str, str, str]:
    if curve.exact:
        return "0 %", "same outputs", curve.verdict or "-"
    if curve.median_pct is None or curve.band80_pct is None:
        return "measure", "-", "-"
    low, high = curve.band80_pct
    return f"{curve.median_pct:+.1f} %", f"[{low:+.1f}, {high:+.1f}]", curve.verdict or "-"
