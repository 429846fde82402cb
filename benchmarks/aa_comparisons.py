"""40 comparisons of a value with itself on the real model: how many show any better or worse curve?

    python benchmarks/aa_comparisons.py [--comparisons 40] [--first-seed 1] [--set NAME=VALUE]...

Fast form: 2 requests at once, 32 prompt and 4 output tokens each, 5 repeats, a 16 MiB KV pool; the model is loaded once
and everything runs in this process. At most 4 of 40 may differ (a 5 % false-alarm rate gives 2 on average); the exit
code is 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import time

from core_engine.variables import parse_setting
from experiments.compare import run_comparison
from experiments.rig import Rig

MOST_SHARE = 0.1
FAST = {"kv_memory_mib": 16, "max_num_batched_tokens": 64, "max_num_seqs": 4}


def main() -> int:
    """Run them, print one line each and the count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--repeats", default="5")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = {**FAST, **dict(parse_setting(text) for text in options.set)}
    rig, different, floors = Rig(), 0, []
    for number in range(options.first_seed, options.first_seed + options.comparisons):
        began = time.perf_counter()
        spec = {"variable": "batching", "values": ["continuous", "continuous"], "workload": "equal", "num_requests": 2,
                "max_tokens_cap": 4, "repeats": options.repeats, "settings": settings, "seed": number}  # fmt: skip
        result = run_comparison(spec, None, f"aa{number}", rig=rig)
        said = {curve["name"]: curve["verdict"] for curve in result["curves"]}
        floors.append({curve["name"]: curve["noise_floor_pct"] for curve in result["curves"]})
        wrong = [f"{name} {verdict}" for name, verdict in said.items() if verdict in ("better", "worse")]
        different += bool(wrong)
        print(f"{number:3} {time.perf_counter() - began:5.1f} s  {', '.join(wrong) or 'none'}", flush=True)
    middle = {name: round(sorted(floor[name] for floor in floors)[len(floors) // 2], 2) for name in floors[0]}
    print(json.dumps({"comparisons": options.comparisons, "with_better_or_worse": different,
                      "median_noise_floor_pct": middle}))  # fmt: skip
    return int(different > MOST_SHARE * options.comparisons)


if __name__ == "__main__":
    raise SystemExit(main())
