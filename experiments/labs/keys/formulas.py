"""Answer keys that the ledger computes: named formulas over a model's config, a card, a price. Nothing is typed in.

A model is anything `load_model_spec` takes (a preset's name in the labs), a card a name of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.capacity import Deployment, max_concurrency, max_seq_len_by_memory
from ledger.formats import element_format
from ledger.hardware import accelerator, catalogue
from ledger.kv_cache import kv_report
from ledger.links import Link
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.money import cost_per_million_output_tokens, monthly_cost
from ledger.operators import StepCosts
from ledger.parallel import bubble_share, part_traffic, rank_parts, ring_factor
from ledger.roofline import attention_intensity, crossover_batch, roofline_report
from ledger.speculation import Costs, accepted_per_draft, break_even_alpha, break_even_cost, speedup, tokens_per_cycle
from ledger.weight_formats import weight_bytes_of
from ledger.weights import parameter_count

Figure = float | int | None


def parameters(model: str) -> int:
    """Parameters of a model."""
    return parameter_count(_spec(model))


def weight_bytes(model: str, weights: str = "fp16", head_weights: str = "16bit", tp: int = 1) -> int:
    """Bytes of the weights in a format (bf16, fp16, w8a8, w4a16, ...); embedding, head and norms stay 16 bit."""
    return weight_bytes_of(_spec(model), weights, tp, 1, head_weights)


def kv_bytes_per_token(model: str, kv_dtype: str | None = None, group: int | None = None, tp: int = 1) -> int:
    """Bytes that one token adds to the KV cache over all layers."""
    found: int = kv_report(_spec(model), 1, 1, kv_dtype, None, tp, group)["kv_bytes_per_token"]
    return found


def kv_bytes(
    model: str,
    tokens: int,
    sequences: int = 1,
    kv_dtype: str | None = None,
    group: int | None = None,
    block: int | None = None,
    tp: int = 1,
) -> int:
    """Bytes of the KV cache of so many sequences of so many tokens."""
    found: int = kv_report(_spec(model), tokens, sequences, kv_dtype, block, tp, group)["kv_bytes_total"]
    return found


def kv_bytes_of_shape(
    layers: int,
    kv_heads: int,
    head_dim: int,
    tokens: int = 1,
    sequences: int = 1,
    kv_dtype: str | None = None,
    group: int | None = None,
) -> int:
    """The same for a shape given in numbers: 2 x layers x KV heads x head size x bytes x tokens x sequences."""
    spec = ModelSpec.from_fields(layers=layers, kv_heads=kv_heads, head_dim=head_dim)
    found: int = kv_report(spec, tokens, sequences, kv_dtype, None, 1, group)["kv_bytes_total"]
    return found


def kv_bytes_with_query_heads(model: str, tokens: int = 1, sequences: int = 1, kv_dtype: str | None = None) -> int:
    """The usual mistake: every query head counted as a KV head (for plain grouped-query models)."""
    spec = _spec(model)
    return kv_bytes_of_shape(spec.num_layers, spec.num_heads, spec.head_dim, tokens, sequences, kv_dtype)


def kv_bits_per_element(kv_dtype: str, head_dim: int = 128, group: int | None = None) -> float:
    """Bits of one KV element with its share of scales and zero points."""
    return 8 * element_format(kv_dtype, group).bytes_of(head_dim) / head_dim


def max_sequences(
    model: str,
    gpu: str,
    seq_len: int,
    weights: str = "bf16",
    kv_dtype: str = "bf16",
    engine: str = "vllm",
    tp: int = 1,
) -> int | None:
    """The most sequences of a length that fit on a card under an engine's rules."""
    return max_concurrency(_deployment(model, gpu, seq_len, weights, kv_dtype, engine, tp))


def max_length(
    model: str, gpu: str, sequences: int = 1, weights: str = "bf16", kv_dtype: str = "bf16", engine: str = "vllm"
) -> int | None:
    """The longest sequences of which so many fit on a card."""
    deployment = Deployment(
        _spec(model), weights, kv_dtype, concurrency=sequences, engine=engine, card=gpu,
        capacity_bytes=accelerator(gpu).memory_bytes,
    )  # fmt: skip
    return max_seq_len_by_memory(deployment)


def card(gpu: str, figure: str, dtype: str = "bf16") -> float:
    """A figure of a card: memory_bytes, bandwidth (B/s), flops (dense FLOP/s of a dtype), link (B/s) or ridge."""
    found = accelerator(gpu)
    figures: Mapping[str, Callable[[], float | None]] = {
        "memory_bytes": lambda: found.memory_bytes,
        "bandwidth": lambda: found.bandwidth_bytes_per_s,
        "flops": lambda: found.rate(dtype)[1],
        "link": lambda: found.link_bytes_per_s,
        "ridge": lambda: found.ridge(dtype),
    }
    return float(figures[figure]() or 0.0)


def step(
    model: str,
    gpu: str,
    phase: str,
    batch: int,
    tokens: int,
    figure: str = "time_s",
    weights: str = "bf16",
    kv_dtype: str = "bf16",
    tp: int = 1,
) -> Figure:
    """A total of a step at a card's roof: time_s, flops, bytes, weight_bytes, kv_bytes, intensity or tokens_per_s."""
    report = roofline_report(
        _spec(model), accelerator(gpu), phase, batch, tokens, weights=weights, kv_dtype=kv_dtype, tp=tp
    )
    found: Figure = report["totals"][figure]
    return found


def crossover(model: str, gpu: str, weights: str = "bf16") -> int | None:
    """The smallest batch at which decode's linear layers take as long to compute as to read."""
    return crossover_batch(StepCosts(_spec(model), weights), accelerator(gpu))


