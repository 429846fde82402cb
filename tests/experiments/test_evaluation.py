"""Evaluations of a tiny model: against transformers, whatever the batch and the cache, resumed, cancelled, in a job."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.distributions import distributions
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.variables import VARIABLES
from experiments import jobs
from experiments.loadgen import Cancelled
from experiments.quality.arms import SPEED_CHARACTERS, Progress, batches, in_small_blocks, sizes
from experiments.quality.choices import encode_item, score_items
from experiments.quality.evaluation import evaluate, run_evaluation
from experiments.quality.items import Item
from experiments.quality.kept import engine_key
from experiments.quality.spec import EvalSpec
from experiments.quality.texts import Text, cut, divergence, perplexity, score_window
from experiments.spec import CompareSpec
from experiments.store import Store
from ledger.errors import InputError
from tests.core_engine.conftest import load_fp32, make_llama

PROMPT = "the quick brown fox jumps over the lazy dog and "
ITEMS = [
    Item(f"i{i}", ("one", "two")[i % 2], PROMPT + "again " * i, (" a", " b", " long one", " it")[: 2 + i % 3], i % 2)
    for i in range(12)
]
TEXTS = [Text("prose", "It was a bright cold day in April, and the clocks were striking thirteen. " * 3)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Directory and transformers model of a tiny random Llama with a byte tokenizer."""
    directory = tmp_path_factory.mktemp("tiny")
    return directory, make_llama(directory)


@pytest.fixture(scope="module")
def loaded(model: tuple[Path, Any]) -> LoadedModel:
    return load_fp32(model[0])


def settings(model: Path, **changes: Any) -> dict[str, Any]:
    return {"model": str(model), "dtype": "fp32", "kernels": "torch", "threads": 1, "kv_memory_mib": 4, **changes}


def engine(loaded: LoadedModel, directory: Path, **changes: Any) -> Engine:
    return Engine(EngineConfig.from_settings(settings(directory, **changes)), loaded)


@torch.no_grad()
def reference(hf: Any, ids: Any) -> torch.Tensor:
    """Log-probabilities [len(ids) - 1, vocab_size] of the tokens after the first."""
    return torch.log_softmax(hf(torch.tensor([list(ids)])).logits[0, :-1].double(), dim=-1)


def test_choices_are_scored_as_transformers_would(model: tuple[Path, Any], loaded: LoadedModel) -> None:
    scores = score_items(engine(loaded, model[0]), ITEMS)
    for item, score in zip(ITEMS, scores, strict=True):
        encoded = encode_item(item, loaded.tokenizer)
        assert len(score.logprobs) == len(item.choices) and score.answer == item.answer
        for ids, found in zip(encoded.ids, score.logprobs, strict=True):
            rows = reference(model[1], ids)
            expected = sum(float(rows[place - 1, ids[place]]) for place in range(encoded.start, len(ids)))
            assert found == pytest.approx(expected, abs=1e-4)


KV_FORMATS = VARIABLES["kv_dtype"].choices if "kv_dtype" in VARIABLES else ()
ARRANGEMENTS = [{}, *({"kv_dtype": name} for name in KV_FORMATS if name in ("int8", "int4", "int2"))]


@pytest.mark.parametrize("format_of_kv", ARRANGEMENTS, ids=str)
def test_scores_do_not_depend_on_batch_chunk_or_cached_prompts(
    model: tuple[Path, Any], loaded: LoadedModel, format_of_kv: dict[str, Any]
) -> None:
    alone = engine(loaded, model[0], prefix_cache="off", max_num_seqs=1, **format_of_kv)
    together = engine(loaded, model[0], max_num_seqs=8, max_num_batched_tokens=40, **format_of_kv)
    expected, found = score_items(alone, ITEMS), score_items(together, ITEMS)
    for one, other in zip(expected, found, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4, rel=1e-4)


def test_choices_of_an_item_share_their_prompt(model: tuple[Path, Any], loaded: LoadedModel) -> None:
    made = engine(loaded, model[0])
    score_items(made, ITEMS[:1])
    computed = sum(step["prefill_tokens"] + step["decode_tokens"] for step in made.trace.steps)
    ids = encode_item(ITEMS[0], made.tokenizer).ids
    assert computed < len(ids[0]) + 2 * 16  # the second choice finds all but the last block of the prompt


