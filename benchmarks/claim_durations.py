"""How long does the check of each claim take? Writes what was measured into experiments/claims/running.toml.

    trilemma claims --all                      # first: every check at its own size, quiet; several hours on two cores
    python benchmarks/claim_durations.py [--write]

Reads the newest finished run of each claim at the check's own sizes in the store of $TRILEMMA_HOME, of this machine and
this code, prints expected and measured seconds, and with --write puts the measured ones, rounded up to 5 s, in place of
the table's. Claims without such a run keep what they have.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from pathlib import Path

from experiments.claims import budget, load_claims
from experiments.kinds import kind_of
from experiments.store import Store
from experiments.within import finished_run

TABLE = Path(budget.__file__).with_name("running.toml")
ROUND_S = 5


def measured(store: Store) -> dict[str, float]:
    """Seconds by claim id."""
    found = {}
    for claim in load_claims():
        if claim.state != "checkable":
            continue
        run = finished_run(store, "claim", kind_of("claim").check({"claim": claim.id}))
        took = None if run is None else budget.seconds_of(run.result or {})
        if took is not None:
            found[claim.id] = took
    return found


def rewritten(text: str, seconds: Mapping[str, float]) -> str:
    """The table with these seconds in their rows, rounded up; all else stays as it is."""
    for name, value in seconds.items():
        rounded = 1 if value < 1 else ROUND_S * math.ceil(value / ROUND_S)
        text = re.sub(rf"(?m)^({name} = \{{ seconds = )[\d.]+", rf"\g<1>{rounded}", text)
    return text


def main() -> None:
    """Print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    found, table = measured(Store()), budget.running()
    for name, row in table.items():
        took = f"{found[name]:,.0f} s" if name in found else "not run"
        print(f"{name}  {row.seconds:6,.0f} s expected  {took}")
    if write:
        TABLE.write_text(rewritten(TABLE.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
