"""A server's own /metrics page (Prometheus text of vLLM or SGLang) as evidence; two pages tell more than one.

Owns the servers' names and what each means here. One page has gauges of a moment and everything counted since the
server started; the difference of two pages is the time between them, and rates need its length. What a page does not
say stays unknown. Our own server writes vLLM's names, with trilemma: beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from experiments.advisor.evidence import Evidence, evidence_of
from ledger.errors import InputError

PREFIXES = {"vLLM": "vllm:", "SGLang": "sglang:"}
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
# Requests more that wait on the second page before its queue is called growing.
GROWN, GROWN_SHARE = 2, 0.2

# Path of the document -> the names, the newest first.
GAUGES: dict[str, tuple[str, ...]] = {
    "load.running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "load.waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
}
SHARES = {"kv.used_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")}
COUNTERS: dict[str, tuple[str, ...]] = {
    "counters.preemptions": ("vllm:num_preemptions", "sglang:num_retracted_requests"),
    "completed": ("vllm:request_success", "sglang:num_requests"),
}
LATENCIES: dict[str, tuple[str, ...]] = {
    "ttft_s": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "itl_s": (
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
    "tpot_s": ("vllm:request_time_per_output_token_seconds",),
    "e2e_s": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"),
}  # fmt: skip
MEANS: dict[str, tuple[str, ...]] = {
    "latency_breakdown.queue_s": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds"),
    "latency_breakdown.prefill_s": ("vllm:request_prefill_time_seconds",),
    "latency_breakdown.decode_s": ("vllm:request_decode_time_seconds",),
    "load.prompt_tokens": ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram"),
    "load.output_tokens": ("vllm:request_generation_tokens", "sglang:generation_tokens_histogram"),
}
HITS, QUERIES = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"), (
    "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries",
)  # fmt: skip
GENERATED = ("vllm:generation_tokens", "sglang:generation_tokens")
INFO = ("vllm:cache_config_info", "vllm:cache_config")
KV_DTYPES = {"auto": "auto", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass
class Histogram:
    """Buckets by upper bound (cumulative counts), the sum and the count of what was observed."""

    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    sum: float | None = None
    count: float = 0.0

    def since(self, before: Histogram) -> Histogram:
        """What was observed after `before`, which may be nothing; all of it where the server was started again."""
        if self.count < before.count:
            return self
        left = {bound: count - before.buckets.get(bound, 0.0) for bound, count in self.buckets.items()}
        whole = None if self.sum is None or before.sum is None else self.sum - before.sum
        return Histogram(left, whole, self.count - before.count)

    @property
    def mean(self) -> float | None:
        """None when nothing was observed, or the page has no sum."""
        return self.sum / self.count if self.count and self.sum is not None else None

    def quantile(self, q: float) -> float | None:
        """By linear interpolation in its bucket, as Prometheus does; None where it lies beyond the last bound."""
        rank, below, low = q * self.count, 0.0, 0.0
        if not self.count:
            return None
        for bound in sorted(self.buckets):
            count = self.buckets[bound]
            if count >= rank:
                if bound == float("inf"):
                    return None
                return low + (bound - low) * ((rank - below) / (count - below) if count > below else 1.0)
            below, low = count, bound
        return None


@dataclass
class Page:
    """What one page says, summed over engines; of shares the mean. `info` is of the cache's configuration."""

    engine: str
    values: dict[str, float] = field(default_factory=dict)
    shares: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    histograms: dict[str, Histogram] = field(default_factory=dict)
    by_position: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    info: dict[str, str] = field(default_factory=dict)

    def first(self, names: Sequence[str]) -> tuple[str, float] | None:
        """(name, value) of the first name that is there."""
        return next(((name, self.values[name]) for name in names if name in self.values), None)


def parse_page(text: str, field_name: str = "--metrics") -> Page:
    """A page of vLLM or SGLang; InputError, naming `field_name`, where it is neither or not in Prometheus's format."""
    from prometheus_client.parser import text_string_to_metric_families

    accepted = "the Prometheus text of a vLLM or SGLang server's /metrics"
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise InputError(field_name, _brief(text), f"{accepted} ({error})") from None
    counts = {engine: sum(one.name.startswith(prefix) for one in families) for engine, prefix in PREFIXES.items()}
    engine = max(counts, key=lambda name: counts[name])
    if not counts[engine]:
        raise InputError(field_name, _brief(text), accepted)
    ours = any(one.name.startswith("trilemma:") for one in families)
    page = Page("trilemma" if ours else engine)
    for family in families:
        for sample in family.samples:
            try:
                _take(page, family.type, sample.name, sample.labels, float(sample.value))
            except (KeyError, ValueError):  # a bucket without a bound, a place that is no number
                raise InputError(field_name, f"{sample.name} {sample.labels}"[:60], accepted) from None
    return page


