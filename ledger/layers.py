"""One record a layer: what it keeps for a sequence. Knows neither bytes nor config files.

A layer's cache is a few kinds of rows, and one formula counts all of them: a row of `heads` x `width` elements, one for
every `stride` tokens, of the last `window` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["full", "swa", "chunk", "mla", "csa", "hca", "state", "shared", "none"]

KIND_WORDS: dict[str, str] = {
    "full": "full-attention",
    "swa": "sliding-window",
    "chunk": "chunked-attention",
    "mla": "latent-attention",
    "csa": "compressed-sparse-attention",
    "hca": "heavily-compressed-attention",
    "state": "state",
    "shared": "KV-sharing",
    "none": "attention-free",
}


@dataclass(frozen=True)
class CacheRow:
    """What a layer holds: `heads` vectors of `width` elements for every `stride` tokens of the last `window`."""

    what: Literal["key", "value", "latent", "index key", "compressed entry"]
    heads: int
    width: int
    window: int | None = None
    stride: int = 1
    replicated: bool = False  # every tensor-parallel rank holds it whole

    def heads_of_rank(self, tp: int) -> int:
        """Vectors on the largest of `tp` ranks: KV heads are split, never below one (replicated then)."""
        return self.heads if self.replicated else max(1, -(-self.heads // tp))

    def kept(self, seq_len: int, block_size: int | None = None) -> int:
        """Rows held at `seq_len` tokens; the tokens are rounded up to whole blocks when `block_size` is given."""
        return _kept(seq_len, self.window, block_size) // self.stride


@dataclass(frozen=True)
class LayerSpec:
    """What one layer keeps for a sequence. A layer with attention and a recurrent state beside it has both.

    full    keys and values of every token
    swa     keys and values of the last `window` tokens
    chunk   keys and values of the current chunk of `window` tokens
    mla     one latent vector a token (`latent_dim` elements: compressed KV plus the shared rotary key), no heads;
            where an indexer chooses what to read also its key (`index_dim` elements, in `full` layers too), no heads
    csa     keys and values of the last `window` tokens, and of all tokens one compressed entry (`compressed_dim`
            elements) and one index key for every `compress_ratio`
    hca     the same without index keys, at a higher ratio
    state   a recurrent state of constant size (state-space or linear attention), or a short convolution's inputs
    shared  reads an earlier layer's cache and keeps nothing
    none    no token mixing at all

    `v_head_dim` 0 says that values are the keys (one tensor serves both).
    """

    kind: LayerKind
    kv_heads: int = 0
    k_head_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None
    latent_dim: int = 0
    attentions: int = 1  # attention blocks in this layer, each with latents of its own
    index_dim: int = 0
    compressed_dim: int = 0
    compress_ratio: int = 1
    state_elements: int = 0  # recurrent state of one sequence
    conv_elements: int = 0  # short-convolution state of one sequence
    state_heads: int = 0  # what tensor parallelism splits the state by
    state_element_bytes: int = 2

    @property
    def keeps_kv(self) -> bool:
        """True when this layer keeps keys and values (or latents) a token."""
        return self.kind in ("full", "swa", "chunk", "mla", "csa", "hca")

    @property
    def rows(self) -> tuple[CacheRow, ...]:
        """The kinds of rows this layer's cache holds; empty when it keeps nothing a token."""
        if not self.keeps_kv:
            return ()
        found = [
            CacheRow("key", self.kv_heads, self.k_head_dim, self.window),
            CacheRow("value", self.kv_heads, self.v_head_dim, self.window),
            CacheRow("latent", self.attentions, self.latent_dim, replicated=True),
            CacheRow("compressed entry", 1, self.compressed_dim, stride=self.compress_ratio, replicated=True),
            CacheRow("index key", 1, self.index_dim, stride=self.compress_ratio, replicated=True),
        ]
        return tuple(row for row in found if row.heads and row.width)

    @property
    def kv_elements(self) -> int:
        """Elements kept for each token, on one device that holds the whole layer."""
        return self.kv_elements_per_rank(1)

    def kv_elements_per_rank(self, tp: int) -> int:
        """Elements added for each token on the largest of `tp` ranks, windows charged in full.

        A row for several tokens counts its share, rounded up. KV heads are split, never below one head (replicated
        then); latents, index keys and compressed entries have no heads and every rank holds them whole.
        """
        return sum(-(-row.heads_of_rank(tp) * row.width // row.stride) for row in self.rows)

    def growth_per_rank(self, tp: int = 1) -> int:
        """Elements added for each token for good: like `kv_elements_per_rank`, without rows that a window bounds."""
        return sum(-(-row.heads_of_rank(tp) * row.width // row.stride) for row in self.rows if row.window is None)

    def tokens_kept(self, seq_len: int, block_size: int | None = None) -> int:
        """Tokens of `seq_len` whose own keys are held: min(L, window), rounded up to whole blocks of `block_size`."""
        return _kept(seq_len, self.window, block_size) if self.keeps_kv else 0

    def state_bytes_per_rank(self, tp: int = 1, conv_element_bytes: int = 2) -> int:
        """Bytes of recurrent and convolution state of one sequence on the largest of `tp` ranks, split by heads."""
        if not self.state_heads:
            return 0
        share = -(-self.state_heads // tp)
        state, conv = (-(-size * share // self.state_heads) for size in (self.state_elements, self.conv_elements))
        return state * self.state_element_bytes + conv * conv_element_bytes


def _kept(seq_len: int, window: int | None, block_size: int | None) -> int:
    kept = seq_len if window is None else min(seq_len, window)
    return kept if block_size is None else -(-kept // block_size) * block_size
