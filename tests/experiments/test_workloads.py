"""Built-in workloads: exact lengths, seeded schedules, plain errors."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.workloads import WORKLOADS, build, poisson_arrivals_ns
from experiments.workloads.lengths import log_uniform_lengths
from experiments.workloads.text import exact_prompt
from ledger.errors import InputError


class ByteTokenizer:
    """Every byte is a token: no whole words, the hardest case for exact lengths."""

    def encode(self, text):
        return list(text.encode())

    def decode(self, ids):
        return bytes(ids).decode(errors="replace")

    def apply_chat_template(self, messages):
        return self.encode("".join(f"<{m['role']}>{m['content']}</>" for m in messages) + "<assistant>")


@pytest.fixture(scope="module")
def word_tokenizer():
    """A real BPE tokenizer with merges, trained on the workload's own sentences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from experiments.workloads.text import QUESTIONS, SENTENCES

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator([" ".join(SENTENCES), " ".join(QUESTIONS)] * 3, trainer)

    class Adapter:
        def encode(self, text):
            return bpe.encode(text).ids

        def decode(self, ids):
            return bpe.decode(ids)

        def apply_chat_template(self, messages):
            return self.encode("".join(m["content"] for m in messages))

    return Adapter()


def test_a_hundred_prompts_of_a_thousand_tokens_keep_their_length_when_encoded_again(word_tokenizer):
    rng = np.random.default_rng(0)
    prompts = [exact_prompt(word_tokenizer, 1000, rng) for _ in range(100)]
    deviations = [len(word_tokenizer.encode(word_tokenizer.decode(list(ids)))) - 1000 for ids in prompts]
    assert deviations == [0] * 100
    assert len(set(prompts)) == 100


def test_short_prompts_are_exact_too(word_tokenizer):
    rng = np.random.default_rng(1)
    for length in range(1, 60):
        ids = list(exact_prompt(word_tokenizer, length, rng))
        assert len(ids) == length
        assert word_tokenizer.encode(word_tokenizer.decode(ids)) == ids


@pytest.mark.parametrize("seed", range(5))
def test_mixed_has_the_stated_lengths_and_a_long_tail(seed):
    workload = build("mixed", seed=seed, tokenizer=ByteTokenizer())
    outputs = sorted(request.output_tokens for request in workload.requests)
    assert {request.max_tokens for request in workload.requests} == {256}
    prompts = [len(request.prompt_token_ids) for request in workload.requests]
    assert len(outputs) == 24
    assert 8 <= outputs[0] <= 9
    assert 220 <= outputs[-1] <= 256
    assert sum(outputs) / 24 > 1.3 * outputs[12]
    assert min(prompts) >= 16
    assert max(prompts) <= 192
    assert workload.ignore_eos


def test_equal_comes_all_at_once_with_one_length():
    workload = build("equal", seed=3, tokenizer=ByteTokenizer())
    shapes = {(len(r.prompt_token_ids), r.max_tokens, r.output_tokens, r.arrival_ns) for r in workload.requests}
    assert shapes == {(32, 32, 32, 0)}
    assert workload.rate_rps is None
    assert len(workload.requests) == 16


def test_chat_goes_through_the_template():
    tokenizer = ByteTokenizer()
    workload = build("chat", seed=0, tokenizer=tokenizer)
    for request in workload.requests:
        text = tokenizer.decode(list(request.prompt_token_ids))
        assert text.startswith("<user>")
        assert text.endswith("<assistant>")
        assert 16 <= request.output_tokens <= 96
        assert request.max_tokens == 96


@pytest.mark.parametrize("seed", range(5))
def test_long_tail_has_few_long_answers_and_a_limit_far_above_the_typical_one(seed):
    workload = build("long-tail", seed=seed, tokenizer=ByteTokenizer())
    outputs = sorted(request.output_tokens for request in workload.requests)
    assert len(outputs) == 24
    assert outputs[20] <= 24 and outputs[21] >= 128
    assert {(request.max_tokens, request.arrival_ns) for request in workload.requests} == {(512, 0)}
    assert max(outputs) <= 256  # reserving for the limit wastes at least half even under the longest answer
    assert workload.describe()["output_tokens"] == sum(outputs)
    assert workload.describe()["max_tokens"] == 512


def test_a_long_tail_of_few_requests_still_has_one_long_answer():
    workload = build("long-tail", seed=0, tokenizer=ByteTokenizer(), num_requests=2)
    assert sorted(request.output_tokens >= 128 for request in workload.requests) == [False, True]


def test_shared_prefix_begins_alike_for_some_hundred_tokens_and_asks_different_things(word_tokenizer):
    workload = build("shared-prefix", seed=0, tokenizer=word_tokenizer)
    prompts = [request.prompt_token_ids for request in workload.requests]
    common = next(place for place in range(10_000) if len({prompt[: place + 1] for prompt in prompts}) > 1)
    assert common >= 400
    assert all(len(prompt) - common < 200 for prompt in prompts)
    assert len(set(prompts)) == len(prompts)
    for ids in prompts:  # a server that gets the text counts the same tokens
        assert tuple(word_tokenizer.encode(word_tokenizer.decode(list(ids)))) == ids
    gaps = np.diff([request.arrival_ns for request in workload.requests]) / 1e9
    assert gaps.mean() == pytest.approx(2.0, rel=0.7)


