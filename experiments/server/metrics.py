"""Prometheus metrics, in a registry of their own. Under vLLM's names where they mean the same, so that dashboards and
load balancers made for it work; ours begin with trilemma:.

Meanings as in vLLM's V1 engine: times to the first token and end to end count from the request's arrival at the
server, inter_token_latency is the time between two emissions of one sample, time per output token the mean of a
finished one over all tokens but the first, and prompt tokens are counted when they have been computed, for every
sample. An answer from an answer cache is in the latencies and sizes, since somebody waited for it, and not in the
counts of prompt and generated tokens, which the engine did not compute; trilemma:answer_cache_hits counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LABELS = ("model_name", "engine")
# vLLM's buckets, in s.
TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REASONS = ("stop", "length", "abort", "error")


class Metrics:
    """The registry, and the children of each engine's labels."""

    def __init__(self, model_name: str, num_engines: int) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._families: dict[str, Any] = {}
        self.engines = [EngineMetrics(self._family, model_name, str(place)) for place in range(num_engines)]
        self.http = self.counter("trilemma:http_responses", "Responses by path and status.", ("path", "status"))
        self.disconnects = self.counter("trilemma:client_disconnects", "Requests whose client went away.", ())

    def _family(self, kind: type, name: str, help: str, labels: Sequence[str], **settings: Any) -> Any:
        """One family a name, shared by the engines."""
        if name not in self._families:
            self._families[name] = kind(name, help, labels, registry=self.registry, **settings)
        return self._families[name]

    def counter(self, name: str, help: str, labels: Sequence[str]) -> Counter:
        """A counter beside the engines' own."""
        found: Counter = self._family(Counter, name, help, labels)
        return found

    def gauge(self, name: str, help: str, read: Callable[[], float], **labels: str) -> None:
        """A gauge that is read when somebody looks."""
        family: Gauge = self._family(Gauge, name, help, tuple(labels))
        (family.labels(**labels) if labels else family).set_function(read)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class EngineMetrics:
    """What is counted for one engine."""

    def __init__(self, family: Callable[..., Any], model_name: str, engine: str) -> None:
        self.labels = {"model_name": model_name, "engine": engine}

        def histogram(name: str, help: str, buckets: Sequence[float]) -> Any:
            return family(Histogram, name, help, LABELS, buckets=buckets).labels(**self.labels)

        def counter(name: str, help: str) -> Any:
            return family(Counter, name, help, LABELS).labels(**self.labels)

        self.prompt_tokens = counter("vllm:prompt_tokens", "Prompt tokens of requests whose prompt was computed.")
        self.generation_tokens = counter("vllm:generation_tokens", "Tokens generated.")
        self.preemptions = counter("vllm:num_preemptions", "Preemptions of running requests.")
        self.prefix_queries = counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.")
        hits = family(Counter, "trilemma:answer_cache_hits", "Answers given from a cache.", (*LABELS, "tier"))
        self.answer_hits = {tier: hits.labels(**self.labels, tier=tier) for tier in ("exact", "semantic")}
        self.prefix_hits = counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache.")
        self.drafts = counter("vllm:spec_decode_num_drafts", "Rows with drafts that were verified.")
        self.draft_tokens = counter("vllm:spec_decode_num_draft_tokens", "Tokens drafted.")
        self.accepted_tokens = counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens accepted.")
        self.ttft = histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", TTFT)
        self.itl = histogram("vllm:inter_token_latency_seconds", "Between two emissions of a sample.", TOKEN)
        self.tpot = histogram("vllm:request_time_per_output_token_seconds", "Mean of a finished sample.", TOKEN)
        self.e2e = histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", REQUEST)
        self.queue = histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", REQUEST)
        self.prompt_sizes = histogram("vllm:request_prompt_tokens", "Prompt tokens of a sample.", TOKENS)
        self.answer_sizes = histogram("vllm:request_generation_tokens", "Tokens of a finished sample.", TOKENS)
        self.step_tokens = histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", STEP)
        self.step_s = counter("trilemma:step_seconds", "Time in steps: planning, computing, committing.")
        self.execute_s = counter("trilemma:step_execute_seconds", "Of step_seconds, computing.")
        success = family(Counter, "vllm:request_success", "Samples by how they ended.", (*LABELS, "finished_reason"))
        per_position = "vllm:spec_decode_num_accepted_tokens_per_pos"
        self._accepted_at = family(Counter, per_position, "Accepted, by place in a draft.", (*LABELS, "position"))
        self.ended = {reason: success.labels(**self.labels, finished_reason=reason) for reason in REASONS}

    def stepped(self, step: Any) -> None:
        """Count an engine_thread.Stepped."""
        self.step_tokens.observe(step.tokens)
        self.step_s.inc(step.step_ns / 1e9)
        self.execute_s.inc(step.execute_ns / 1e9)
        if step.preempted:
            self.preemptions.inc(step.preempted)
        for _, drafted, accepted, _ in step.drafts:
            self.drafts.inc()
            self.draft_tokens.inc(drafted)
            self.accepted_tokens.inc(accepted)
            for place in range(accepted):
                self._accepted_at.labels(**self.labels, position=str(place)).inc()
