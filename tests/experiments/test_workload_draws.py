"""Distributions, arrivals, prefixes, sessions, texts and workload files: what is asked for is what is drawn."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import WORKLOADS, Workload, build
from experiments.workloads.arrivals import Burst, Constant, Gamma, Poisson, Ramp, Think
from experiments.workloads.draw import TOO_LONG, draw
from experiments.workloads.lengths import Empirical, Fixed, Lognormal, Uniform, Zipf
from experiments.workloads.options import Options
from experiments.workloads.spec import ClosedLoop, Prefixes, Sessions, WorkloadSpec
from experiments.workloads.stock import STOCKS, stock
from experiments.workloads.text import block_of_text, stock_prompt
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import ByteTokenizer

COUNT = 40_000


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(spec: WorkloadSpec, seed: int = 0, **options: Any) -> Workload:
    return draw(spec, seed=seed, tokenizer=ByteTokenizer(), options=Options(**options))


def spec_of(**fields: Any) -> WorkloadSpec:
    return WorkloadSpec(
        **{"name": "test", "num_requests": 20, "prompt_tokens": Fixed(8), "output_tokens": Fixed(4)} | fields
    )


# -- arrivals ------------------------------------------------------------------------------------------------------


def dispersion(arrivals_s: np.ndarray, window_s: float) -> float:
    """Variance over mean of the counts in windows; 1 for a Poisson process."""
    counts, _ = np.histogram(arrivals_s, bins=np.arange(0, arrivals_s[-1], window_s))
    return float(counts.var() / counts.mean())


def lag_1(arrivals_s: np.ndarray) -> float:
    gaps = np.diff(arrivals_s)
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


@pytest.mark.parametrize("seed", range(4))
def test_forty_thousand_poisson_arrivals_are_dispersed_as_such_and_independent(seed: int) -> None:
    arrivals = np.array(Poisson(8.0).draw_ns(COUNT, rng(seed))) / 1e9
    assert dispersion(arrivals, 1 / 8) == pytest.approx(1, abs=0.05)
    assert abs(lag_1(arrivals)) < 0.02
    assert len(arrivals) / arrivals[-1] == pytest.approx(8, rel=0.02)


def test_workers_that_share_one_schedule_send_a_poisson_process_and_copies_of_a_seed_do_not() -> None:
    schedule = np.array(Poisson(8.0).draw_ns(COUNT, rng(5))) / 1e9
    shared = np.sort(np.concatenate([schedule[worker::4] for worker in range(4)]))
    assert dispersion(shared, 1 / 8) == pytest.approx(1, abs=0.05)
    assert abs(lag_1(shared)) < 0.02
    copies = np.sort(np.concatenate([np.array(Poisson(2.0).draw_ns(COUNT // 4, rng(5))) / 1e9] * 4))
    assert dispersion(copies, 1 / 8) > 2  # the fault that one schedule makes impossible


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
def test_gamma_gaps_have_the_rate_and_the_cv(cv: float) -> None:
    gaps = np.diff(Gamma(4.0, cv).draw_ns(COUNT, rng())) / 1e9
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_a_ramp_goes_from_one_rate_to_the_other() -> None:
    arrivals = np.array(Ramp(2.0, 18.0).draw_ns(COUNT, rng())) / 1e9
    last_s = COUNT / 10  # the mean rate
    assert arrivals[-1] == pytest.approx(last_s, rel=0.02)
    counts, edges = np.histogram(arrivals, bins=10, range=(0, last_s))
    middles = (edges[:-1] + edges[1:]) / 2 / last_s
    assert counts / (last_s / 10) == pytest.approx(2 + 16 * middles, rel=0.08)


@pytest.mark.parametrize("ends", [(18.0, 2.0), (5.0, 5.0)])
def test_a_falling_or_a_flat_ramp_is_one_too(ends: tuple[float, float]) -> None:
    arrivals = np.array(Ramp(*ends).draw_ns(COUNT, rng(1))) / 1e9
    first, last = (np.histogram(arrivals, bins=10, range=(0, COUNT / Ramp(*ends).mean_rps))[0][i] for i in (0, -1))
    length_s = COUNT / Ramp(*ends).mean_rps / 10
    slope = (ends[1] - ends[0]) / 20
    assert first / length_s == pytest.approx(ends[0] + slope, rel=0.1)
    assert last / length_s == pytest.approx(ends[1] - slope, rel=0.1)


def test_constant_gaps_and_bursts_of_a_size() -> None:
    assert Constant(4.0).draw_ns(5, rng()) == [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]
    assert Burst(size=2, every_s=0.5).draw_ns(5, rng()) == [0, 0, 500_000_000, 500_000_000, 1_000_000_000]
    assert Burst().draw_ns(3, rng()) == [0, 0, 0]


@settings(max_examples=50)
@given(
    st.sampled_from(
        [Poisson(3.0), Gamma(3.0, 2.5), Constant(3.0), Burst(4, 2.0), Burst(), Ramp(1.0, 5.0), Ramp(5.0, 0.1)]
    ),
    st.integers(1, 200),
    st.integers(0, 2**32),
)
def test_arrivals_begin_at_zero_never_decrease_and_follow_from_the_seed(arrivals: Any, count: int, seed: int) -> None:
    times = arrivals.draw_ns(count, rng(seed))
    assert times == arrivals.draw_ns(count, rng(seed))
    assert len(times) == count and times[0] == 0
    assert times == sorted(times)


@pytest.mark.parametrize("arrivals", [Poisson(2.0), Gamma(2.0, 3.0), Constant(2.0), Burst(5, 1.0), Ramp(1.0, 4.0)])
def test_another_rate_keeps_the_pattern(arrivals: Any) -> None:
    faster = arrivals.at_rate(2 * arrivals.mean_rps)
    assert faster.mean_rps == pytest.approx(2 * arrivals.mean_rps)
    slow, fast = (one.draw_ns(50, rng(3)) for one in (arrivals, faster))
    assert np.array(fast) * 2 == pytest.approx(np.array(slow), abs=2)


# -- lengths -------------------------------------------------------------------------------------------------------


def test_uniform_lengths_have_both_ends_and_their_mean() -> None:
    lengths = Uniform(3, 9).draw(COUNT, rng())
    assert (min(lengths), max(lengths)) == (3, 9)
    assert np.mean(lengths) == pytest.approx(6, rel=0.01)
    assert np.bincount(lengths)[3:] / COUNT == pytest.approx([1 / 7] * 7, abs=0.01)


def test_lognormal_lengths_have_the_median_and_the_mean() -> None:
    lengths = Lognormal(median=200, sigma=0.8).draw(COUNT, rng())
    assert np.median(lengths) == pytest.approx(200, rel=0.02)
    assert np.mean(lengths) == pytest.approx(200 * math.exp(0.32), rel=0.02)
    assert np.std(np.log(lengths)) == pytest.approx(0.8, rel=0.02)


@pytest.mark.parametrize("exponent", [0.0, 1.1, 2.5])
def test_zipf_lengths_have_the_moments_of_their_distribution(exponent: float) -> None:
    support = np.arange(4, 257)
    shares = support.astype(float) ** -exponent
    shares /= shares.sum()
    mean = float((support * shares).sum())
    deviation = math.sqrt(float((support**2 * shares).sum()) - mean**2)
    lengths = Zipf(exponent, 4, 256).draw(COUNT, rng())
    assert np.mean(lengths) == pytest.approx(mean, abs=4 * deviation / math.sqrt(COUNT))
    assert np.std(lengths) == pytest.approx(deviation, rel=0.05)
    assert min(lengths) >= 4 and max(lengths) <= 256


def test_a_steep_zipf_over_a_wide_range_is_still_one() -> None:
    assert set(Zipf(60.0, 100, 100_000).draw(1000, rng())) <= set(range(100, 140))


def test_empirical_lengths_come_from_the_list_in_its_proportions(tmp_path: Path) -> None:
    lengths = Empirical((5, 5, 5, 70)).draw(COUNT, rng())
    assert set(lengths) == {5, 70}
    assert lengths.count(70) / COUNT == pytest.approx(0.25, abs=0.01)
    (tmp_path / "lengths.txt").write_text("5\n5\n70\n5\n")
    assert sorted(Empirical(file=str(tmp_path / "lengths.txt")).values) == [5, 5, 5, 70]


# -- options -------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 60), st.sampled_from([0.25, 1.0, 3.0]))
def test_what_is_clipped_and_what_is_sent_add_up(seed: int, most_prompt: int, most_output: int, scale: float) -> None:
    spec = spec_of(prompt_tokens=Uniform(1, 50), output_tokens=Uniform(1, 50))
    limits = {"max_prompt_tokens": most_prompt, "max_tokens_cap": most_output}
    free, made = drawn(spec, seed, length_scale=scale), drawn(spec, seed, length_scale=scale, **limits)
    again = drawn(spec, seed, length_scale=scale, **limits)
    assert made == again
    for name, most, got in (
        ("prompt_tokens", most_prompt, lambda r: r.prompt_tokens),
        ("output_tokens", most_output, lambda r: r.output_tokens),
    ):
        assert [got(r) for r in made.requests] == [min(most, got(r)) for r in free.requests]
        assert made.describe()["clipped"][name] == sum(got(r) > most for r in free.requests)


def test_answers_longer_than_the_stated_limit_are_clipped_to_it_and_counted() -> None:
    workload = drawn(spec_of(output_tokens=Uniform(1, 50), max_tokens=20))
    assert {request.max_tokens for request in workload.requests} == {20}
    assert max(request.output_tokens for request in workload.requests) == 20
    at_limit = sum(request.output_tokens == 20 for request in workload.requests)
    assert 0 < workload.describe()["clipped"]["output_tokens"] <= at_limit


def test_a_time_scale_multiplies_the_gaps_and_a_length_scale_the_lengths() -> None:
    spec = spec_of(arrivals=Poisson(4.0), prompt_tokens=Uniform(20, 40))
    plain, scaled = drawn(spec), drawn(spec, time_scale=0.5, length_scale=2.0)
    assert [r.arrival_ns for r in scaled.requests] == [round(r.arrival_ns / 2) for r in plain.requests]
    assert [r.prompt_tokens for r in scaled.requests] == [2 * r.prompt_tokens for r in plain.requests]
    described = scaled.describe()
    assert (described["rate_rps"], described["time_scale"], described["length_scale"]) == (8.0, 0.5, 2.0)


def test_describe_says_what_was_realised() -> None:
    described = drawn(spec_of(arrivals=Constant(5.0), prompt_tokens=Empirical((10, 30)))).describe()
    spread = described["lengths"]["prompt_tokens"]
    assert described["realised_rps"] == pytest.approx(5.0)
    assert (spread["min"], spread["max"]) == (10, 30)
    assert spread["mean"] == described["prompt_tokens"] / 20
    assert described["lengths"]["output_tokens"]["p99"] == 4


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"rate_rps": 2.0, "concurrency": 2}, "rate_rps"),
        ({"rate_rps": 2.0, "time_scale": 0.5}, "time_scale"),
        ({"time_scale": 0.0}, "time_scale"),
        ({"length_scale": math.inf}, "length_scale"),
        ({"concurrency": 0}, "concurrency"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens"),
    ],
)
def test_options_that_contradict_or_are_out_of_range_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        build("mixed", seed=0, tokenizer=ByteTokenizer(), **options)
    assert error.value.field == field


# -- prefixes and sessions -----------------------------------------------------------------------------------------


def test_a_group_shares_its_prefix_and_popularity_follows_zipf() -> None:
    groups = Prefixes(tokens=1, groups=4, popularity=1.0).draw(COUNT, rng())
    assert np.bincount(groups) / COUNT == pytest.approx(np.array([1, 1 / 2, 1 / 3, 1 / 4]) * 12 / 25, abs=0.01)
    workload = drawn(spec_of(prefixes=Prefixes(tokens=40, groups=3), num_requests=12))
    by_group: dict[int | None, set[tuple[int, ...]]] = {}
    for request in workload.requests:
        by_group.setdefault(request.prefix_group, set()).add(request.prompt_token_ids[:40])
    assert all(len(starts) == 1 for starts in by_group.values())
    assert len({start for starts in by_group.values() for start in starts}) == len(by_group) > 1
    assert len({request.prompt_token_ids for request in workload.requests}) == 12


def test_turns_know_their_parent_and_history_and_come_to_the_asked_number() -> None:
    spec = spec_of(sessions=Sessions(Uniform(1, 4), Think(0.5)), arrivals=Poisson(2.0), num_requests=17)
    workload = drawn(spec)
    assert len(workload.requests) == 17
    for number, request in enumerate(workload.requests):
        if request.parent is None:
            assert (request.history_tokens, request.think_ns) == (0, 0)
        else:
            before = workload.requests[request.parent]
            assert request.parent == number - 1 and request.session == before.session
            assert request.history_tokens == before.prompt_tokens + before.output_tokens
            assert request.think_ns == 500_000_000
            assert request.arrival_ns == before.arrival_ns
    described = workload.describe()["sessions"]
    assert described["count"] == sum(request.parent is None for request in workload.requests)
    assert described["most_turns"] <= 4


def test_turns_that_outgrow_the_limit_are_dropped_and_counted() -> None:
    spec = spec_of(sessions=Sessions(Fixed(5)), num_requests=10)
    workload = drawn(spec, max_prompt_tokens=32)  # 8, then 12 more a turn: 8, 20, 32, 44
    assert [request.prompt_tokens for request in workload.requests] == [8, 20, 32] * 2
    assert workload.describe()["dropped"] == {TOO_LONG: 4}


def test_clients_of_a_closed_loop_have_no_rate_but_a_pause() -> None:
    spec = spec_of(closed=ClosedLoop(3, Think(2.0, "exponential")))
    workload = drawn(spec, seed=1)
    described = workload.describe()
    assert (workload.concurrency, workload.rate_rps, described["realised_rps"]) == (3, None, None)
    pauses = [request.think_ns / 1e9 for request in drawn(spec, num_requests=2000).requests]
    assert np.mean(pauses) == pytest.approx(2.0, rel=0.1) and np.std(pauses) == pytest.approx(2.0, rel=0.1)
    assert drawn(spec_of(arrivals=Poisson(1.0)), concurrency=5).concurrency == 5
    with pytest.raises(InputError) as error:
        drawn(spec, rate_rps=1.0)
    assert error.value.field == "rate_rps"


# -- texts ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def word_tokenizer() -> Any:
    """A byte-level BPE with merges, trained on our own stocks: Chinese characters take several tokens in it too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(
        [" ".join((*stock(kind).openers, *stock(kind).pieces)) for kind in STOCKS] + [" and the it a " * 50], trainer
    )

    class Adapter:
        def encode(self, text: str) -> list[int]:
            return bpe.encode(text).ids

        def decode(self, ids: list[int]) -> str:
            return bpe.decode(ids)

        def apply_chat_template(self, messages: Any) -> list[int]:
            return self.encode("".join(f"<{m['role']}>{m['content']}</>" for m in messages) + "<assistant>")

    return Adapter()