def test_another_seed_shares_another_prefix():
    first, other = (build("shared-prefix", seed=s, tokenizer=ByteTokenizer(), num_requests=1) for s in (0, 1))
    assert first.requests[0].prompt_token_ids[:400] != other.requests[0].prompt_token_ids[:400]


def test_the_same_seed_gives_the_same_requests_and_another_seed_others():
    first, again, other = (build("mixed", seed=s, tokenizer=ByteTokenizer()) for s in (7, 7, 8))
    assert first == again
    assert [r.arrival_ns for r in first.requests] != [r.arrival_ns for r in other.requests]
    assert [r.prompt_token_ids for r in first.requests] != [r.prompt_token_ids for r in other.requests]


def test_a_changed_rate_keeps_texts_and_lengths():
    slow, fast = (build("mixed", seed=7, tokenizer=ByteTokenizer(), rate_rps=r) for r in (1.0, 10.0))
    assert [r.prompt_token_ids for r in slow.requests] == [r.prompt_token_ids for r in fast.requests]
    assert [r.output_tokens for r in slow.requests] == [r.output_tokens for r in fast.requests]
    assert slow.requests[-1].arrival_ns == pytest.approx(10 * fast.requests[-1].arrival_ns, abs=100)


def test_options_change_what_they_name():
    workload = build("mixed", seed=0, tokenizer=ByteTokenizer(), num_requests=5, max_tokens_cap=12)
    assert len(workload.requests) == 5
    assert max(r.output_tokens for r in workload.requests) == 12
    assert {r.max_tokens for r in workload.requests} == {12}
    described = workload.describe()
    assert described["num_requests"] == 5
    assert described["output_tokens"] == sum(r.output_tokens for r in workload.requests)


def test_poisson_arrivals_have_the_rate_the_dispersion_and_independent_gaps():
    arrivals = np.array(poisson_arrivals_ns(8.0, 20_000, np.random.default_rng(4))) / 1e9
    assert arrivals[0] == 0
    assert len(arrivals) / arrivals[-1] == pytest.approx(8.0, rel=0.03)
    counts, _ = np.histogram(arrivals, bins=np.arange(0, arrivals[-1], 1.0))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)
    gaps = np.diff(arrivals)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03
    assert (gaps >= 0).all()


def test_senders_that_share_one_schedule_keep_its_dispersion():
    """A copy of the seed in each of four workers would make counts four times as dispersed."""
    arrivals = np.array(poisson_arrivals_ns(8.0, 8_000, np.random.default_rng(4))) / 1e9
    merged = np.sort(np.concatenate([arrivals[worker::4] for worker in range(4)]))
    counts, _ = np.histogram(merged, bins=np.arange(0, merged[-1], 1.0))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.15)


def test_the_sum_of_stratified_lengths_hardly_depends_on_the_seed():
    sums = [sum(log_uniform_lengths(8, 256, 24, np.random.default_rng(s))) for s in range(200)]
    assert np.std(sums) / np.mean(sums) < 0.03


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": "nothing"}, "workload"),
        ({"num_requests": 0}, "num_requests"),
        ({"rate_rps": 0.0}, "rate_rps"),
        ({"rate_rps": float("nan")}, "rate_rps"),
        ({"rate_rps": float("inf")}, "rate_rps"),
        ({"max_tokens_cap": 0}, "max_tokens_cap"),
        ({"seed": -1}, "seed"),
        ({"name": "equal", "rate_rps": 2.0}, "rate_rps"),
    ],
)
def test_wrong_options_are_named(options, field):
    arguments = {"name": "mixed", "seed": 0, "tokenizer": ByteTokenizer()} | options
    with pytest.raises(InputError) as error:
        build(arguments.pop("name"), **arguments)
    assert error.value.field == field
    assert "\n" not in str(error.value)


def test_every_workload_has_a_name_a_description_and_can_be_built():
    for name, spec in WORKLOADS.items():
        assert spec.name == name
        assert spec.description.endswith(".")
        assert len(build(name, seed=0, tokenizer=ByteTokenizer(), num_requests=2).requests) == 2


@pytest.mark.parametrize(("name", "asked"), [("copy", "Repeat the following text"), ("code", "Rename the function")])
def test_a_text_to_be_given_back_is_longer_than_the_answer(name, asked):
    workload = build(name, seed=3, tokenizer=ByteTokenizer())
    texts = [ByteTokenizer().decode(request.prompt_token_ids) for request in workload.requests]
    assert all(text.startswith(f"<user>{asked}") for text in texts) and len(set(texts)) == len(texts)
    for request, text in zip(workload.requests, texts, strict=True):
        assert len(text.partition("\n\n")[2].encode()) >= request.output_tokens
