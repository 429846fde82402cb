"""An executor without weights that remembers what every KV slot holds, and checks every read.

The content of a slot is a hash of all tokens up to its position. A row may only run when the slots of everything
before it hold exactly its own prefix, as written by earlier steps; its next token is a hash of what it read. So a
stale, unpublished, shared by mistake or overwritten block shows as a failed assertion or as another text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.kernels.choice import KernelChoice
from core_engine.plan import PENDING, Row, StepPlan, StepResult
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.proposer import Ask, Proposer
from ledger.model_spec import ModelSpec

VOCAB = 251
# Sizes that the ledger asks of a model; the shadow has neither weights nor a cache of its own.
SPEC = ModelSpec.from_config(
    {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": VOCAB,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096,
    }
)  # fmt: skip


def chain(tokens: list[int]) -> list[int]:
    """What the slots of a sequence hold."""
    values, value = [], 17
    for token in tokens:
        value = hash((value, token))
        values.append(value)
    return values


def next_token(content: int, seed: int, sample_index: int) -> int:
    """The token that follows a prefix in one sample."""
    return hash((content, seed, sample_index)) % VOCAB


def expected_tokens(prompt: list[int], count: int, seed: int, sample_index: int = 0) -> list[int]:
    """The answer of a request, whoever else is there."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(chain(tokens)[-1], seed, sample_index))
    return tokens[len(prompt) :]


