"""The decoder: one file for Llama, Mistral, Qwen2 and Qwen3 (RMSNorm, rotary positions, grouped-query attention,
gated MLP), with flags for biases, query and key norms and sliding windows.

Works on a flat batch: the tokens of all rows of a step one after another, with no padding between rows. It knows
nothing of requests or blocks beyond the AttentionBatch it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from core_engine.kernels.linear import linear
from core_engine.kernels.options import StepOptions
from core_engine.kernels.reference import AttentionBatch, paged_attention, write_kv
from core_engine.kv.attention import quantized_attention
from core_engine.kv.cache import QuantizedCache, QuantizedLayer
from core_engine.model.rope import cos_and_sin, inverse_frequencies
from core_engine.model.spec import DecoderSpec
from core_engine.quant.describe import formats_of
from core_engine.quant.linear import AnyWeight, Held, Table, held, held_rows, tensors_of
from core_engine.quant.matrix import Joined, QuantizedMatrix, Weight, joined
from ledger.errors import InputError

Hold = Callable[[AnyWeight], Held]


@dataclass(frozen=True)
class LayerWeights:
    """One layer. qkv [(heads + 2 kv_heads) * head_dim, hidden]; gate_up [2 * intermediate, hidden].

    Biases and the norms of query and key heads [head_dim] are None where the family has none.
    """

    input_norm: torch.Tensor
    qkv: AnyWeight
    output: AnyWeight
    post_norm: torch.Tensor
    gate_up: AnyWeight
    down: AnyWeight
    qkv_bias: torch.Tensor | None = None
    output_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    query_norm: torch.Tensor | None = None
    key_norm: torch.Tensor | None = None


@dataclass(frozen=True)
class DecoderWeights:
    """All the decoder holds, matrices quantized or not. head is the embedding itself when the two are tied."""

    embedding: AnyWeight  # [vocab_size, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: AnyWeight  # [vocab_size, hidden]

    @property
    def dtype(self) -> torch.dtype:
        """Number format of all that is not quantized."""
        return self.final_norm.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.final_norm.device

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor once, a tied head not twice."""
        found = [*tensors_of(self.embedding), self.final_norm]
        if self.head is not self.embedding:
            found += tensors_of(self.head)
        for layer in self.layers:
            found += [tensor for weight in vars(layer).values() if weight is not None for tensor in tensors_of(weight)]
        return found

    def held(self, hold: Hold = held) -> DecoderWeights:
        """With quantized matrices as they are multiplied, by default with their codes packed."""
        embedding = hold(self.embedding)
        layers = tuple(
            replace(
                layer,
                qkv=hold(layer.qkv),
                output=hold(layer.output),
                gate_up=hold(layer.gate_up),
                down=hold(layer.down),
            )
            for layer in self.layers
        )
        head = embedding if self.head is self.embedding else hold(self.head)
        return DecoderWeights(embedding, layers, self.final_norm, head)

    def num_bytes(self) -> int:
        """Bytes really held."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors())


class NamedTensors:
    """Weights by Hugging Face name, each handed out once with its shape checked."""

    def __init__(self, named: Mapping[str, torch.Tensor | QuantizedMatrix]) -> None:
        self.left = dict(named)

    def matrix(self, name: str, *shape: int) -> torch.Tensor | QuantizedMatrix:
        """InputError when it is missing or has another shape than the config says."""
        if name not in self.left:
            raise InputError("model", f"no tensor {name}", "weights with every parameter of the config")
        if tuple(self.left[name].shape) != shape:
            raise InputError("model", f"{name} {list(self.left[name].shape)}", f"shape {list(shape)}")
        return self.left.pop(name)

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The same of a norm or bias, which is never quantized."""
        found = self.matrix(name, *shape)
        if isinstance(found, QuantizedMatrix):
            raise InputError("model", f"{name} in {found.bits} bits", "a norm or bias in 16 or 32 bits")
        return found

    def joined(self, at: str, names: str, sizes: tuple[int, ...], depth: int) -> Weight:
        """The projections named by the letters or words of `names`, one below the other."""
        parts = zip(names.split(), sizes, strict=True)
        return joined([self.matrix(f"{at}{name}_proj.weight", size, depth) for name, size in parts])

    def biases(self, at: str, names: str, sizes: tuple[int, ...]) -> torch.Tensor:
        """Their biases, one after another."""
        return torch.cat(
            [self.take(f"{at}{name}_proj.bias", size) for name, size in zip(names.split(), sizes, strict=True)]
        )