def kv_intensity(model: str, tokens: int = 4096, kv_dtype: str = "bf16") -> float | None:
    """FLOP for each byte of KV cache that decode's attention reads, whatever the batch."""
    return attention_intensity(_spec(model), tokens, kv_dtype=kv_dtype)


def speculation_tokens(alpha: float, k: int) -> float:
    """Expected tokens of a cycle that drafts k with acceptance alpha, the bonus token included."""
    return tokens_per_cycle(alpha, k)


def speculation_speedup(alpha: float, k: int, c: float, v: float = 1.0, parallel: bool = False) -> float:
    """Speed over that of plain decoding: tokens of a cycle / (v + k c)."""
    return speedup(alpha, k, Costs(v, c, parallel))


def speculation_break_even_cost(alpha: float, k: int, v: float = 1.0) -> float:
    """The draft's cost, in target passes, above which drafting loses."""
    return break_even_cost(alpha, k, v)


def speculation_break_even_alpha(k: int, c: float, v: float = 1.0) -> float | None:
    """The acceptance from which on drafting pays."""
    return break_even_alpha(k, Costs(v, c))


def accepted_share(alpha: float, k: int) -> float:
    """Accepted of all drafted tokens: what logs call the acceptance rate, below alpha."""
    return accepted_per_draft(alpha, k)


def all_reduce_bytes(model: str, tokens: int, tp: int = 2, element_bytes: int = 2) -> int:
    """Payload that one rank hands to the all-reduces of a step of so many tokens."""
    spec = _spec(model)
    return part_traffic(spec, rank_parts(spec, tp, 1)[0], tokens, 0, element_bytes).all_reduce_bytes


def ring_bytes_factor(ranks: int) -> float:
    """What a ring sends for each byte of payload: 2 (n - 1) / n."""
    return ring_factor(ranks)


def all_reduce_seconds(num_bytes: float, ranks: int, bytes_per_s: float, latency_s: float = 0.0) -> float:
    """Seconds of one ring all-reduce over links of a bandwidth and a latency."""
    return Link(latency_s, bytes_per_s).all_reduce_s(num_bytes, ranks)


def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """Share of a step in which a stage waits: (p - 1) / (m + p - 1)."""
    return bubble_share(stages, micro_batches)


def month(
    requests_per_s: float,
    output_tokens: int,
    tokens_per_s_per_card: float,
    figure: str = "cost",
    input_tokens: int = 0,
    utilisation: float = 0.7,
    price: float = 1.0,
) -> float:
    """A figure of a 30-day month: cost, cards, output_tokens, output_tokens_per_s, device_hours, cost_of_busy_time."""
    found = monthly_cost(
        requests_per_s, input_tokens, output_tokens, tokens_per_s_per_card, utilisation=utilisation,
        price_per_device_hour=price,
    )  # fmt: skip
    return float(found[figure])


def cost_per_million(tokens_per_s: float, price: float = 1.0) -> float | None:
    """Cost of a million output tokens at a throughput, on one card."""
    return cost_per_million_output_tokens(3600.0, round(3600 * tokens_per_s), price)


def tail_tokens(lengths: Sequence[int], block: int) -> int:
    """Tokens left empty in the last block of each sequence."""
    return sum(-length % block for length in lengths)


def timeline_metric(emissions_s: Sequence[float], tokens: Sequence[int], figure: str, tool: str = "ours") -> Any:
    """A metric of one request sent at 0 whose chunks came at these times with so many tokens each.

    ours: ttft_s, tpot_s, itl_p99_s, itl_mean_s or e2e_s. vllm, guidellm, aiperf: a name of that tool, its mean.
    """
    from experiments.metrics.latency import e2e_s, itl_s, tpot_s, ttft_s
    from experiments.metrics.translation import in_other_terms
    from experiments.statistics import percentile

    request = _request(emissions_s, tokens)
    if tool != "ours":
        record = {"requests": [request], "steps": []}
        return next(row["mean"] for row in in_other_terms(record)[tool] if row["name"] == figure)
    gaps = itl_s(request)
    found: Mapping[str, Any] = {
        "ttft_s": ttft_s(request),
        "tpot_s": tpot_s(request),
        "e2e_s": e2e_s(request),
        "itl_p99_s": percentile(gaps, 99),
        "itl_mean_s": sum(gaps) / len(gaps) if gaps else None,
    }
    return found[figure]


def _request(emissions_s: Sequence[float], tokens: Sequence[int]) -> dict[str, Any]:
    """A request's events as a run record has them."""
    moments = [round(at * 1e9) for at in emissions_s]
    return {
        "id": "r", "arrival_ns": 0, "send_ns": 0, "finish_ns": moments[-1], "finish_reason": "length", "error": None,
        "emissions": [list(pair) for pair in zip(moments, tokens, strict=True)],
    }  # fmt: skip


def _spec(model: str) -> ModelSpec:
    return load_model_spec(model)


def _deployment(model: str, gpu: str, seq_len: int, weights: str, kv_dtype: str, engine: str, tp: int) -> Deployment:
    return Deployment(
        _spec(model), weights, kv_dtype, seq_len=seq_len, engine=engine, tp=tp, card=gpu,
        capacity_bytes=catalogue()[gpu].memory_bytes,
    )  # fmt: skip


FORMULAS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        parameters, weight_bytes, kv_bytes_per_token, kv_bytes, kv_bytes_of_shape, kv_bytes_with_query_heads,
        kv_bits_per_element, max_sequences, max_length, card, step, crossover, kv_intensity, speculation_tokens,
        speculation_speedup, speculation_break_even_cost, speculation_break_even_alpha, accepted_share,
        all_reduce_bytes, ring_bytes_factor, all_reduce_seconds, pipeline_bubble, month, cost_per_million, tail_tokens,
        timeline_metric,
    )
}  # fmt: skip