class ShadowExecutor:
    """`during` is called while a step is in flight; `fail` makes the next step raise after it wrote half its KV."""

    runs_ahead = False

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.slots: list[int | None] = [None] * (num_blocks * block_size)
        self.open: dict[int, list[int]] = {}  # by slot, of the block that is not full
        self.open_blocks = False
        self.num_slots = 0
        self.during: Callable[[StepPlan], None] = lambda _: None
        self.fail = False
        self.truth: Callable[[str], list[int]] = lambda _: []
        self.num_tokens = 0

    def kv_pool_bytes(self) -> int:
        return self.num_blocks * self.block_size

    def kv_tail_bytes(self) -> int:
        return 0

    def padding_bytes(self) -> int:
        return 0

    def activation_peak_bytes(self) -> int:
        return 0

    def _slot(self, row: Row, position: int) -> int:
        return row.blocks[position // self.block_size] * self.block_size + position % self.block_size

    def execute(self, plan: StepPlan) -> StepResult:
        slots = [row.slot for row in plan.rows]
        assert len(set(slots)) == len(slots) and all(0 <= slot < self.num_slots for slot in slots)
        contents = {
            row.request_id: chain([*self.truth(row.request_id)[: row.next_position], *row.drafts]) for row in plan.rows
        }
        written: set[int] = set()
        for row in plan.rows:
            certain = tuple(self.truth(row.request_id)[row.start : row.next_position])
            assert (*certain, *row.drafts) == row.tokens and (row.sample or not row.drafts)
            self._check_open_block(row, contents[row.request_id])
            for position in range(row.start):
                assert self.slots[self._slot(row, position)] == contents[row.request_id][position], (row, position)
        for row in plan.rows:
            for position in range(row.start, row.end):
                slot = self._slot(row, position)
                assert slot not in written, "two rows write to one slot"
                written.add(slot)
                self.slots[slot] = contents[row.request_id][position]
            if row.end % self.block_size:
                begin = row.end // self.block_size * self.block_size
                self.open[row.slot] = contents[row.request_id][begin : row.end]
            if self.fail:
                self.fail = False
                raise RuntimeError("injected")
        self.num_tokens += plan.num_tokens
        verified = [self._verify(row, contents[row.request_id]) for row in plan.rows]
        result = StepResult(
            tuple(token for _, token in verified),
            tuple(tuple(-1.0 for target in row.targets if target >= 0) for row in plan.rows),
            accepted=tuple(accepted for accepted, _ in verified),
        )
        self.during(plan)
        return result

    def _check_open_block(self, row: Row, content: list[int]) -> None:
        """What lies before a row in its own block is in its slot, and the row does not leave another block open, nor
        fill one with drafts."""
        if self.open_blocks and row.drafts:
            assert row.end % self.block_size and row.end // self.block_size == row.start // self.block_size, row
        inside = row.start % self.block_size
        if not self.open_blocks or not inside:
            return
        begin = row.start - inside
        assert self.open[row.slot][:inside] == content[begin : row.start], row
        assert row.end <= begin + self.block_size or not row.end % self.block_size, row

    @staticmethod
    def _verify(row: Row, contents: list[int]) -> tuple[int, int | None]:
        """Accepted drafts and the token after them."""
        if row.sampling is None:
            return 0, None
        seed, sample = row.sampling.seed, row.sampling.sample_index
        for place, draft in enumerate(row.drafts):
            token = next_token(contents[row.next_position - 1 + place], seed, sample)
            if token != draft:
                return place, token
        return row.num_drafts, next_token(contents[-1], seed, sample)


@dataclass
class Landed:
    """A step that has been computed; `fail` makes whoever asks for its result find a failure."""

    plan: StepPlan
    computed: StepResult
    fail: bool = False

    def result(self) -> StepResult:
        if self.fail:
            raise RuntimeError("injected")
        return self.computed

    def tokens(self) -> dict[str, int | None]:
        return {row.request_id: token for row, token in zip(self.plan.rows, self.computed.tokens, strict=True)}


class AheadShadow(ShadowExecutor):
    """A device: a step is computed when it is launched, maybe behind one whose tokens nobody has seen yet."""

    runs_ahead = True

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.fail_late = False
        self.launched_behind = 0

    def launch(self, plan: StepPlan, after: Landed | None = None) -> Landed:
        pending = {row.request_id for row in plan.rows if row.tokens == (PENDING,)}
        known = {} if after is None else after.tokens()
        rows = tuple(
            replace(row, tokens=(known[row.request_id],)) if row.request_id in pending else row for row in plan.rows
        )
        truth, self.launched_behind = self.truth, self.launched_behind + bool(pending)
        self.truth = lambda request_id: [
            *truth(request_id),
            *([known[request_id]] if request_id in pending else []),
        ]
        try:
            result = self.execute(replace(plan, rows=rows))
        finally:
            self.truth = truth
        late, self.fail_late = self.fail_late, False
        return Landed(plan, result, late)


class NumberTokenizer:
    """One token, one character."""

    eos_token_ids: tuple[int, ...] = ()
    byte_tokens: ClassVar[dict[int, int]] = {}
    token_bytes = None
    vocab_size = VOCAB

    def encode(self, text: str) -> list[int]:
        return [ord(char) - 0x4E00 for char in text]

    def decode(self, ids: Any) -> str:
        return "".join(chr(0x4E00 + token) for token in ids)


def future(ask: Ask) -> list[int]:
    """A request's tokens so far and as many as were asked for, as they will come."""
    tokens = list(ask.tokens)
    for _ in range(ask.k):
        tokens.append(next_token(chain(tokens)[-1], ask.sampling.seed, ask.sampling.sample_index))
    return tokens


def shadow_engine(
    num_blocks: int, proposer: Proposer | None = None, executor: type[ShadowExecutor] = ShadowExecutor, **settings: Any
) -> Engine:
    """An engine over a ShadowExecutor of `num_blocks` blocks."""
    config = EngineConfig.from_settings(settings)
    loaded = SimpleNamespace(
        name="shadow",
        tokenizer=NumberTokenizer(),
        spec=SPEC,
        runtime_bytes=None,
        decoder=SimpleNamespace(spec=SimpleNamespace(max_position=4096), formats={}),
        weights=SimpleNamespace(dtype=torch.float32, device=torch.device("cpu"), num_bytes=lambda: 0),
        scheme=None,
        quantizing=None,
        kernels=KernelChoice("shadow", "no weights"),
    )
    shadow = executor(num_blocks, config.block_size)
    engine = Engine(config, loaded, executor=shadow, proposer=proposer)  # type: ignore[arg-type]
    shadow.num_slots, shadow.open_blocks = config.max_num_seqs, engine.scheduler.open_blocks
    shadow.truth = lambda request_id: engine.sessions.of(request_id)[0].request.tokens
    return engine


def answer(tokens: int, **changes: Any) -> SamplingParams:
    """Parameters of an answer of exactly `tokens` tokens."""
    return SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, **changes)
