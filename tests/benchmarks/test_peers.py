"""What the comparison with other engines computes from its turns: figures, ratios, goals, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peer_engines import results, settings, venvs
from peer_engines.contestants import Contestant
from peer_engines.turns import CUT_NEW_TOKENS, Work, figures, prompts_of, turn, works

from ledger.errors import CannotRunError

DECODE = Work("decode 2", 2, 128, 3)


def turns_of(figure: str, work: str, **by_engine: list[float]) -> list[dict[str, Any]]:
    return [
        {"round": number, "engine": engine.replace("_", "-"), "work": work, figure: value}
        for engine, values in by_engine.items()
        for number, value in enumerate(values)
    ]


def test_figures_of_a_turn_are_over_sequences_and_over_gaps() -> None:
    found = figures([[1.0, 1.5, 2.5], [3.0, 3.2, 3.4]], DECODE)
    assert found["ttft_s"] == 2.0
    assert found["itl_s"] == pytest.approx(0.35)  # of 0.5, 1.0, 0.2, 0.2
    assert found["output_tokens_per_s"] == pytest.approx(2 * 3 / 3.4)


def test_a_prefill_has_no_gaps_and_counts_its_prompt() -> None:
    assert figures([[0.5]], Work("prefill 512", 1, 512, 1)) == {
        "ttft_s": 0.5,
        "ttft_p95_s": 0.5,
        "prefill_tokens_per_s": 1024,
    }


def test_a_cut_turn_works_out_the_throughput_of_the_whole_one() -> None:
    work = Work("decode 1", 1, 128, 101)
    assert figures([[10.0, 11.0, 12.0]], work, cut=True)["output_tokens_per_s"] == pytest.approx(101 / 110)


class Slow:
    """A contestant whose every token takes a second, the first one a second for each prompt token."""

    name = "slow"

    def answer(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        first = float(len(prompts[0]))
        return {"ids": [[1] * new_tokens] * len(prompts), "times_s": [[first + i for i in range(new_tokens)]] * 2}


def test_a_turn_that_would_take_too_long_is_cut_or_refused() -> None:
    work, prompts = Work("decode 2", 2, 128, 128), [[1] * 128] * 2
    assert not turn(Slow(), work, prompts, longest_s=1000)["cut"]  # type: ignore[arg-type]
    cut = turn(Slow(), work, prompts, longest_s=200)  # type: ignore[arg-type]
    assert cut["cut"] and len(cut["ids"][0]) == CUT_NEW_TOKENS
    with pytest.raises(CannotRunError, match="about 128 s"):
        turn(Slow(), work, prompts, longest_s=100)  # type: ignore[arg-type]


def test_a_ratio_pairs_the_same_round_and_takes_the_faster_peer_of_it() -> None:
    turns = turns_of("itl_s", "decode 1", ours=[1.0, 10.0, 1.0], vllm=[2.0, 20.0], llamacpp=[4.0, 5.0, 3.0])
    assert results.speed_up(turns, "ours", ["vllm"], "decode 1", "itl_s") == 2.0
    # 2/1, 5/10, 3/1 by round: times, so the least is the fastest
    assert results.speed_up(turns, "ours", ["vllm", "llamacpp"], "decode 1", "itl_s") == 2.0
    rates = turns_of("output_tokens_per_s", "decode 8", ours=[30.0], vllm=[10.0], llamacpp=[20.0])
    assert results.speed_up(rates, "ours", ["vllm", "llamacpp"], "decode 8", "output_tokens_per_s") == 1.5
    assert results.speed_up(rates, "ours", ["transformers"], "decode 8", "output_tokens_per_s") is None


def test_goals_say_pass_fail_and_not_measured() -> None:
    turns = [
        *turns_of("itl_s", "decode 1", ours=[0.010], vllm=[0.025], llamacpp=[0.009]),
        *turns_of("ttft_s", "prefill 512", ours=[1.0]),
        {"round": 0, "engine": "ceilings", "work": "ceilings", "read_bytes_per_s": 40e9}
        | {"bf16_flops_per_s": 10e9, "fp32_flops_per_s": 100e9},
    ]
    counts = {"decode_bytes": 0.2e9, "prefill_flops 512": 80e9, "prefill_flops 2048": 1.0}
    found = {goal.text: goal for goal in results.goals(turns, {"ours": 2.0, "vllm": 60.0}, counts)}
    verdict = {text: goal.verdict for text, goal in found.items()}
    assert verdict["Batch-1 decode (ITL) against llama.cpp BF16"] == "fail"
    assert verdict["Batch-1 decode (ITL) against vLLM"] == "pass"
    assert verdict["Batch-1 decode (ITL) against transformers"] == "not measured"
    share = found["Batch-1 decode: weights + KV read, share of the read bandwidth"]
    assert (share.found, share.verdict) == (pytest.approx(0.5), "fail")
    gemm = found["Prefill of 512: share of the faster GEMM rate, linear + attention"]
    assert (gemm.found, gemm.verdict) == (pytest.approx(0.8), "pass")  # of the faster of the two dtypes
    assert verdict["Start-up to ready, share of vLLM's"] == "pass"


def test_agreement_counts_equal_ids_and_those_before_the_first_other_one() -> None:
    ours = {"decode 1": [[1, 2, 3, 4, 5]], "decode 2": [[1], [1]]}
    found = results.agreement({"ours": ours, "vllm": {"decode 1": [[1, 2, 9, 4, 9]]}, "late": {}}, first=4)
    assert set(found) == {"vllm"}  # one answer of the work that it did; none of an engine that did nothing
    assert (found["vllm"]["equal"], found["vllm"]["equal_before_first_difference"]) == (0.75, 0.5)


def test_a_table_has_a_row_for_each_engine_that_was_measured() -> None:
    turns = [
        {"round": 0, "engine": engine, "work": "decode 2", "cut": engine == "vllm"}
        | figures([[1.0, 1.0 + gap, 1.0 + 2 * gap]] * 2, DECODE)
        for engine, gap in (("ours", 0.010), ("vllm", 0.025))
    ]
    lines = results.work_table(turns, ["ours", "vllm", "transformers"], "decode 2").splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| ours", "| vllm (cut)"]
    assert "| 25.0 | 25.0 |" in lines[3] and "2.50x" in lines[3]


class Bytes:
    """A token a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode()

    def apply_chat_template(self, messages: Any) -> list[int]:
        return self.encode(str(messages))


