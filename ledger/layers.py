"""One record a layer: what its attention keeps. Knows neither bytes nor config files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["full", "swa", "chunk", "mla", "state", "shared", "none"]

KIND_WORDS: dict[str, str] = {
    "full": "full-attention",
    "swa": "sliding-window",
    "chunk": "chunked-attention",
    "mla": "latent-attention",
    "state": "state",
    "shared": "KV-sharing",
    "none": "attention-free",
}


@dataclass(frozen=True)
class LayerSpec:
    """What one layer keeps for a sequence.

    full    keys and values of every token
    swa     keys and values of the last `window` tokens
    chunk   keys and values of the current chunk of `window` tokens
    mla     one latent vector a token (`latent_dim` elements: compressed KV plus the shared rotary key), no heads
    state   a recurrent state of constant size (state-space or linear attention)
    shared  reads an earlier layer's cache and keeps nothing
    none    no token mixing at all
    """

    kind: LayerKind
    kv_heads: int = 0
    k_head_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None
    latent_dim: int = 0
    state_elements: int = 0  # recurrent state of one sequence
    conv_elements: int = 0  # short-convolution state of one sequence
    state_heads: int = 0  # what tensor parallelism splits the state by
    state_element_bytes: int = 2

    @property
    def keeps_kv(self) -> bool:
        """True when this layer keeps keys and values (or latents) a token."""
        return self.kind in ("full", "swa", "chunk", "mla")

    @property
    def kv_elements(self) -> int:
        """Elements kept for each token, on one device that holds the whole layer."""
        return self.kv_elements_per_rank(1)

    def kv_elements_per_rank(self, tp: int) -> int:
        """Elements kept for each token by the largest of `tp` ranks.

        KV heads are split, never below one head (replicated then); a latent has no heads and every rank holds it whole.
        """
        if not self.keeps_kv:
            return 0
        if self.kind == "mla":
            return self.latent_dim
        return max(1, -(-self.kv_heads // tp)) * (self.k_head_dim + self.v_head_dim)

    def tokens_kept(self, seq_len: int, block_size: int | None = None) -> int:
        """Tokens held of `seq_len`: min(L, window), rounded up to whole blocks when `block_size` is given."""
        if not self.keeps_kv:
            return 0
        kept = seq_len if self.window is None else min(seq_len, self.window)
        return kept if block_size is None else -(-kept // block_size) * block_size
