"""The drafts as autograd sees them: layers of the Llama kind, and what each form of draft puts around them.

Parameters bear Hugging Face's names, so that a trained layer loads into the engine's own decoder; the proposers are
tested against `forward` here. Nothing of the target is a parameter: its embedding and head are handed in, frozen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft's layers. window: how many positions a token sees, which bounds what training has to cover."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int = 256
    rope_theta: float = 10_000.0


class Norm(nn.Module):
    """RMSNorm with a weight [size]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, EPSILON)


KV = tuple[torch.Tensor, torch.Tensor]


class Attention(nn.Module):
    """Grouped-query attention over whole sequences."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim, self.groups = shape.head_dim, shape.num_heads // shape.num_kv_heads
        kv = shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=False)

    def forward(self, x: torch.Tensor, turn: KV, mask: torch.Tensor, past: KV | None) -> tuple[torch.Tensor, KV]:
        """x [batch, length, hidden]; mask bool [length, past + length]. Returns the output and all keys and values."""
        batch, length, _ = x.shape
        query, key, value = (
            proj(x).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = _rotate(query, turn), _rotate(key, turn)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        out = F.scaled_dot_product_attention(
            query, key.repeat_interleave(self.groups, 1), value.repeat_interleave(self.groups, 1), attn_mask=mask
        )
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1)), (key, value)


class Mlp(nn.Module):
    """The gated MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden_size)
        self.mlp = Mlp(shape)

    def forward(self, x: torch.Tensor, turn: KV, mask: torch.Tensor, past: KV | None = None) -> tuple[torch.Tensor, KV]:
        out, kept = self.self_attn(self.input_layernorm(x), turn, mask, past)
        x = x + out
        return x + self.mlp(self.post_attention_layernorm(x)), kept


def _rotate(x: torch.Tensor, turn: KV) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * turn[0] + torch.cat([-x[..., half:], x[..., :half]], -1) * turn[1]


def turning(shape: Shape, length: int) -> KV:
    """cos and sin [length, head_dim] of positions 0 .. length - 1."""
    frequencies = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
    angles = torch.arange(length).float()[:, None] * frequencies
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def seen(shape: Shape, length: int) -> torch.Tensor:
    """bool [length, length]: which positions each position attends to."""
    return torch.ones(length, length, dtype=torch.bool).tril().triu(1 - shape.window)


class SmallLlama(nn.Module):
    """A small Llama over the target's vocabulary that proposes ids of a shortlist only.

    Independent: an embedding [vocab_size, hidden] of its own, tied with the head. Over a target's embedding (`frozen`
    [vocab_size, target's hidden]): projections from it and to it are learned instead.
    """

    def __init__(self, shape: Shape, vocab_size: int, shortlist: torch.Tensor, frozen: torch.Tensor | None) -> None:
        super().__init__()
        self.shape, self.shortlist = shape, shortlist.long()
        self.frozen, self.frozen_head = frozen, None if frozen is None else frozen[self.shortlist]
        if frozen is None:
            self.embed_tokens = nn.Embedding(vocab_size, shape.hidden_size)
        else:
            self.project_in = nn.Linear(frozen.shape[1], shape.hidden_size, bias=False)
            self.project_out = nn.Linear(shape.hidden_size, frozen.shape[1], bias=False)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.num_layers)])
        self.norm = Norm(shape.hidden_size)

    def table(self) -> torch.Tensor:
        """What tokens are looked up in, [vocab_size, hidden]."""
        return self.embed_tokens.weight if self.frozen is None else self.project_in(self.frozen)

    def head(self) -> torch.Tensor:
        """[ids of the shortlist, hidden]."""
        if self.frozen_head is None:
            return self.embed_tokens.weight[self.shortlist]
        return self.frozen_head @ self.project_out.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [batch, length] to hidden states after the final norm [batch, length, hidden]."""
        x = self.embed_tokens(tokens) if self.frozen is None else self.project_in(F.embedding(tokens, self.frozen))
        turn, mask = turning(self.shape, tokens.shape[1]), seen(self.shape, tokens.shape[1])
        for layer in self.layers:
            x, _ = layer(x, turn, mask)
        return self.norm(x)


class Exit(nn.Module):
    """What stands between the first layers of a target and its head: a norm and a projection, at first the identity."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm = Norm(hidden_size)
        self.project_out = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.project_out.weight)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """The feature that the head is given, from states [num_tokens, hidden]; likewise."""
        return self.project_out(self.norm(states))


class Eagle(nn.Module):
    """One layer over [the next token's embedding ; the target's feature here], to the target's next feature.

    Both inputs are divided by their typical size (the scales), so that neither drowns the other.
    """

    def __init__(self, shape: Shape, scales: tuple[float, float]) -> None:
        super().__init__()
        self.shape, self.scales = shape, scales
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layer = Layer(shape)
        self.norm = Norm(shape.hidden_size)

    def forward(self, embedded: torch.Tensor, features: torch.Tensor, depth: int = 1) -> list[torch.Tensor]:
        """Predicted features [batch, length, hidden] of each of `depth` drafts in a row.

        embedded [batch, length, hidden]: of the token after each position; features: the target's at each. Draft d of
        position i reads the feature that draft d - 1 of position i - 1 predicted, and attends as it will when drafting:
        to the target's features up to i - d, to its own after that.
        """
        length = features.shape[1]
        turn, plain = turning(self.shape, length), seen(self.shape, length)
        found: list[torch.Tensor] = []
        kept: KV | None = None
        for index in range(depth):
            x = self.fc(torch.cat([embedded / self.scales[0], features / self.scales[1]], -1))
            x, kept = self.layer(x, turn, _drafting(plain, index), kept)
            found.append(self.norm(x))
            features = F.pad(found[-1][:, :-1], (0, 0, 1, 0))  # position 0 has no draft before it: never counted
        return found


def _drafting(plain: torch.Tensor, index: int) -> torch.Tensor:
    """bool [length, (index + 1) * length]: keys of the target's features, then of each draft before, then its own."""
    if not index:
        return plain
    eye = torch.eye(len(plain), dtype=torch.bool)
    own = [_moved(eye, index - draft) for draft in range(1, index + 1)]
    return torch.cat([plain.tril(-index), *own], 1)


def _moved(eye: torch.Tensor, by: int) -> torch.Tensor:
    """Ones `by` places left of the diagonal."""
    return F.pad(eye[: len(eye) - by], (0, 0, by, 0))


class Medusa(nn.Module):
    """Heads that predict 1, 2, ... tokens after the newest one, from the feature that gave it and its embedding.

    Each is a residual block on the feature, in front of the target's own head.
    """

    def __init__(self, hidden_size: int, num_heads: int, scales: tuple[float, float]) -> None:
        super().__init__()
        self.scales = scales
        blocks = [nn.Linear(2 * hidden_size, hidden_size) for _ in range(num_heads)]
        self.blocks = nn.ModuleList(blocks)
        for block in blocks:
            nn.init.zeros_(block.weight)  # so that training begins at the target's own prediction, as in Medusa
            nn.init.zeros_(block.bias)

    def forward(self, embedded: torch.Tensor, features: torch.Tensor, head: int) -> torch.Tensor:
        """The feature [num_tokens, hidden] that head `head` gives to the target's head; inputs likewise."""
        x = torch.cat([embedded / self.scales[0], features / self.scales[1]], -1)
        return features + self.scales[1] * F.silu(self.blocks[head](x))
