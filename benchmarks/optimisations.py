"""Every optimisation of the CPU path, off against on, in turn in one run, and where it does not pay.

    python benchmarks/optimisations.py [--only ROW]... [--dtype auto] [--rounds 15] [--quick] [--json FILE]

The embedded model. A point is one size; its ratio is time off / time on of the same round, median with the 10th and
90th percentile. A row does not pay where the median is 1 or less. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from interleave import interleaved, markdown, ratio
from optimisation_rows import ROWS, Point, table_dtype

from core_engine.environment import cpu_name, resolve_threads

MIB = 2**20


def measure(row: str, point: Point, rounds: int) -> dict[str, Any]:
    """One line of the table."""
    seconds = interleaved({"off": point.off, "on": point.on}, rounds)
    found = ratio(seconds["off"], seconds["on"])
    return {
        "row": row, "point": point.name, "rounds": rounds, "ratio": found, "pays": found["median"] > 1,
        "off_ms": 1e3 * median(seconds["off"]), "on_ms": 1e3 * median(seconds["on"]),
        "off_bytes": point.memory and point.memory[0], "on_bytes": point.memory and point.memory[1],
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """All points, then one line a row with the region where it does not pay."""
    points = []
    for line in lines:
        spread = f"{line['ratio']['median']:.2f} ({line['ratio']['low']:.2f} to {line['ratio']['high']:.2f})"
        memory = f"{line['off_bytes'] / MIB:.1f} / {line['on_bytes'] / MIB:.1f}" if line["off_bytes"] else ""
        points.append([line["row"], line["point"], f"{line['off_ms']:.2f}", f"{line['on_ms']:.2f}", spread, memory])
    names = dict.fromkeys(line["row"] for line in lines)
    where = [
        [name, (ROWS[name].__doc__ or "").strip(),
         "; ".join(f"{line['point']} ({line['ratio']['median']:.2f})" for line in lines
                   if line["row"] == name and not line["pays"]) or "nowhere here"]
        for name in names
    ]  # fmt: skip
    header = ["row", "at", "off ms", "on ms", "off / on", "buffers MiB, off / on"]
    return f"{markdown(header, points)}\n\n{markdown(['row', 'off, then on', 'does not pay at'], where)}"


def main() -> None:
    """Print lines as they come, then the tables; write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--dtype", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="the first two points of every row, 3 rounds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(resolve_threads(0))
    dtype, rounds, lines = table_dtype(options.dtype), 3 if options.quick else options.rounds, []
    machine = {"cpu": cpu_name(), "threads": torch.get_num_threads(), "dtype": dtype, "torch": torch.__version__}
    for name in options.only or ROWS:
        for point in islice(ROWS[name](dtype), 2 if options.quick else None):
            lines.append(measure(name, point, rounds))
            print(name, point.name, f"{lines[-1]['ratio']['median']:.2f}", flush=True)
            if options.json:  # at every point: a run takes a quarter of an hour
                options.json.write_text(json.dumps({**machine, "points": lines}, indent=1))
    print(f"\n{cpu_name()}, {torch.get_num_threads()} threads, {dtype}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