def test_items_of_one_passage_compute_it_once(model: tuple[Path, Any], loaded: LoadedModel) -> None:
    items = [
        Item(f"{name}{i}", "s", name + PROMPT * 3 + f"and {i} is", (" one", " twenty"), 0)
        for name in "xyz"
        for i in range(4)
    ]
    made = engine(loaded, model[0], max_num_batched_tokens=512)
    found = score_items(made, items)
    computed = sum(step["prefill_tokens"] + step["decode_tokens"] for step in made.trace.steps)
    passage, question = len(PROMPT) * 3, len("and 0 is twenty")
    assert computed < 3 * passage + 2 * len(items) * (question + 16)
    alone = [score_items(engine(loaded, model[0], prefix_cache="off"), [item])[0] for item in items]
    for one, other in zip(found, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_scoring_takes_small_blocks_but_for_quantized_kv() -> None:
    def size(**given: Any) -> int:
        return in_small_blocks(EngineConfig.from_settings(given)).block_size

    assert size() == 4 and size(block_size=2) == 2 and size(kv_dtype="bf16", block_size=32) == 4
    assert size(kv_dtype="int4") == 16 and size(kv_dtype="int8", block_size=32) == 32


def test_a_choice_of_one_token_needs_no_request_of_its_own(loaded: LoadedModel, model: tuple[Path, Any]) -> None:
    item = Item("x", "s", PROMPT, ("a", "b", "c", "d"), 0)
    made = engine(loaded, model[0])
    (score,) = score_items(made, [item])
    assert made.trace.num_steps == 1
    rows = reference(model[1], loaded.tokenizer.encode(PROMPT + "a"))
    expected = [float(rows[-1, loaded.tokenizer.encode(one)[0]]) for one in "abcd"]
    assert score.logprobs == pytest.approx(expected, abs=1e-4)


def test_a_prompt_whose_end_a_choice_changes_is_scored_with_it() -> None:
    class Joins:
        def encode(self, text: str) -> list[int]:
            return [200 if one == "\0" else ord(one) for one in text.replace("ab", "\0")]

    encoded = encode_item(Item("x", "s", "xa", ("b", "c"), 0), Joins())
    assert encoded.start == 1 and encoded.ids == ((120, 200), (120, 97, 99))


def test_a_window_gives_perplexity_kl_and_agreement(
    model: tuple[Path, Any], loaded: LoadedModel, tmp_path: Path
) -> None:
    other = make_llama(tmp_path, seed=5)
    ids = loaded.tokenizer.encode(TEXTS[0].content)[:90]
    first = engine(loaded, model[0], max_num_batched_tokens=32)
    second = Engine(EngineConfig.from_settings(settings(tmp_path, max_num_batched_tokens=20)), load_fp32(tmp_path))
    found = score_window(first, second, ids)
    p, q = reference(model[1], ids), reference(other, ids)
    assert found.kl == pytest.approx((p.exp() * (p - q)).sum(1).tolist(), abs=1e-4)
    assert found.same_top == tuple((p.argmax(1) == q.argmax(1)).tolist())
    targets = torch.tensor(ids[1:])[:, None]
    assert found.baseline == pytest.approx(p.gather(1, targets)[:, 0].tolist(), abs=1e-4)
    assert found.candidate == pytest.approx(q.gather(1, targets)[:, 0].tolist(), abs=1e-4)
    alone = score_window(first, None, ids)
    assert alone.baseline == pytest.approx(found.baseline, abs=1e-9) and alone.kl == ()


def test_kl_of_known_distributions() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]], dtype=torch.float64).log()
    q = torch.tensor([[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]], dtype=torch.float64).log()
    assert divergence(p, q).tolist() == pytest.approx([math.log(2), 0.0])
    assert perplexity([math.log(0.5), math.log(0.125)]) == pytest.approx(4)
    assert [len(window) for window in cut(range(11), 5)] == [5, 5] and [len(w) for w in cut(range(12), 5)] == [5, 5, 2]


def test_distributions_leave_nothing_behind_when_closed(model: tuple[Path, Any], loaded: LoadedModel) -> None:
    made = engine(loaded, model[0], max_num_batched_tokens=16)
    stream = distributions(made, loaded.tokenizer.encode(PROMPT), 1)
    place, rows = next(stream)
    assert place == 1 and rows.shape == (16, 256) and rows.exp().sum(1).tolist() == pytest.approx([1.0] * 16)
    stream.close()
    assert not made.has_unfinished() and made.pool.num_used == 0