@pytest.mark.parametrize("kind", STOCKS)
def test_our_texts_have_exact_lengths_that_survive_decoding(word_tokenizer: Any, kind: str) -> None:
    source, lengths = rng(1), [5, 17, 64, 300, 1000]
    for length in lengths * 4:
        ids = list(stock_prompt(word_tokenizer, length, source, kind=kind))
        assert len(word_tokenizer.encode(word_tokenizer.decode(ids))) == len(ids) == length


@pytest.mark.parametrize("kind", STOCKS)
def test_our_texts_read_as_what_they_are_and_do_not_begin_alike(kind: str) -> None:
    texts = [ByteTokenizer().decode(stock_prompt(ByteTokenizer(), 400, rng(s), kind=kind)) for s in range(30)]
    assert len({text[:16] for text in texts}) == 30
    decoded = [text.encode("latin-1").decode(errors="ignore") for text in texts]
    assert all(any(opener in text for opener in stock(kind).openers) for text in decoded)


def test_no_piece_comes_twice_before_all_have_come() -> None:
    for seed in range(5):
        text = ByteTokenizer().decode(stock_prompt(ByteTokenizer(), 4000, rng(seed), kind="long-doc"))
        assert max(text.count(piece[:60]) for piece in stock("long-doc").pieces) == 1