def test_every_engine_gets_the_same_prompts_and_every_round_others() -> None:
    work = Work("decode 2", 2, 32, 4)
    first, again, other = (prompts_of(work, Bytes(), number) for number in (0, 0, 1))
    assert first == again != other and [len(prompt) for prompt in first] == [32, 32] and first[0] != first[1]


def test_every_engine_and_every_change_can_be_made_into_a_process(tmp_path: Path) -> None:
    for name, kind in settings.KINDS.items():
        for change in (None, *kind.changes):
            options, environment = settings.base(name)
            if change is not None:
                options |= dict(change.options)
                environment |= dict(change.environment)
            if kind.form == "shipped":
                continue  # its file is in a wheel that need not be here
            made = settings.contestant(name, tmp_path, 2, options, environment, change.label if change else "")
            assert isinstance(made, Contestant) and json.dumps(made.options)
            assert not any("{" in value for value in made.environment.values())
            assert kind.peer is None or kind.peer in venvs.ENVIRONMENTS


def test_the_pieces_of_work_are_those_of_the_goals() -> None:
    names = [work.name for work in works(["decode", "prefill"], quick=False)]
    assert names == ["decode 1", "decode 8", "decode 32", "prefill 128", "prefill 512", "prefill 2048"]
    assert [work.name for work in works(["prefill"], quick=True)] == ["prefill 128"]


def test_an_environment_that_failed_says_why_until_it_is_made(tmp_path: Path) -> None:
    assert "--prepare" in str(venvs.why_missing(tmp_path, "vllm"))
    (tmp_path / "vllm.failed").write_text("not installed: no such wheel")
    assert venvs.why_missing(tmp_path, "vllm") == "not installed: no such wheel"
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "requirements-key").write_text("another")
    assert "another version" in str(venvs.why_missing(tmp_path, "vllm"))
    (tmp_path / "vllm" / "requirements-key").write_text(venvs.ENVIRONMENTS["vllm"].key())
    assert venvs.why_missing(tmp_path, "vllm") is None
