"""What a serving engine holds beside weights and KV cache: activations, context, graphs, communicator. Estimates.

Every figure names its source. Activations of this workbench's own engine are in ledger.activations and verified against
it; those of other engines follow from the widths of the model's layers and from published measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ledger.activations import activation_how, activation_peak_bytes
from ledger.errors import InputError
from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.partition import rank_share
from ledger.weights import CHOSEN_NAMES, TensorGroup, tensor_groups

GIB = 2**30
ELEMENT_BYTES = 2  # activations are 16-bit whatever the weights' format

# vLLM profiles its largest step with max_num_seqs rows of logits through the whole sampler: 16-bit and float32 logits,
# the sorted copy with 64-bit indices and the sort's own buffers, probabilities. 38 B an element is the slope of six
# published measurements over vocabularies from 128,256 to 201,088 and models from 0.6B to 120B (H100, 1,024 rows).
VLLM_SAMPLER_BYTES = 38
VLLM_FIXED_BYTES = 42 * 2**20  # what the same fit leaves over
VLLM_SOURCE = "llm-d, empirical-vllm-memory-results.md (vLLM 0.11, H100 80 GB)"
WORKSPACE_BYTES = round(0.13 * GIB)
CONTEXT_BYTES = round(0.61 * GIB)
COMMUNICATOR_BYTES = round(0.42 * GIB)
GRAPH_BYTES = 512 * 2**20
# What runs one after the other within a layer; experts and the MLP beside them run together.
_SUBLAYERS = {"attention": "attention", "mlp": "mlp", "experts": "mlp", "state": "state"}
LARGE_CARD_BYTES = 70 * GIB
LLAMA_CPP_UBATCH = 512
MAX_CONTEXT_TOKENS = 10**9


@dataclass(frozen=True)
class Buffer:
    """An estimated account: its bytes and how they come about, with the source."""

    name: str
    bytes: int
    how: str


@dataclass(frozen=True)
class Step:
    """The largest step an engine has to hold: tokens in it, rows that need logits, cached tokens that it reads."""

    tokens: int
    logit_rows: int
    context_tokens: int


@dataclass(frozen=True)
class LayerWidth:
    """Elements a token takes at the widest moment of a layer on one rank, and in which part that is."""

    elements: int
    part: str


def default_logit_rows(engine: str, capacity_bytes: int | None, card: str = "") -> int:
    """Rows of logits the engine prepares for when nobody says how many sequences run at once.

    vLLM: max_num_seqs is 1,024 on cards of 70 GiB and more, else 256, also where `card` names an A100. TensorRT-LLM:
    max_batch_size 2,048. SGLang: its largest captured batch, 256 from 60 GB on, else 32. llama.cpp: n_ubatch. Ours:
    max_num_seqs 8.
    """
    large = capacity_bytes is None or capacity_bytes >= LARGE_CARD_BYTES
    rows = {
        "vllm": 1024 if large and "a100" not in card.lower() else 256,
        "sglang": 256 if large else 32,
        "tensorrt-llm": 2048,
        "llama.cpp": LLAMA_CPP_UBATCH,
        "trilemma": 8,
    }
    return rows[engine]


def layer_width(spec: ModelSpec, tp: int = 1, groups: Iterable[TensorGroup] | None = None) -> LayerWidth:
    """The widest moment of the widest layer, from the table of parameters.

    Residual stream and normed input, and the outputs of one part's linear layers together: q, k, v and attention
    output; gate, up and their product; of routed experts the chosen ones, each with its own row. Latent attention
    expands its latents to full keys and values in prefill; linear-attention and state-space projections count as such.
    `groups` spares deriving the table again.
    """
    hidden = spec.hidden_size
    chosen = Fields(spec.config).optional_integer(*CHOSEN_NAMES) or 1
    widths: dict[tuple[int, str], int] = {}
    for group in groups or tensor_groups(spec):
        if not group.layers or len(group.shape) < 2 or group.part not in _SUBLAYERS or "conv1d" in group.name:
            continue
        share, of = rank_share(group.name, group.part, spec, tp)
        if group.part == "experts" and len(group.shape) == 3:
            width = chosen * (prod(group.shape[1:]) // hidden) + (chosen * hidden if "down" in group.name else 0)
        else:
            width = prod(group.shape) // hidden if hidden in group.shape else group.shape[0]
        width = -(-width * share // of)
        for layer in group.layers:
            key = (layer, _SUBLAYERS[group.part])
            widths[key] = widths.get(key, 0) + width
    if not widths:
        raise InputError("hidden_size", "missing", "a config with the sizes of its layers")
    (_, part), widest = max(widths.items(), key=lambda item: item[1])
    return LayerWidth(2 * hidden + widest, part)


def activations(spec: ModelSpec, engine: str, step: Step, width: LayerWidth) -> Buffer:
    """The activation peak of an engine's largest step on one rank, by the engine's own way of reaching it.

    InputError for a spec without hidden size or vocabulary.
    """
    for field in ("hidden_size", "vocab_size"):
        if not getattr(spec, field):
            raise InputError(field, "missing", "a config that has it")
    if engine == "trilemma":
        return _own(spec, step)
    if engine == "llama.cpp":
        tokens = min(step.tokens, LLAMA_CPP_UBATCH)
        size = tokens * max(spec.vocab_size + spec.hidden_size, width.elements) * 4
        how = (
            f"compute buffer of a micro-batch of {tokens:,} tokens in float32: max({spec.vocab_size:,} logits + "
            f"{spec.hidden_size:,} hidden, {width.elements:,} in the {width.part}) x 4 B, with flash attention; "
            "not checked against this engine"
        )
        return Buffer("activations", size, how)
    layer = step.tokens * width.elements * ELEMENT_BYTES
    layer_how = f"{step.tokens:,} tokens x {width.elements:,} elements in the {width.part} x {ELEMENT_BYTES} B"
    each = VLLM_SAMPLER_BYTES if engine == "vllm" else 4 + ELEMENT_BYTES
    hidden = (step.tokens + step.logit_rows) * spec.hidden_size * ELEMENT_BYTES
    fixed = VLLM_FIXED_BYTES if engine == "vllm" else 0
    sampler = hidden + step.logit_rows * spec.vocab_size * each + fixed
    sampler_how = (
        f"({step.tokens:,} tokens + {step.logit_rows:,} rows) x {spec.hidden_size:,} x {ELEMENT_BYTES} B + "
        f"{step.logit_rows:,} rows x {spec.vocab_size:,} logits x {each} B"
    ) + (f" + {fixed:,} B" if fixed else "")
    source = f"; {VLLM_SOURCE}" if engine == "vllm" else "; from the model's widths, not checked against this engine"
    if layer > sampler:
        return Buffer("activations", layer, layer_how + source)
    return Buffer("activations", sampler, sampler_how + source)


def other_buffers(engine: str, ranks: int, device: str) -> tuple[Buffer, ...]:
    """What the engine holds whatever the model: context, workspace, graphs, and a communicator with several ranks."""
    if device == "cpu":
        return ()
    found = [Buffer("device_context", CONTEXT_BYTES, f"0.61 GiB taken before the model is loaded; {VLLM_SOURCE}")]
    if engine != "trilemma":
        found.append(Buffer("workspace", WORKSPACE_BYTES, f"0.13 GiB of libraries' own memory; {VLLM_SOURCE}"))
    if engine in ("vllm", "sglang", "tensorrt-llm"):
        how = "512 MiB assumed (2 MiB a captured size up to 256 in SGLang's rule; vLLM measured -0.9 to +1.0 GiB)"
        found.append(Buffer("graph_pool", GRAPH_BYTES, how))
    if ranks > 1:
        how = f"0.42 GiB a rank of collective buffers (0.55 GiB with 2 ranks - 0.13 alone); {VLLM_SOURCE}"
        found.append(Buffer("communicator", COMMUNICATOR_BYTES, how))
    return tuple(found)


def _own(spec: ModelSpec, step: Step) -> Buffer:
    """Our decoder: the larger of a prefill of the whole step and a decode that reads all the cache."""
    prefill = (step.tokens, 1, ELEMENT_BYTES)
    read = min(max(step.context_tokens, step.logit_rows), MAX_CONTEXT_TOKENS)
    decode = (step.logit_rows, step.logit_rows, ELEMENT_BYTES, read)
    busiest = max((prefill, decode), key=lambda phase: activation_peak_bytes(spec, *phase))
    how = f"{activation_how(spec, *busiest)}; a formula that is tested against this engine on a CPU"
    return Buffer("activations", activation_peak_bytes(spec, *busiest), how)