def test_blocks_of_text_keep_their_tokens_behind_others(word_tokenizer: Any) -> None:
    blocks = [block_of_text(word_tokenizer, 100, rng(s)) for s in range(6)]
    ids = [token for block in blocks for token in block]
    assert word_tokenizer.encode(word_tokenizer.decode(ids)) == ids


def test_a_hundred_prompts_behind_a_prefix_deviate_by_nothing(word_tokenizer: Any) -> None:
    spec = spec_of(prompt_tokens=Fixed(1000), prefixes=Prefixes(tokens=30), num_requests=100)
    workload = draw(spec, seed=0, tokenizer=word_tokenizer, options=Options())
    lengths = {len(request.prompt_token_ids) for request in workload.requests}
    assert len(lengths) == 1 and lengths.pop() >= 1030
    for request in workload.requests:
        ids = list(request.prompt_token_ids)
        assert word_tokenizer.encode(word_tokenizer.decode(ids)) == ids


def test_the_next_turn_of_a_template_ends_the_answer_and_opens_another(word_tokenizer: Any) -> None:
    spec = spec_of(text="chat", chat=True, sessions=Sessions(Fixed(2)), num_requests=2)
    workload = draw(spec, seed=0, tokenizer=word_tokenizer, options=Options())
    first, second = (word_tokenizer.decode(list(request.prompt_token_ids)) for request in workload.requests)
    assert first.startswith("<user>Message") and first.endswith("</><assistant>")
    assert second.startswith("</><user>Message") and second.endswith("</><assistant>")


