"""The adapter for lm-evaluation-harness: its three kinds of requests, and a whole task of a local file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.core_engine.conftest import make_llama

pytest.importorskip("lm_eval", reason="lm_eval is not installed (pip install 'trilemma[eval]')")

from experiments.quality.lm_harness import TrilemmaLM

TASK = """
task: tiny_choice
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{prompt}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("tiny")
    return directory, make_llama(directory)


@pytest.fixture(scope="module")
def adapter(model: tuple[Path, Any]) -> TrilemmaLM:
    return TrilemmaLM(model=str(model[0]), dtype="fp32", kernels="torch", kv_memory_mib=4, batch_size=1, device="cpu")


def asked(*args: Any) -> Any:
    return SimpleNamespace(args=args)


@torch.no_grad()
def reference(hf: Any, ids: list[int], start: int) -> tuple[float, bool]:
    rows = torch.log_softmax(hf(torch.tensor([ids])).logits[0, :-1].double(), dim=-1)
    places = range(start, len(ids))
    return (
        sum(float(rows[place - 1, ids[place]]) for place in places),
        all(int(rows[place - 1].argmax()) == ids[place] for place in places),
    )


def test_loglikelihood_is_that_of_transformers(adapter: TrilemmaLM, model: tuple[Path, Any]) -> None:
    encode = adapter.engine.tokenizer.encode
    greedy = adapter.generate_until([asked("hello wor", {"max_gen_toks": 1, "until": []})])[0]
    pairs = [
        ("hello ", "world"),
        ("hello wor", greedy),
        ("", "abc"),
        *[("a shared context of some length,", f" {i}") for i in range(40)],
    ]
    found = adapter.loglikelihood([asked(*pair) for pair in pairs])
    for (context, continuation), (logprob, is_greedy) in zip(pairs, found, strict=True):
        before = encode(context.rstrip()) or [0]
        ids = before + encode(context + continuation)[len(encode(context.rstrip())) :]
        expected, greedy_too = reference(model[1], ids, len(before))
        assert logprob == pytest.approx(expected, abs=1e-4) and is_greedy == greedy_too
    assert not adapter.engine.has_unfinished()


def test_a_rolling_text_counts_every_token_once(adapter: TrilemmaLM, model: tuple[Path, Any]) -> None:
    text = "abc " * 20
    (found,) = adapter.loglikelihood_rolling([asked(text)])
    expected, _ = reference(model[1], [0, *adapter.engine.tokenizer.encode(text)], 1)
    assert found == pytest.approx(expected, abs=1e-3)
    (longer,) = adapter.loglikelihood_rolling([asked("abc " * 200)])  # more than the model's 512 positions
    assert longer < found


def test_an_answer_ends_before_its_stop_text(adapter: TrilemmaLM) -> None:
    (plain,) = adapter.generate_until([asked("hello", {"max_gen_toks": 12, "until": []})])
    stop = plain[4:6]
    (stopped,) = adapter.generate_until([asked("hello", {"max_gen_toks": 12, "until": [stop]})])
    assert stopped == plain[: plain.index(stop)]


def test_a_task_of_a_local_file_runs_on_the_engine(adapter: TrilemmaLM, tmp_path: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    rows = [{"prompt": f"number {i}:", "choices": [" one", " two"], "answer": i % 2} for i in range(6)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "task.yaml").write_text(TASK.format(data=tmp_path / "data.jsonl"), "utf-8")
    found = lm_eval.simple_evaluate(
        model=adapter, tasks=["tiny_choice"], task_manager=TaskManager(include_path=str(tmp_path)), bootstrap_iters=0
    )
    right = 0
    for row in rows:
        scores = [adapter.loglikelihood([asked(row["prompt"], choice)])[0][0] for choice in row["choices"]]
        right += scores.index(max(scores)) == row["answer"]
    assert found is not None and found["results"]["tiny_choice"]["acc,none"] == pytest.approx(right / len(rows))