def _brief(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first[:60]


_HIT_RATE = "sglang:cache_hit_rate"
_SHARE_NAMES = {_HIT_RATE, *(name for names in SHARES.values() for name in names)}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"


def _take(page: Page, kind: str, name: str, labels: Mapping[str, str], value: float) -> None:
    if value != value or name.endswith("_created"):
        return
    if name in INFO:
        page.info.update(labels)
    elif kind in ("histogram", "gaugehistogram"):
        base, _, part = name.rpartition("_")
        histogram = page.histograms.setdefault(base, Histogram())
        if part == "bucket":
            histogram.buckets[float(labels["le"])] += value
        elif part == "sum":
            histogram.sum = (histogram.sum or 0.0) + value
        elif part == "count":
            histogram.count += value
    elif name.removesuffix("_total") == _PER_POSITION:
        page.by_position[int(labels.get("position", -1))] += value
    elif name in _SHARE_NAMES:
        page.shares[name].append(value)
    else:
        base = name.removesuffix("_total")
        page.values[base] = page.values.get(base, 0.0) + value


def evidence_from_pages(
    first: str,
    later: str | None = None,
    *,
    seconds: float | None = None,
    slo: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Evidence:
    """Evidence of one page, or of the time between two of the same server.

    seconds: how far they are apart; without it there are no rates. settings: what is known of the server's variables,
    which a page says little of. InputError for what is no page, and for pages of different servers.
    """
    pages = [parse_page(first)]
    if later is not None:
        pages.append(parse_page(later, "--metrics-later"))
        if pages[0].engine != pages[1].engine:
            raise InputError("--metrics-later", pages[1].engine, f"a page of the same server, {pages[0].engine}")
    document, sources = document_of_pages(pages, seconds)
    document["config"] = {**document["config"], **(settings or {})}
    told = "two pages" if later is not None else "a page"
    return evidence_of(document, f"{told} of {pages[0].engine}'s metrics", slo=slo, sources=sources)


def document_of_pages(pages: Sequence[Page], seconds: float | None) -> tuple[dict[str, Any], dict[str, str]]:
    """(the numbers of one or two pages in the form of docs/advisor.md, path -> the metric that it is from)."""
    found: dict[str, float | bool | None] = {}
    sources: dict[str, str] = {}

    def put(path: str, value: float | bool | None, name: str) -> None:
        if value is not None:
            found[path], sources[path] = value, name

    for path, names in GAUGES.items():
        told = [one for page in pages if (one := page.first(names)) is not None]
        if told:
            put(path, fmean(value for _, value in told), told[0][0])
    _put_shares(pages, put)
    for path, names in COUNTERS.items():
        if (rise := _rise(pages, names)) is not None:
            put(path, rise[1], rise[0])
    for path, names in LATENCIES.items():
        if (shape := _histogram(pages, names)) is not None:
            put(f"{path}.mean", shape[1].mean, shape[0])
            for key, q in QUANTILES.items():
                put(f"{path}.{key}", shape[1].quantile(q), shape[0])
    for path, names in MEANS.items():
        if (shape := _histogram(pages, names)) is not None:
            put(path, shape[1].mean, f"{shape[0]}, of {shape[1].count:.0f} requests that ended")
    _put_rates(pages, seconds, put, found)
    _put_host(pages, seconds, put)
    _put_prefix(pages, put)
    _put_drafts(pages, put)
    config = _config(pages[-1], found, put)
    return {**_nested(found), "engine": pages[-1].engine, "config": config}, sources


def _put_shares(pages: Sequence[Page], put: Any) -> None:
    for path, names in SHARES.items():
        name = next((name for name in names if name in pages[-1].shares), None)
        if name is None:
            continue
        values = [min(1.0, value) for page in pages for value in page.shares.get(name, [])]
        put(path, fmean(values), name)
        put(path.replace("used", "peak"), max(values), name)


def _rise(pages: Sequence[Page], names: Sequence[str]) -> tuple[str, float] | None:
    """(name, how far a counter rose between two pages, or what it is at on one); from 0 after a restart."""
    last = pages[-1].first(names)
    if last is None:
        return None
    before = pages[0].values.get(last[0], 0.0) if len(pages) > 1 else 0.0
    return last[0], last[1] - before if last[1] >= before else last[1]


def _histogram(pages: Sequence[Page], names: Sequence[str]) -> tuple[str, Histogram] | None:
    for name in names:
        last = pages[-1].histograms.get(name)
        if last is None:
            continue
        before = pages[0].histograms.get(name) if len(pages) > 1 else None
        return name, last if before is None else last.since(before)
    return None


def _put_rates(pages: Sequence[Page], seconds: float | None, put: Any, found: Mapping[str, Any]) -> None:
    if len(pages) < 2:
        return
    queue = [one[1] for page in pages if (one := page.first(GAUGES["load.waiting"])) is not None]
    if len(queue) == 2 and queue[1] > queue[0] + max(GROWN, GROWN_SHARE * queue[0]):
        put("load.growing", True, GAUGES["load.waiting"][0])  # that it did not grow takes more than two looks
    if not seconds:
        return
    put("duration_s", seconds, "the time between the pages")
    if (tokens := _rise(pages, GENERATED)) is not None:
        put("output_tokens_per_s", tokens[1] / seconds, tokens[0])
    if "completed" in found:
        put("requests_per_s", float(found["completed"]) / seconds, "completed")


def _put_host(pages: Sequence[Page], seconds: float | None, put: Any) -> None:
    """What only our own server says: time in steps, and of it in computing."""
    whole, computing = (_rise(pages, (f"trilemma:step_{name}seconds",)) for name in ("", "execute_"))
    if whole is None or computing is None or not whole[1]:
        return
    put("steps.host_share", min(1.0, max(0.0, 1 - computing[1] / whole[1])), whole[0])
    if len(pages) == 2 and seconds:
        put("steps.busy_share", min(1.0, whole[1] / seconds), whole[0])


def _put_prefix(pages: Sequence[Page], put: Any) -> None:
    hits, asked = _rise(pages, HITS), _rise(pages, QUERIES)
    if hits is not None and asked is not None and asked[1]:
        put("counters.prefix_hit_rate", min(1.0, hits[1] / asked[1]), hits[0])
    elif rates := pages[-1].shares.get(_HIT_RATE):
        put("counters.prefix_hit_rate", min(1.0, fmean(rates)), _HIT_RATE)


def _put_drafts(pages: Sequence[Page], put: Any) -> None:
    """Acceptance; a server without speculation either lacks these or leaves them at 0."""
    cycles, drafted, accepted = (
        _rise(pages, (f"vllm:spec_decode_num_{name}",)) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if cycles and drafted and accepted and cycles[1] and drafted[1]:
        put("counters.acceptance_rate", min(1.0, accepted[1] / drafted[1]), accepted[0])
        put("speculation.k", drafted[1] / cycles[1], drafted[0])
        put("counters.tokens_per_pass", 1 + accepted[1] / cycles[1], accepted[0])
        put("counters.alpha", _alpha(pages, cycles[1]), _PER_POSITION)
    elif (length := pages[-1].values.get("sglang:spec_accept_length")) and length > 0:
        put("counters.tokens_per_pass", length, "sglang:spec_accept_length")
        rate = pages[-1].values.get("sglang:spec_accept_rate")
        put("counters.acceptance_rate", min(1.0, rate) if rate else None, "sglang:spec_accept_rate")


def _alpha(pages: Sequence[Page], cycles: float) -> float | None:
    """Accepted of the positions that were tested: the first of every cycle, and each after one that was accepted."""
    before = pages[0].by_position if len(pages) > 1 else {}
    accepted = [count - before.get(place, 0.0) for place, count in sorted(pages[-1].by_position.items())]
    tested = cycles + sum(accepted[:-1])
    return min(1.0, sum(accepted) / tested) if accepted and tested > 0 and min(accepted) >= 0 else None


def _config(page: Page, found: Mapping[str, Any], put: Any) -> dict[str, Any]:
    """What the page tells of the settings, and how many sequences of this load its KV memory holds."""
    told: dict[str, Any] = {}
    size, blocks = (_whole(page.info.get(name)) for name in ("block_size", "num_gpu_blocks"))
    if size:
        told["block_size"] = size
    if (kind := page.info.get("cache_dtype")) is not None:
        told["kv_dtype"] = KV_DTYPES.get(kind, kind)
    if (cached := page.info.get("enable_prefix_caching")) in ("True", "False"):
        told["prefix_cache"] = "on" if cached == "True" else "off"
    tokens = size * blocks if size and blocks else page.values.get("sglang:max_total_num_tokens")
    lengths = [found[path] for path in ("load.prompt_tokens", "load.output_tokens") if path in found]
    if tokens and len(lengths) == 2 and sum(lengths) > 0:
        put("kv.max_sequences", float(tokens) / sum(lengths), "cache size over the mean length of a request")
    return told


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _nested(found: Mapping[str, float | bool | None]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in found.items():
        group, _, key = path.rpartition(".")
        if group:
            document.setdefault(group, {})[key] = value
        else:
            document[key] = value
    return document