def test_the_new_built_in_workloads_have_their_texts() -> None:
    assert {"mixed", "equal", "chat", "long-doc", "shared-prefix", "code", "copy", "zh"} <= set(WORKLOADS)
    for request in build("long-doc", seed=0, tokenizer=ByteTokenizer()).requests:
        assert 768 <= request.prompt_tokens <= 1536
    text = bytes(build("zh", seed=0, tokenizer=ByteTokenizer()).requests[0].prompt_token_ids).decode(errors="ignore")
    assert sum("\u4e00" <= character <= "\u9fff" for character in text) > len(text) / 2


# -- workload files ------------------------------------------------------------------------------------------------

TOML = """
requests = 30
prompt_tokens = { kind = "lognormal", median = 60, sigma = 0.5 }
output_tokens = { kind = "zipf", exponent = 1.2, low = 2, high = 40 }
max_tokens = 40
text = "summarise"
arrivals = { kind = "gamma", rate = 4.0, cv = 2.0 }
prefixes = { groups = 2, tokens = 30, popularity = 1.0 }
sessions = { turns = { kind = "uniform", low = 1, high = 3 }, think_s = { kind = "exponential", mean = 1.0 } }
"""
YAML = """
requests: 30
prompt_tokens: {kind: empirical, file: lengths.txt}
output_tokens: 12
closed: {clients: 4, think_s: 0.5}
"""


