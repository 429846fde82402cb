"""How long one step of serving takes on a device whose efficiencies are known: the arithmetic of the simulator.

A step is rows of any start and count (prompts, their pieces, decode rows, rows with drafts). Its time is

    max(operators, launches) + link + host,    operators = sum over classes of roof time / efficiency

where the roof time of an operator is max(operations / rate, bytes / bandwidth), as in ledger/roofline.py, over the same
operator tables. Classes: linear (every weight matrix), attention_decode, attention_prefill, elementwise (norms, sums,
embedding rows, convolutions, recurrent states), sampling. Pure functions and small tables; nothing is measured here.

Splits. tp: every rank's share of the operators, and ring all-reduces. pp: the rows of a step go through the stages as
min(pp, rows) micro-batches, so a step lasts (micro-batches + stages - 1) times the slowest stage, with a transfer
between two stages. cp: a prompt's tokens are spread over cp devices, each with all weights, and keys and values go
round in a ring behind the attention of each layer (Ring Attention, Liu et al. 2023); decode rows read a cp-th of their
cache each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ledger.attention_ops import Reader, Step, readers, recurrence
from ledger.device_profile import DeviceProfile, Efficiency
from ledger.errors import InputError
from ledger.formats import element_format, positive
from ledger.links import Link
from ledger.model_spec import ModelSpec
from ledger.operators import LOGIT_BYTES, Operator, StepCosts
from ledger.partition import MAX_RANKS, stages

# Tokens of context that a split of keys is worth; more splits than context / SPLIT_TOKENS bring nothing.
SPLIT_TOKENS = 256
SAMPLING_PASSES = 2  # a row of logits is written by the head, which counts that, and read twice to choose from it
REMEMBERED = 65_536

Amount = Any  # a float, or an array of them, which is calculated with in the same way


@dataclass(frozen=True)
class Ends:
    """What gives the larger and the smaller of two amounts: for floats, or for arrays element by element."""

    larger: Callable[[Amount, Amount], Amount]
    smaller: Callable[[Amount, Amount], Amount]


FLOATS = Ends(max, min)


@dataclass(frozen=True)
class StepShape:
    """What the time of a step depends on, summed over its rows.

    decode_*: rows of the newest token and drafts behind it; prefill_*: pieces of prompts. `entries` are sums over rows
    of what their tokens read, `held` of what they read once, both for each of the model's readers in order.
    """

    tokens: int
    sampled: int
    rows: int
    decode_rows: int = 0
    decode_tokens: int = 0
    decode_entries: tuple[int, ...] = ()
    decode_held: tuple[int, ...] = ()
    prefill_tokens: int = 0
    prefill_entries: tuple[int, ...] = ()
    prefill_held: tuple[int, ...] = ()


@dataclass(frozen=True)
class Split:
    """How a replica is spread over devices: tensor-parallel ranks, pipeline stages, context-parallel devices."""

    tp: int = 1
    pp: int = 1
    cp: int = 1

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.tp * self.pp * self.cp


class StepTimes:
    """The times of a model's steps on a device.

    weights, kv_dtype: names of ledger formats; efficiencies may be kept under them ("linear:w8a16"), see DeviceProfile.
    graph: steps of decode rows alone are captured. splits: of a decode row's keys; 0 as many as fill the device. link:
    between the devices of a replica; the profile's own by default. InputError for a split that the model can't have or
    that needs a link where none is known.
    """

    def __init__(
        self,
        spec: ModelSpec,
        profile: DeviceProfile,
        *,
        weights: str = "bf16",
        kv_dtype: str = "bf16",
        kv_group_size: int | None = None,
        split: Split = Split(),
        graph: bool = True,
        splits: int = 0,
        link: Link | None = None,
    ) -> None:
        stages(spec.num_layers, split.pp)
        positive("cp", split.cp, MAX_RANKS)
        self.spec, self.profile, self.split, self.graph, self.splits = spec, profile, split, graph, splits
        self.weights, self.kv_dtype = weights, kv_dtype
        self.costs = StepCosts(spec, weights, split.tp)
        self.stored = element_format(kv_dtype, kv_group_size)
        self.reads = readers(spec, self.stored, self.costs.element_bytes, split.tp)
        self.link = link or profile.link
        if split.devices > 1 and self.link is None:
            raise InputError("tp, pp or cp", split.devices, f"1, since no link is known for {profile.label}")
        device = profile.accelerator
        self._bandwidth = device.bandwidth_bytes_per_s
        self._rate = device.rate(self.costs.plain_dtype)[1]
        self._linear = profile.efficiency("linear", weights)
        self._decode = profile.efficiency("attention_decode", kv_dtype)
        self._prefill = profile.efficiency("attention_prefill", kv_dtype)
        self._elementwise = profile.efficiency("elementwise")
        self._sampling = profile.efficiency("sampling")
        self._state = [self._states(decode) for decode in (True, False)]
        self.layers_s = lru_cache(REMEMBERED)(self._layers_s)
        self.head_s = lru_cache(REMEMBERED)(self._head_s)

    # -- shapes --------------------------------------------------------------------------------------------------

    def shape(self, rows: Iterable[tuple[int, int, int, bool]]) -> StepShape:
        """The shape of rows given as (start, count, rows of logits, whether it is a piece of a prompt)."""
        # Plain readers read alike, so that one stands for all.
        plain, readers = self.is_plain, self.reads.readers
        found = readers[:1] if plain else readers
        entries, held = [[0] * len(found), [0] * len(found)], [[0] * len(found), [0] * len(found)]
        counts, tokens, sampled, number = [0, 0], [0, 0], 0, 0
        for start, count, wanted, is_prefill in rows:
            side = 1 if is_prefill else 0
            number += 1
            counts[side] += 1
            tokens[side] += count
            sampled += wanted
            for place, reader in enumerate(found):
                pairs, once = (start + 1, start + 1) if plain and count == 1 else _reads(reader, start, count)
                entries[side][place] += pairs
                held[side][place] += once
        times = len(readers) if plain else 1
        return StepShape(
            tokens[0] + tokens[1], sampled, number,
            counts[0], tokens[0], tuple(entries[0]) * times, tuple(held[0]) * times,
            tokens[1], tuple(entries[1]) * times, tuple(held[1]) * times,
        )  # fmt: skip

    @cached_property
    def is_plain(self) -> bool:
        """Whether a token reads every token before it in every layer, so that sums of contexts are all it takes."""
        return all(reader.is_plain for reader in self.reads.readers)

    # -- times ---------------------------------------------------------------------------------------------------

    def step_s(self, shape: StepShape) -> float:
        """Seconds from one step's beginning to the next one's, host work included."""
        return self.device_s(shape) + self.host_s(shape.rows)

    def host_s(self, rows: int) -> float:
        """Seconds of planning, sampling bookkeeping and text, which the device waits for."""
        return self.profile.host_step_s + rows * self.profile.host_row_s

    def device_s(self, shape: StepShape) -> float:
        """Seconds of a step's execution."""
        split = self.split
        micro = min(split.pp, max(1, shape.rows))
        prefill_share = shape.prefill_tokens / shape.tokens if shape.tokens else 0.0
        tokens = -(-shape.tokens // micro)
        if split.cp > 1:  # a prompt's tokens are spread; decode rows are computed on every device
            spread = prefill_share * tokens
            tokens = max(1, round(tokens - spread + spread / split.cp))
        layers = self.layers_s(tokens) + self.states_s(shape) / micro
        attention = self.prefill_s(shape) / micro
        if shape.decode_rows:
            attention += self.decode_s(shape) / (micro * split.cp)
        head = self.head_s(-(-shape.sampled // micro))
        is_captured = self.graph and not shape.prefill_tokens
        stage = self._launched((layers + attention) / split.pp, is_captured) + self.reduce_s(tokens) / split.pp
        if split.cp > 1 and shape.decode_rows:
            stage += self._combine_s(-(-shape.decode_rows // micro))
        last = head + self.gather_s(-(-shape.sampled // micro))
        hop = self._hop_s(tokens) if split.pp > 1 else 0.0
        return (micro - 1) * max(stage + hop, stage + last) + split.pp * stage + (split.pp - 1) * hop + last

    def roofs_s(self, shape: StepShape) -> dict[str, float]:
        """The parts of a step on one device, as the profile's shares of the roof give them and without slowdowns: the
        weight matrices of the "layers" and of the "head", and every other class under its name."""
        layers = elementwise = 0.0
        for operator in self.costs.of_tokens(shape.tokens, 1):
            if operator.part != "head" and not operator.link_bytes:
                seconds = self.operator_s(operator, shape.tokens, slowed=False)
                layers, elementwise = (
                    (layers + seconds, elementwise) if operator.linear else (layers, elementwise + seconds)
                )
        head = [item for item in self.costs.of_tokens(1, max(1, shape.sampled)) if item.part == "head"]
        head_s = sum(self.operator_s(item, shape.sampled, slowed=False) for item in head)
        decode_s = self.decode_s(shape) / self._decode.times(shape.decode_rows) if shape.decode_rows else 0.0
        return {
            "layers": layers,
            "head": head_s if shape.sampled else 0.0,
            "attention_decode": decode_s,
            "attention_prefill": self.prefill_s(shape) / self._prefill.times(max(1, shape.prefill_tokens)),
            "elementwise": elementwise + self.states_s(shape) / self._elementwise.times(shape.tokens),
            "sampling": self._choice_s(shape.sampled),
        }

    def decode_run_s(self, rows: int, entries: Amount, ends: Ends = FLOATS) -> Amount:
        """step_s of `rows` plain decode rows whose contexts add up to `entries`, a number or, with their `ends`, an
        array of them; where `is_plain` and nothing is split into stages or over contexts. The same to the last bit."""
        found = self.reads.readers
        attention = self._attention(self._decode, [entries] * len(found), [entries] * len(found), rows, rows, ends)
        layers = self.layers_s(rows) + self.states_s(StepShape(rows, rows, rows, decode_rows=rows, decode_tokens=rows))
        stage = self._launched(layers + attention, self.graph, ends) + self.reduce_s(rows)
        return stage + (self.head_s(rows) + self.gather_s(rows)) + self.host_s(rows)

    def decode_s(self, shape: StepShape) -> float:
        """Seconds of the attention of decode rows in all layers."""
        entries, held = list(shape.decode_entries), list(shape.decode_held)
        return self._attention(self._decode, entries, held, shape.decode_tokens, shape.decode_rows)

    def prefill_s(self, shape: StepShape) -> float:
        """Seconds of the attention of pieces of prompts in all layers; with a ring, of its slowest device."""
        if not shape.prefill_tokens:
            return 0.0
        flops = moved = 0.0
        for reader, entries, held in zip(self.reads.readers, shape.prefill_entries, shape.prefill_held, strict=True):
            flops += reader.prefill_flops * entries
            moved += reader.prefill_bytes * held
        moved += self.reads.prefill_token_bytes * shape.prefill_tokens
        cp = self.split.cp
        one = self._roof(flops / cp, moved / cp, self._prefill) * self._prefill.times(shape.prefill_tokens)
        return one if cp == 1 else max(one, self.ring_s(shape.prefill_held))

    def ring_s(self, held: Sequence[int]) -> float:
        """Seconds that keys and values take once round the ring, all layers: the entries that pieces of prompts read,
        of what was computed before them too, for each of the model's readers. Attention hides it where it takes longer.
        """
        assert self.link is not None
        moved = sum(reader.decode_bytes * once for reader, once in zip(self.reads.readers, held, strict=True))
        hop_s = self.link.send_s(moved / self.spec.num_layers / self.split.cp)
        return self.spec.num_layers * (self.split.cp - 1) * hop_s

    def _attention(
        self,
        kept: Efficiency,
        entries: list[Amount],
        held: list[Amount],
        tokens: int,
        rows: int,
        ends: Ends = FLOATS,
    ) -> Amount:
        flops: Amount = 0.0 * entries[0] if entries else 0.0
        moved = flops + self.reads.decode_token_bytes * tokens
        for reader, read, once in zip(self.reads.readers, entries, held, strict=True):
            flops = flops + reader.decode_flops * read
            moved = moved + reader.decode_bytes * once
        found = self._roof(flops, moved, kept, ends) * kept.times(rows)
        if not self.profile.processors or not entries:
            return found
        return found / self.occupancy(rows, entries[0] / rows, ends)

    def occupancy(self, rows: int, context: Amount, ends: Ends = FLOATS) -> Amount:
        """Share of the device's processors that decode attention keeps busy: rows x KV heads x splits of the keys."""
        heads = max((layer.kv_heads for layer in self.spec.layers), default=0) or 1
        programs = rows * max(1, -(-heads // self.split.tp))
        able = self.splits + 0.0 * context if self.splits else ends.larger(context / SPLIT_TOKENS, 1.0)
        return ends.smaller(programs * able / self.profile.processors, 1.0)

    def _roof(self, flops: Amount, moved: Amount, kept: Efficiency, ends: Ends = FLOATS) -> Amount:
        return ends.larger(flops / (self._rate * kept.compute), moved / (self._bandwidth * kept.memory))

    def _layers_s(self, tokens: int) -> float:
        """Seconds of everything but attention, states, head and link, of all layers over so many tokens."""
        seconds = 0.0
        for operator in self.costs.of_tokens(tokens, 1):
            if not operator.link_bytes and operator.part != "head":
                seconds += self.operator_s(operator, tokens)
        return seconds

    def operator_s(self, operator: Operator, rows: int, *, slowed: bool = True) -> float:
        """Seconds of a weight matrix or of elementwise work over so many rows."""
        kept = self._linear if operator.linear else self._elementwise
        rate = self.profile.accelerator.rate(operator.compute_dtype)[1] * kept.compute
        roof = max(operator.flops / rate, operator.bytes / (self._bandwidth * kept.memory))
        return roof * kept.times(rows) if slowed else roof

    def _head_s(self, rows: int) -> float:
        """Seconds of the logits of so many rows, and of choosing from them."""
        if not rows:
            return 0.0
        found = sum(self.operator_s(item, rows) for item in self.costs.of_tokens(1, rows) if item.part == "head")
        return found + self._choice_s(rows) * self._sampling.times(rows)

    def _choice_s(self, rows: int) -> float:
        """Seconds at the roof of choosing from the logits of so many rows."""
        logits = SAMPLING_PASSES * rows * self.spec.vocab_size * LOGIT_BYTES / self.split.tp
        return logits / (self._bandwidth * self._sampling.memory)

    def states_s(self, shape: StepShape) -> float:
        """Seconds of recurrent states in all layers."""
        decode, prefill = self._state
        if not decode[0] and not decode[1]:
            return 0.0
        prompts = shape.rows - shape.decode_rows
        flops = decode[0] * shape.decode_tokens + prefill[0] * shape.prefill_tokens
        moved = decode[1] * shape.decode_rows + prefill[1] * prompts
        return self._roof(flops, moved, self._elementwise) * self._elementwise.times(shape.tokens)

    def _states(self, decode: bool) -> tuple[float, float]:
        """(operations a token, bytes a row) of all recurrent states."""
        step = Step(decode, 1, 1, self.split.tp, self.stored, self.costs.element_bytes)
        delta = self.costs.has_delta_rule
        found = [
            recurrence(layer, step, delta_rule=delta)
            for layer in self.spec.layers
            if layer.state_elements or layer.conv_elements
        ]
        return sum(cost.flops for cost in found), float(sum(cost.kv_bytes for cost in found))

    def _launched(self, seconds: Amount, is_captured: bool, ends: Ends = FLOATS) -> Amount:
        """What a step lasts with the beginnings and ends of its kernels, and with launching them: launches hide behind
        one another's execution only where that takes longer."""
        profile = self.profile
        kernels = self.spec.num_layers * profile.kernels_per_layer / self.split.pp
        whole = seconds + kernels * profile.kernel_s
        if is_captured:
            return whole + profile.graph_launch_s
        return ends.larger(whole, kernels * profile.launch_s + 0.0 * seconds)

    # -- links ---------------------------------------------------------------------------------------------------

    def reduce_s(self, tokens: int) -> float:
        """Seconds of a step's all-reduces over the tensor-parallel ranks: two a layer and one for the embedding."""
        if self.split.tp == 1:
            return 0.0
        assert self.link is not None
        found = next(item for item in self.costs.of_tokens(tokens, 1) if item.name == "all-reduce")
        return found.count * self.link.steps_s(2 * (self.split.tp - 1)) + found.link_bytes / self.link.bytes_per_s

    def gather_s(self, rows: int) -> float:
        """Seconds of gathering the logits of so many rows."""
        if self.split.tp == 1 or not rows:
            return 0.0
        assert self.link is not None
        found = next(item for item in self.costs.of_tokens(1, rows) if item.name == "all-gather of logits")
        return self.link.steps_s(self.split.tp - 1) + found.link_bytes / self.link.bytes_per_s

    def _hop_s(self, tokens: int) -> float:
        """Seconds of hidden states from one stage to the next."""
        assert self.link is not None
        return self.link.send_s(tokens * self.spec.hidden_size * self.costs.element_bytes)

    def _combine_s(self, rows: int) -> float:
        """Seconds of merging the partial results of decode rows over context-parallel devices, a stage's layers."""
        assert self.link is not None
        vector = rows * self.spec.num_heads * (self.spec.head_dim + 2) * 4
        return self.spec.num_layers / self.split.pp * self.link.all_reduce_s(vector, self.split.cp)


def _reads(reader: Reader, start: int, count: int) -> tuple[int, int]:
    """(entries read by the row's tokens in all, entries read once)."""
    if count == 1:
        found = start + 1 if reader.is_plain else reader.entries(start + 1)
        return found, found
    if reader.is_plain:
        return count * start + count * (count + 1) // 2, start + count
    return reader.pairs(start, count), reader.held(start, count)