def assemble(spec: DecoderSpec, named: Mapping[str, torch.Tensor | QuantizedMatrix]) -> DecoderWeights:
    """Arrange Hugging Face tensors into DecoderWeights, fusing q/k/v and gate/up; matrices may be quantized.

    InputError when a tensor is missing, has another shape than the config says, or is left unused.
    """
    tensors = NamedTensors(named)
    del named  # the fused parts are freed as they are joined, unless the caller holds them
    embedding = tensors.matrix("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size)
    layers = tuple(layer_weights(spec, tensors, f"model.layers.{index}.") for index in range(spec.num_layers))
    final_norm = tensors.take("model.norm.weight", spec.hidden_size)
    head = embedding
    if not spec.tie_embeddings:
        head = tensors.matrix("lm_head.weight", spec.vocab_size, spec.hidden_size)
    elif "lm_head.weight" in tensors.left:
        refuse_other_head(tensors.left.pop("lm_head.weight"), embedding)
    refuse_unused(tensors.left)
    return DecoderWeights(embedding, layers, final_norm, head)


def refuse_unused(names: Iterable[str]) -> None:
    """InputError when any of these tensors would stay unread; old checkpoints store the constant inv_freq."""
    unused = sorted(name for name in names if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        raise InputError("model", f"tensors without a place: {', '.join(unused[:3])}", "weights of the config's family")


def refuse_other_head(head: torch.Tensor | QuantizedMatrix, embedding: torch.Tensor | QuantizedMatrix) -> None:
    """InputError when a head that is stored beside a tied embedding is not the same."""
    pair = [weight.dequantized() if isinstance(weight, QuantizedMatrix) else weight for weight in (head, embedding)]
    if not torch.equal(*pair):
        raise InputError(
            "model (tie_word_embeddings in config.json)",
            True,
            "false, since lm_head.weight differs from model.embed_tokens.weight; or weights where they are equal",
        )


def layer_weights(spec: DecoderSpec, tensors: NamedTensors, at: str) -> LayerWeights:
    """One layer, from the tensors whose names begin with `at`; of a shard, with the spec that the shard has."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    qkv, gate_up = (q_size, kv_size, kv_size), (inner, inner)
    attention, mlp = f"{at}self_attn.", f"{at}mlp."
    return LayerWeights(
        input_norm=tensors.take(f"{at}input_layernorm.weight", hidden),
        qkv=tensors.joined(attention, "q k v", qkv, hidden),
        output=tensors.matrix(f"{attention}o_proj.weight", hidden, q_size),
        post_norm=tensors.take(f"{at}post_attention_layernorm.weight", hidden),
        gate_up=tensors.joined(mlp, "gate up", gate_up, hidden),
        down=tensors.matrix(f"{mlp}down_proj.weight", hidden, inner),
        qkv_bias=tensors.biases(attention, "q k v", qkv) if spec.qkv_bias else None,
        output_bias=tensors.take(f"{attention}o_proj.bias", hidden) if spec.output_bias else None,
        gate_up_bias=tensors.biases(mlp, "gate up", gate_up) if spec.mlp_bias else None,
        down_bias=tensors.take(f"{mlp}down_proj.bias", hidden) if spec.mlp_bias else None,
        query_norm=tensors.take(f"{attention}q_norm.weight", spec.head_dim) if spec.qk_norm else None,
        key_norm=tensors.take(f"{attention}k_norm.weight", spec.head_dim) if spec.qk_norm else None,
    )


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding. x [num_tokens, heads, head_dim]; cos, sin [num_tokens, 1, head_dim]."""
    half = x.shape[-1] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + rotated * sin


def _projections(
    x: torch.Tensor, weight: AnyWeight, bias: torch.Tensor | None, sizes: Sequence[int], fused: bool
) -> Sequence[torch.Tensor]:
    """x times each of the matrices of so many rows that lie one below the other in `weight`: [num_tokens, size] each.

    fused: one product, cut afterwards; else a product each, over slices of the same memory where there are any.
    """
    parts = None if fused else held_rows(weight, sizes)
    if parts is None:
        return linear(x, weight, bias).split(list(sizes), dim=-1)
    biases = [None] * len(sizes) if bias is None else bias.split(list(sizes))
    return [linear(x, *part) for part in zip(parts, biases, strict=True)]


class Decoder:
    """The forward pass over given weights, held as `hold` says."""

    launches = False  # whether steps are begun on a device and not waited for (model/triton_decoder.py)

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, hold: Hold = held) -> None:
        self.spec = spec
        self.weights = weights.held(hold)
        self.formats = formats_of(weights)
        self._inv_freq = inverse_frequencies(spec.rope, spec.head_dim).to(weights.device)
        self._scale = spec.head_dim**-0.5

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        cache: torch.Tensor | QuantizedCache,
        batch: AttentionBatch,
        options: StepOptions = StepOptions(),
    ) -> torch.Tensor:
        """Hidden states after the final norm, [num_tokens, hidden_size].

        token_ids and positions [num_tokens]; cache [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim],
        written at batch.slots, or quantized and used by batch.rows. Of the options fused_ops and flash act here.
        """
        return self._norm(
            self._through_layers(self._embed(token_ids), positions, cache, batch, options), self.weights.final_norm
        )

    def _through_layers(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        cache: torch.Tensor | QuantizedCache,
        batch: AttentionBatch,
        options: StepOptions,
    ) -> torch.Tensor:
        cos, sin = self._cos_and_sin(positions, hidden.dtype)
        for layer, layer_cache, window in zip(self.weights.layers, cache, self.spec.windows, strict=True):
            hidden = hidden + self._attend(
                self._norm(hidden, layer.input_norm), layer, layer_cache, batch, window, cos, sin, options
            )
            hidden = hidden + self._mlp(self._norm(hidden, layer.post_norm), layer, options.fused_ops)
        return hidden

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        table = self.weights.embedding
        if isinstance(table, torch.Tensor):
            return F.embedding(token_ids, table)
        if isinstance(table, QuantizedMatrix | Joined) or not isinstance(table, Table):
            raise TypeError(f"tokens can't be looked up in a {type(table).__name__}")
        return table.rows(token_ids, self.weights.dtype)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [rows, vocab_size] of hidden [rows, hidden_size]."""
        return linear(hidden, self.weights.head).float()

    def _mlp(self, x: torch.Tensor, layer: LayerWeights, fused: bool) -> torch.Tensor:
        # A function of its own, so that gate and up are freed before the next layer: 29 % of a prefill's peak.
        sizes = (self.spec.intermediate_size,) * 2
        gate, up = _projections(x, layer.gate_up, layer.gate_up_bias, sizes, fused)
        return linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        normed = F.rms_norm(x.float(), (x.shape[-1],), eps=self.spec.rms_norm_eps)
        return weight * normed.to(x.dtype)

    def _attend(
        self,
        x: torch.Tensor,
        layer: LayerWeights,
        layer_cache: torch.Tensor | QuantizedLayer,
        batch: AttentionBatch,
        window: int | None,
        cos: torch.Tensor,
        sin: torch.Tensor,
        options: StepOptions,
    ) -> torch.Tensor:
        query, key, value = self._heads(x, layer, cos, sin, options.fused_ops)
        if isinstance(layer_cache, QuantizedLayer):
            out = quantized_attention(
                query, key, value, layer_cache, batch.rows, window, self._scale, flash=options.flash
            )
        else:
            keys, values = layer_cache
            write_kv(keys, key, batch.slots)
            write_kv(values, value, batch.slots)
            out = paged_attention(query, keys, values, batch.views[window], self._scale, flash=options.flash)
        return linear(out.reshape(x.shape[0], -1), layer.output, layer.output_bias)

    def _heads(
        self, x: torch.Tensor, layer: LayerWeights, cos: torch.Tensor, sin: torch.Tensor, fused: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [num_tokens, heads, head_dim] of normed x, the first two rotated."""
        spec = self.spec
        sizes = [heads * spec.head_dim for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)]
        query, key, value = (
            part.view(x.shape[0], -1, spec.head_dim)
            for part in _projections(x, layer.qkv, layer.qkv_bias, sizes, fused)
        )
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)
        return _rotate(query, cos, sin), _rotate(key, cos, sin), value

    def _cos_and_sin(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """[num_tokens, 1, head_dim] each. Computed at each step: a table of all positions would hold 128 MiB at 131,072
        positions of heads of 128."""
        factor = self.spec.rope.attention_factor
        cos, sin = (part[:, None].to(dtype) for part in cos_and_sin(positions, self._inv_freq, factor))
        return cos, sin