class Stop:
    """Cancels at the n-th look."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_cancelled_evaluation_goes_on_without_computing_anything_twice(
    model: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.quality.arms.BATCH_ITEMS", 4)
    scored: list[str] = []
    original = score_items

    def counting(engine: Any, items: Any, check: Any) -> Any:
        found = original(engine, items, check)
        scored.extend(item.id for item in items)
        return found

    monkeypatch.setattr("experiments.quality.arms.score_items", counting)
    store, arms = Store(tmp_path / "runs.sqlite3"), ([settings(model[0], block_size=8)], settings(model[0]))
    with pytest.raises(Cancelled):
        evaluate(*arms, ITEMS, TEXTS, Progress(should_cancel=Stop(5)), kept=store)
    before = list(scored)
    assert 4 <= len(before) < 24
    found = evaluate(*arms, ITEMS, TEXTS, kept=store)
    assert len(scored) == 2 * len(ITEMS) and {one: scored.count(one) for one in scored} == {i.id: 2 for i in ITEMS}
    assert evaluate(*arms, ITEMS, TEXTS, kept=store) == found and len(scored) == 2 * len(ITEMS)


def test_progress_has_an_eta_that_counts_timed_steps(model: tuple[Path, Any]) -> None:
    told: list[dict[str, Any]] = []
    report = Progress(told.append)
    evaluate([settings(model[0], block_size=8)], settings(model[0]), ITEMS, TEXTS, report, speed=True)
    work = 2 * sum(sizes(ITEMS)) + len(TEXTS[0].content)
    assert report.total == work + SPEED_CHARACTERS and told[-1]["done"] == pytest.approx(report.total, abs=2)
    timed = [state for state in told if state["phase"] == "speed" and state["done"] < report.total]
    assert len(timed) > 5 and all(state["eta_s"] is not None for state in timed) and timed[0]["eta_s"] > 0
    assert [state["done"] for state in told] == sorted(state["done"] for state in told)


def test_equal_settings_agree_in_everything(model: tuple[Path, Any]) -> None:
    found = evaluate([settings(model[0])], settings(model[0]), ITEMS, TEXTS)
    (label,) = found.scores
    assert found.scores[label] == found.baseline_scores
    (row,) = found.text_rows[label]
    assert row["change_pct"] == 0 and row["kl_mean"] == 0 and row["top1_agreement"] == 1
    assert row["tokens"] == len(TEXTS[0].content) - 1 and row["window_tokens"] == 2048
    assert found.overlooked is not None and found.overlooked.verdict == "none"
    json.dumps(found.to_json(), allow_nan=False)


def test_a_key_changes_with_settings_and_with_the_model_s_files(model: tuple[Path, Any], tmp_path: Path) -> None:
    make_llama(tmp_path)
    config = EngineConfig.from_settings(settings(tmp_path))
    key = engine_key(config)
    assert key == engine_key(config) != engine_key(EngineConfig.from_settings(settings(tmp_path, block_size=8)))
    make_llama(tmp_path, seed=3)
    assert engine_key(config) != key


def test_batches_are_bounded_in_items_and_characters() -> None:
    long = [Item(str(i), "s", f"{i}" + "p" * 5000, ("a", "b"), 0) for i in range(5)]
    assert [len(batch) for batch in batches(long)] == [2, 2, 1]
    of_one_passage = [Item(str(i), "s", "p" * 5000 + f"{i}", ("a", "b"), 0) for i in range(5)]
    assert [len(batch) for batch in batches(of_one_passage)] == [5] and sizes(of_one_passage) == [5003, *(3,) * 4]
    assert [len(batch) for batch in batches(ITEMS * 3)][:1] == [32] and list(batches([])) == []


def write_items(path: Path) -> Path:
    rows = [
        {"id": i.id, "slice": i.slice, "prompt": i.prompt, "choices": list(i.choices), "answer": i.answer}
        for i in ITEMS
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return path


def spec_of(model: Path, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    text = tmp_path / "text.txt"
    text.write_text(TEXTS[0].content, "utf-8")
    return {
        "settings": settings(model),
        "vary": ["block_size", [8, 16]],
        "items": [str(write_items(tmp_path / "items.jsonl"))],
        "texts": [str(text)],
        **changes,
    }


def test_a_job_runs_to_its_end_is_kept_and_its_json_has_the_stable_keys(
    model: tuple[Path, Any], tmp_path: Path
) -> None:
    store = Store(tmp_path / "home" / "runs.sqlite3")
    run_id = jobs.start("eval", spec_of(model[0], tmp_path), store)
    run = jobs.wait(run_id, store)
    assert (run.state, run.error) == ("done", None) and run.result is not None
    result = run.result
    assert set(result) == {
        "baseline", "candidates", "overlooked", "items_hash", "provenance", "window_tokens", "seed", "run_id",
        "warnings", "environment",
    }  # fmt: skip
    # 16 is the default, so the second value is the baseline itself, which is left out.
    (candidate,) = result["candidates"]
    assert candidate["label"] == "block_size=8" and candidate["changed"] == {"block_size": 8}
    assert [row["slice"] for row in candidate["slices"]] == ["one", "two", "all"]
    assert candidate["texts"][0]["text"] == "text.txt" and result["items_hash"] == run.spec["items_hash"]
    assert store.record_keys(run_id) == [(0, 1), (1, 1)]
    assert [row["id"] for row in store.record(run_id, 1, 1)["items"]] == [item.id for item in ITEMS]
    with pytest.raises(InputError, match="cancelled or failed"):
        jobs.resume(run_id, store)


def test_a_failed_run_is_resumed_as_itself_and_refuses_other_items(model: tuple[Path, Any], tmp_path: Path) -> None:
    store = Store(tmp_path / "home" / "runs.sqlite3")
    spec = jobs.checked_spec("eval", spec_of(model[0], tmp_path))
    run_id = store.create_run("eval", spec)
    with pytest.raises(Cancelled):
        run_evaluation(spec, store, run_id, should_cancel=Stop(5))
    store.update_run(run_id, state="failed", error="the engine process ended")
    jobs.resume(run_id, store)
    run = jobs.wait(run_id, store)
    assert (run.state, run.error, run.id) == ("done", None, run_id)
    store.update_run(run_id, state="cancelled")
    (tmp_path / "items.jsonl").write_text((tmp_path / "items.jsonl").read_text("utf-8").replace("fox", "cat"), "utf-8")
    with pytest.raises(InputError, match="the items that the run began with"):
        jobs.resume(run_id, store)


def test_the_baseline_is_the_candidate_without_what_can_change_its_answers() -> None:
    spec = EvalSpec.from_dict({"settings": {"dtype": "bf16", "threads": 1, "model": "somewhere"}})
    base = spec.baseline_config()
    assert (base.dtype, base.threads, base.model) == ("auto", 1, "somewhere")
    assert list(spec.candidates()) == ["dtype=bf16, threads=1, model=somewhere"]
    assert EvalSpec.from_dict({"settings": {"threads": 1}}).candidates() == {}
    assert EvalSpec.from_dict({"vary": ("dtype", ["auto"])}).candidates() != {}  # an A/A check that was asked for
    held = EvalSpec.from_dict({"settings": {"dtype": "bf16"}, "vary": ("block_size", [8, 16])})
    assert held.baseline_config().dtype == "bf16" and list(held.candidates()) == ["block_size=8"]
    varied = EvalSpec.from_dict({"vary": ("dtype", ["auto", "fp32", "bf16"]), "baseline": {"threads": 2}})
    assert list(varied.candidates()) == ["dtype=auto", "dtype=fp32", "dtype=bf16"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vary": ("dtype", ["fp64"])}, "dtype"),
        ({"vary": ("dtype", ["bf16"]), "settings": {"dtype": "fp32"}}, "--set"),
        ({"items": ["/nowhere.jsonl"]}, "--items"),
        ({"items": ["none"], "texts": ["none"]}, "--items"),
        ({"limit": 0}, "--limit"),
        ({"window_tokens": 4096}, "window_tokens"),
        ({"other": 1}, "spec"),
    ],
)
def test_a_wrong_spec_names_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        EvalSpec.from_dict(changes)
    assert error.value.field == field


def test_slices_and_limit_choose_items_evenly(tmp_path: Path) -> None:
    path = str(write_items(tmp_path / "items.jsonl"))
    found = EvalSpec.from_dict({"items": [path], "slices": ["two"], "limit": 3}).read_items()
    assert [item.id for item in found] == ["i1", "i5", "i9"]
    with pytest.raises(InputError, match="one, two"):
        EvalSpec.from_dict({"items": [path], "slices": ["three"]}).read_items()


@pytest.mark.parametrize("name", ["weight_group", "weight_symmetric"])
def test_varying_what_acts_on_4_bit_weights_alone_is_refused_without_them(name: str) -> None:
    values = list(VARIABLES[name].choices[:2])
    for refused in (EvalSpec.from_dict, CompareSpec.from_dict):
        asked = {"vary": (name, values)} if refused == EvalSpec.from_dict else {"variable": name, "values": values}
        with pytest.raises(InputError, match=r"weights=w4a16-rtn or .*; here weights=none") as error:
            refused(asked)
        assert error.value.value == name
        assert refused({**asked, "settings": {"weights": "w4a16-rtn"}})
    # As the value of both arms of another question it may stand: it is the baseline alone that it does not act on.
    assert CompareSpec.from_dict(
        {"variable": "weights", "values": ["none", "w4a16-rtn"], "settings": {name: values[1]}}
    ).configs()
