"""Dummy rows of the largest steps that an engine can plan, for measuring what they need at start-up."""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.plan import GREEDY, Row


@dataclass(frozen=True)
class Room:
    """The pool's blocks, tokens of a block, and positions that a sequence may reach."""

    num_blocks: int
    block_size: int
    max_position: int

    def largest_steps(
        self, max_num_seqs: int, max_num_batched_tokens: int, most_drafts: int, *, flash: bool, quantized: bool
    ) -> list[tuple[Row, ...]]:
        """The largest prefill, the widest decode, and with drafts the widest decode with as many as may be.

        flash: scores are not stored; quantized: a row's drafts stay within a block.
        """
        sequence = min(self.num_blocks * self.block_size, self.max_position)
        length = min(max_num_batched_tokens, sequence)
        # Stored scores are the most for the last tokens of the longest sequence; without, its beginning is as large.
        start = 0 if flash else sequence - length
        prefill = Row("dummy", start, (0,) * length, tuple(range(self.num_blocks)), is_prefill=True, sampling=GREEDY)
        room = self.block_size - 2 if quantized else self.block_size * self.num_blocks
        decodes = [
            self._widest_decode(max_num_seqs, max_num_batched_tokens, min(most, room)) for most in {0, most_drafts}
        ]
        return [(prefill,), *decodes]

    def _widest_decode(self, max_num_seqs: int, max_num_batched_tokens: int, most_drafts: int) -> tuple[Row, ...]:
        """As many rows as there may be, with as many drafts as the budget leaves each of them."""
        seqs = min(max_num_seqs, self.num_blocks, max_num_batched_tokens)
        share = self.num_blocks // seqs
        context = min(share * self.block_size, self.max_position)
        spare = max_num_batched_tokens - seqs
        rows = []
        for i in range(seqs):
            drafts = max(0, min(most_drafts, spare, context - 1))
            spare -= drafts
            blocks = tuple(range(i * share, (i + 1) * share))
            start = context - 1 - drafts
            rows.append(Row(f"dummy{i}", start, (0,) * (1 + drafts), blocks, False, GREEDY, slot=i, num_drafts=drafts))
        return tuple(rows)
