"""What the simulator gives for measurements that others published, with the error of each, as a Markdown table.

    python benchmarks/simulator_public.py [--only MODEL] [--out FILE.md]

Nothing is measured here: the published figures and their sources are in experiments/simulator/public_measurements.toml.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.simulator.public import compared, measurements

HEAD = "| model | on | load | metric | published | simulated | error | band | profile | source |\n" + "|--" * 10 + "|"


def main(argv: list[str] | None = None) -> int:
    """Print the table; exit code 1 when an error is outside its band."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a model's name")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    lines, outside = [HEAD], 0
    for row in measurements():
        if options.only not in row["model"]:
            continue
        found = compared(row)
        outside += abs(found.error_pct) > found.band_pct
        on = f"{row.get('tp', 1)} x {row['gpu']}, {row.get('weights', 'bf16')}"
        load = (
            f"{row['requests']} {'clients' if row['load'] == 'closed' else 'at once'}, {row['input']} + {row['output']}"
        )
        lines.append(
            f"| {row['model']} | {on} | {load} | {row['metric']} | {found.measured:.4g} | {found.simulated:.4g} |"
            f" {found.error_pct:+.0f} % | {found.band_pct:.0f} % | {found.calibration} | {found.source} |"
        )
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