def test_a_workload_file_says_it_all(tmp_path: Path) -> None:
    path = tmp_path / "traffic.toml"
    path.write_text(TOML)
    workload = build(str(path), seed=3, tokenizer=ByteTokenizer())
    assert (workload.name, workload.arrivals, workload.rate_rps) == ("traffic", "gamma", 4.0)
    assert len(workload.requests) == 30
    assert {request.max_tokens for request in workload.requests} == {40}
    assert workload == build(str(path), seed=3, tokenizer=ByteTokenizer())
    described = workload.describe()
    assert described["prefix_groups"] == 2
    assert described["file"] == {"file": "traffic.toml", "sha256": hashlib.sha256(TOML.encode()).hexdigest()}


def test_a_yaml_file_with_a_closed_loop_and_a_list_of_lengths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("11\n22\n")
    path = tmp_path / "traffic.yaml"
    path.write_text(YAML)
    workload = build(str(path), seed=0, tokenizer=ByteTokenizer())
    assert workload.concurrency == 4
    assert {request.prompt_tokens for request in workload.requests} == {11, 22}
    assert {(request.output_tokens, request.max_tokens) for request in workload.requests} == {(12, 12)}
    assert {request.think_ns for request in workload.requests} == {500_000_000}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("requests = 30", "requests = 0"), "workload.requests"),
        (("requests = 30", "request = 30"), "workload.request"),
        (("median = 60", "median = 0.5"), "workload.prompt_tokens.median"),
        (("sigma = 0.5", "spread = 0.5"), "workload.prompt_tokens.spread"),
        ((", sigma = 0.5", ""), "workload.prompt_tokens.sigma"),
        (('"lognormal"', '"normal"'), "workload.prompt_tokens.kind"),
        (("low = 2, high = 40", "low = 9, high = 3"), "workload.output_tokens.high"),
        (("max_tokens = 40", "max_tokens = -1"), "workload.max_tokens"),
        (('"summarise"', '"poems"'), "workload.text"),
        (("rate = 4.0", "rate = 0"), "workload.arrivals.rate"),
        (("cv = 2.0", 'cv = "high"'), "workload.arrivals.cv"),
        (("groups = 2", "groups = true"), "workload.prefixes.groups"),
        (("mean = 1.0", "mean = -1"), "workload.sessions.think_s.mean"),
        (("think_s", "pause"), "workload.sessions.pause"),
        (("arrivals =", "closed = { clients = 2 }\narrivals ="), "workload.closed"),
    ],
)
def test_what_is_wrong_in_a_workload_file_is_named(tmp_path: Path, change: tuple[str, str], field: str) -> None:
    path = tmp_path / "traffic.toml"
    assert change[0] in TOML
    path.write_text(TOML.replace(*change))
    with pytest.raises(InputError) as error:
        build(str(path), seed=0, tokenizer=ByteTokenizer())
    assert error.value.field == field
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "content"), [("a.toml", "requests = ="), ("a.yaml", "a: [1"), ("b.yaml", "- 1")])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as error:
        build(str(tmp_path / name), seed=0, tokenizer=ByteTokenizer())
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_missing_not_wrong(tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match="there is no file"):
        build(str(tmp_path / "traffic.toml"), seed=0, tokenizer=ByteTokenizer())
