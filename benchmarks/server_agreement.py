"""Do a peer's client and the server agree on the same stream? GuideLLM drives `trilemma serve` unchanged.

    python -m venv VENV && VENV/bin/pip install guidellm
    python benchmarks/server_agreement.py --guidellm VENV/bin/guidellm [--requests 100] [--streams 4] [--out FILE.json]
                                          [-- SERVE OPTION...]

Two clients can't watch one stream, but the server can: with --log-events it notes when a request came in and when each
write with tokens left, and both name a request by its response id. For every request the peer's figures stand beside
the same ones made of the server's moments, in the same terms:

    GuideLLM                          from the server's moments
    time_to_first_token_ms            first send - received           (GuideLLM counts from its own send)
    inter_token_latency_ms            (last send - first send) / (tokens - tokens of the first send), which is our tpot
    time_per_output_token_ms          (last send - received) / tokens; contains the first token, unlike tpot elsewhere

A client's TTFT is longer by the way to the server and back. They agree when p50 and p99 over the requests differ by
3 % or 2 ms at most. Then `trilemma bench --endpoint` drives the same server, and its ttft and tpot stand beside the
server's for its requests, the last ones in the log: so both clients agree with the server about what each was sent.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from server_load import start

from experiments.statistics import percentile

SHARE, MS = 0.03, 2.0
Line = Mapping[str, Any]


def server_figures(line: Line) -> dict[str, float | None]:
    """TTFT, ITL and GuideLLM's TPOT in ms of a request's line in the server's log."""
    sends = line["sends"]
    tokens, of_first = line["completion_tokens"], sends[0][1]
    span_ms = (line["last_send_ns"] - line["first_send_ns"]) / 1e6
    return {
        "time_to_first_token_ms": (line["first_send_ns"] - line["received_ns"]) / 1e6,
        "inter_token_latency_ms": span_ms / (tokens - of_first) if tokens > of_first else None,
        "time_per_output_token_ms": (line["last_send_ns"] - line["received_ns"]) / 1e6 / tokens,
    }


def agreement(pairs: Sequence[tuple[Mapping[str, float | None], Mapping[str, float | None]]]) -> list[dict[str, Any]]:
    """Per figure and percentile: the client's, the server's, and whether they agree."""
    rows = []
    for name in ("time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms"):
        both = [(a[name], b[name]) for a, b in pairs if a.get(name) is not None and b[name] is not None]
        for q in (50, 99):
            theirs = percentile([a for a, _ in both if a is not None], q)
            ours = percentile([b for _, b in both if b is not None], q)
            if theirs is not None and ours is not None:
                rows.append(_row(name, q, len(both), theirs, ours))
    return rows


def _row(figure: str, q: int, n: int, client: float, server: float) -> dict[str, Any]:
    """A percentile in ms on both sides."""
    agree = abs(client - server) <= max(SHARE * server, MS)
    return {"figure": figure, "q": q, "n": n, "client_ms": client, "server_ms": server, "agree": agree}


def guidellm_requests(path: Path) -> list[dict[str, Any]]:
    """The successful requests of a GuideLLM report."""
    report = json.loads(path.read_text("utf-8"))
    return [request for benchmark in report["benchmarks"] for request in benchmark["requests"]["successful"]]


def run_guidellm(program: str, url: str, args: argparse.Namespace, out: Path) -> None:
    """One benchmark of a fixed number of streams; prompts of its own making, cut by the model's own tokenizer."""
    from core_engine.model.embedded import ensure_embedded

    command = [
        program, "run",
        "--backend", f"kind=openai_http,target={url},request_format=/v1/{args.route}",
        "--profile", f"kind=concurrent,streams={args.streams}",
        "--constraint", f"kind=max_requests,count={args.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens={args.prompt_tokens},output_tokens={args.output_tokens}",
        "--tokenizer", f"kind=huggingface_auto,model={ensure_embedded(lambda _: None)}",
        "--output", f"kind=json,path={out}", "--disable-console",
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=sys.stderr)


def paired(
    requests: Sequence[Mapping[str, Any]], log: Path, name: Callable[[Mapping[str, Any]], str]
) -> list[tuple[Mapping[str, float | None], Mapping[str, float | None]]]:
    """Each of a client's requests with the server's figures for it."""
    lines = {line["id"]: line for line in map(json.loads, log.read_text("utf-8").splitlines()) if line["sends"]}
    found = [(request, server_figures(lines[name(request)])) for request in requests if name(request) in lines]
    if not found:
        raise SystemExit("no request of the client is in the server's log")
    return found


def run_ours(url: str, args: argparse.Namespace) -> dict[str, Any]:
    """Metrics of our own client's run."""
    command = [
        sys.executable, "-m", "experiments.cli", "bench", "--endpoint", url, "--workload", args.workload,
        "--requests", str(args.requests), "--json",
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    metrics: dict[str, Any] = json.loads(done.stdout)
    return metrics


def ours_beside(metrics: Mapping[str, Any], log: Path) -> list[dict[str, Any]]:
    """Our ttft and tpot beside the server's for as many of its last requests."""
    lines = [line for line in map(json.loads, log.read_text("utf-8").splitlines()) if line["sends"]]
    last = sorted(lines, key=lambda line: int(line["received_ns"]))[-metrics["completed"] :]
    figures = [server_figures(line) for line in last]
    rows = []
    for ours, name in (("ttft_s", "time_to_first_token_ms"), ("tpot_s", "inter_token_latency_ms")):
        values = [value[name] for value in figures if value[name] is not None]
        for q in (50, 99):
            client, server = 1000 * metrics[ours][f"p{q}"], percentile([v for v in values if v is not None], q)
            assert server is not None
            rows.append(_row(ours, q, len(values), client, server))
    return rows


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guidellm", required=True, help="the program, in a virtual environment of its own")
    parser.add_argument("--route", choices=("completions", "chat/completions"), default="completions")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--workload", default="chat", help="of our own client")
    parser.add_argument("--out", type=Path)
    parser.add_argument("serve", nargs="*", help="options of `trilemma serve`, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, report = Path(folder) / "events.jsonl", Path(folder) / "guidellm.json"
        server, url = start([*args.serve, "--log-events", str(log)])
        try:
            run_guidellm(args.guidellm, url, args, report)
            rows = agreement(paired(guidellm_requests(report), log, lambda request: request["response_id"]))
            ours = ours_beside(run_ours(url, args), log)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        requests = guidellm_requests(report)
        served = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    result = {
        "requests": len(requests),
        "statuses": sorted({line["status"] for line in served}),
        "same_token_counts": all(
            request["output_tokens"] == line["completion_tokens"]
            for request in requests
            for line in served
            if line["id"] == request["response_id"]
        ),
        "guidellm": rows,
        "ours": ours,
    }
    text = json.dumps(result, indent=1)
    if args.out:
        args.out.write_text(text + "\n", "utf-8")
    print(text)
    sys.exit(0 if rows and all(row["agree"] for row in [*rows, *ours]) else 1)


if __name__ == "__main__":
    main()
