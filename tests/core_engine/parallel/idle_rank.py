"""A rank that only obeys: for tests of supervision. Run as a module by RankProcesses."""

from __future__ import annotations

import argparse
import os
import pickle
import struct
import time
from multiprocessing.connection import Connection

from core_engine.parallel.guard import end_with, take_cores
from core_engine.parallel.progress import Progress


def main() -> None:
    """Obey (what, rank): that rank does it, the others answer. "echo" is for all."""
    parser = argparse.ArgumentParser()
    for name in ("rank", "ranks", "control", "lifeline", "progress", "driver", "by-signal"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--cpus", default="")
    options = parser.parse_args()
    end_with(options.driver, options.lifeline, by_signal=bool(options.by_signal))
    take_cores(tuple(int(cpu) for cpu in options.cpus.split(",") if cpu))
    progress, control = Progress(options.progress, options.ranks), Connection(options.control)
    while True:
        try:
            what, rank = pickle.loads(control.recv_bytes())
        except EOFError:
            os._exit(0)
        if what == "logits":  # rank 0 answers as behind a step; rank 1 fails, says so first and ends as ranks do
            from core_engine.parallel.messages import Failed

            if options.rank:
                control.send(Failed("ValueError", "no", (), "", False))
                time.sleep(0.2)
                os._exit(71)
            time.sleep(0.1)
            control.send(rank)
            control.send_bytes(b"\x80" * 8)
        elif what == "slow":
            for _ in range(60):
                time.sleep(0.1)
                progress.step(options.rank)
        elif rank == options.rank:
            if what == "exit":
                os._exit(3)
            if what == "hang":
                time.sleep(600)
            if what == "half":  # it stops in the middle of an answer
                os.write(control.fileno(), struct.pack("!i", 1000) + b"some of it")
                time.sleep(600)
            if what == "leave":
                control.close()
                time.sleep(600)
        progress.step(options.rank)
        control.send((what, options.rank))


if __name__ == "__main__":
    main()
