"""Many streaming connections at once against `trilemma serve`: is anyone lost, does anything grow.

    python benchmarks/server_load.py [--connections 500] [--seconds 180] [--out server_load.json] [-- SERVE OPTION...]

Starts the server as a process of its own, keeps `connections` clients busy (each sends the next request when its last
one is over), and stops it with SIGTERM. A request counts as answered when its stream ends with [DONE], as refused
when it has a status of 4xx or 5xx with an error, as lost otherwise: those are what must not be. Memory is read from
/proc after a third of the time, which is the warm-up, and at the end; descriptors likewise. The clients run in this
process, on the same cores: the figures are about nobody being lost, not about speed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SENTENCE = "the server answers every one of many clients while they come and go at their own pace"


@dataclass
class Tally:
    """What became of the requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    answered: int = 0
    refused: int = 0
    tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)


def start(options: list[str]) -> tuple[subprocess.Popen[str], str]:
    """The server and its address, once it answers."""
    command = [sys.executable, "-m", "experiments.cli", "serve", "--port", "0", "--json", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with {server.wait()} before it was ready")
        text += line
    return server, json.loads(text)["url"]


def usage(pid: int) -> dict[str, int]:
    """Resident memory, descriptors and threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) * 1024
    threads = int(next(line.split()[1] for line in status.splitlines() if line.startswith("Threads")))
    return {"rss_bytes": rss, "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())), "threads": threads}


async def client(number: int, url: str, until_s: float, tokens: int, tally: Tally) -> None:
    """One connection after another's end, with a new prompt each time."""
    draw, words = random.Random(number), SENTENCE.split()
    host, port = url.removeprefix("http://").split(":")
    while time.monotonic() < until_s:
        prompt = " ".join(draw.choices(words, k=draw.randint(3, 40)))
        body = {"prompt": prompt, "max_tokens": draw.randint(2, tokens), "temperature": 0, "stream": True}
        body |= {"ignore_eos": True, "stream_options": {"include_usage": True}}
        wait_s = await request(host, int(port), json.dumps(body).encode(), tally)
        await asyncio.sleep(min(wait_s, max(0.0, until_s - time.monotonic())))


async def request(host: str, port: int, body: bytes, tally: Tally) -> float:
    """Send one request and count it; how long the server asks to wait before the next, s."""
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    started = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head.encode() + body)
        status = int((await reader.readline()).split()[1])
        header = await reader.readuntil(b"\r\n\r\n")
        first = await reader.read(1)
        if status == 200 and first:
            tally.ttft_s.append(time.monotonic() - started)
        rest = first + await reader.read()
        writer.close()
    except (OSError, IndexError, ValueError, asyncio.IncompleteReadError) as error:
        tally.lost.append(f"{type(error).__name__}: {error}")
        return 0.1
    tally.statuses[status] += 1
    if status == 200 and b"data: [DONE]" in rest:
        tally.answered += 1
        usage_at = rest.rfind(b'"completion_tokens":')
        tally.tokens += int(rest[usage_at:].split(b":")[1].split(b",")[0])
    elif status >= 400 and b'"error"' in rest:
        tally.refused += 1
    else:
        tally.lost.append(f"status {status}, {len(rest)} bytes without an end")
    again = header.lower().partition(b"retry-after:")[2].split(b"\r\n")[0].strip()
    return float(again) if again else 0.0


def scraped(url: str) -> dict[str, float]:
    """The server's own counters of time, s."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()

    def value(start: str) -> float:
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))

    return {
        "at_s": time.monotonic(),
        "loop_cpu_s": value('trilemma:thread_cpu_seconds{thread="loop"'),
        "engine_cpu_s": value('trilemma:thread_cpu_seconds{thread="engine"'),
        "step_s": value("trilemma:step_seconds_total"),
        "execute_s": value("trilemma:step_execute_seconds_total"),
        "tokens": value("vllm:generation_tokens_total"),
    }


def shares(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Of the wall time between two scrapes. The loop's share bounds what the engine's thread can have waited for the
    interpreter's lock; host is planning, committing and text within steps, between is the rest of the engine's time."""
    wall_s = after["at_s"] - before["at_s"]
    spent = {name: after[name] - before[name] for name in before}
    return {
        "loop_cpu": spent["loop_cpu_s"] / wall_s,
        "engine_cpu": spent["engine_cpu_s"] / wall_s,
        "execute": spent["execute_s"] / wall_s,
        "host": (spent["step_s"] - spent["execute_s"]) / wall_s,
        "between": 1 - spent["step_s"] / wall_s,
        "tokens_per_s": spent["tokens"] / wall_s,
    }


async def drive(server: subprocess.Popen[str], url: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the clients and read the server's memory beside them."""
    tally, begun = Tally(), time.monotonic()
    until_s = begun + args.seconds
    clients = [asyncio.create_task(client(n, url, until_s, args.tokens, tally)) for n in range(args.connections)]
    readings: list[dict[str, Any]] = []
    warm_times: dict[str, float] | None = None
    while time.monotonic() < until_s:
        await asyncio.sleep(min(args.every, max(0.1, until_s - time.monotonic())))
        readings.append({"at_s": round(time.monotonic() - begun, 1), **usage(server.pid), "answered": tally.answered})
        if warm_times is None and readings[-1]["at_s"] >= args.seconds / 3:
            warm_times = await asyncio.to_thread(scraped, url)
    assert warm_times is not None
    times = shares(warm_times, await asyncio.to_thread(scraped, url))
    await asyncio.gather(*clients)
    ended_s = time.monotonic() - begun
    await asyncio.sleep(1)
    warm = next(reading for reading in readings if reading["at_s"] >= args.seconds / 3)
    last = usage(server.pid)
    ttft = sorted(tally.ttft_s)
    return {
        "connections": args.connections,
        "seconds": args.seconds,
        "answered": tally.answered,
        "refused": tally.refused,
        "lost": len(tally.lost),
        "lost_examples": tally.lost[:5],
        "statuses": dict(tally.statuses),
        "output_tokens": tally.tokens,
        "drained_s": round(ended_s - args.seconds, 1),
        "ttft_p50_s": ttft[len(ttft) // 2] if ttft else None,
        "after_warm_up": warm,
        "at_end": last,
        "rss_growth_pct": round(100 * (last["rss_bytes"] / warm["rss_bytes"] - 1), 2),
        "shares_of_time": {name: round(value, 3) for name, value in times.items()},
        "readings": readings,
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of an answer")
    parser.add_argument("--every", type=float, default=5, help="seconds between readings of memory")
    parser.add_argument("--out", type=Path)
    parser.add_argument("serve", nargs="*", help="options of `trilemma serve`, after --")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, args.connections + 200)), hard))
    server, url = start(args.serve)
    try:
        result = asyncio.run(drive(server, url, args))
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    result["exit_code"] = code
    text = json.dumps(result, indent=1)
    if args.out:
        args.out.write_text(text + "\n", "utf-8")
    print(text)
    flat = abs(result["rss_growth_pct"]) <= 5
    words = f"memory {'flat' if flat else 'NOT flat'} ({result['rss_growth_pct']} %)"
    print(f"lost {result['lost']}, {words}", file=sys.stderr)
    sys.exit(0 if flat and not result["lost"] and code == 0 else 1)


if __name__ == "__main__":
    main()
