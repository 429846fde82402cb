"""Trace replay: every published format, its identity, and an account of whatever was changed or left out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Workload, build
from experiments.workloads.draw import TOO_LONG
from experiments.workloads.trace_formats import FORMATS
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import NS, ByteTokenizer

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_NEW = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
OURS = "arrival_s,prompt_tokens,output_tokens\n"


class NoTemplate(ByteTokenizer):
    """A model without a chat template."""

    def apply_chat_template(self, messages: Any) -> list[int]:
        raise CannotRunError("no template")


def written(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode())
    return path


def replayed(path: Path | str, tokenizer: Any = None, seed: int = 0, **options: Any) -> Workload:
    return build(str(path), seed=seed, tokenizer=tokenizer or ByteTokenizer(), **options)


def shapes(workload: Workload) -> list[tuple[float, int, int]]:
    return [(r.arrival_ns / NS, len(r.prompt_token_ids), r.output_tokens) for r in workload.requests]


# -- the files that are there ------------------------------------------------------------------------------------


def real(shared_dir: Path, name: str) -> Path:
    path = shared_dir / "data" / "traces" / name
    if not path.is_file():
        pytest.skip(f"the trace {name} is not present")
    return path


def test_azures_conversations_keep_their_times_to_the_tick_and_their_lengths(shared_dir: Path) -> None:
    path = real(shared_dir, "AzureLLMInferenceTrace_conv.csv")
    workload = replayed(path, num_requests=5)
    assert shapes(workload)[:2] == [(0.0, 374, 44), (4.314579, 396, 109)]
    assert workload.requests[1].arrival_ns == 4_314_579_000
    assert {request.max_tokens == request.output_tokens for request in workload.requests} == {True}
    trace = workload.describe()["trace"]
    assert (trace["format"], trace["file"], trace["rows_used"]) == ("azure", path.name, 5)
    assert trace["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_whole_of_azures_file_replays_short(shared_dir: Path) -> None:
    workload = replayed(real(shared_dir, "AzureLLMInferenceTrace_conv.csv"), length_scale=0.001, time_scale=0.1)
    described = workload.describe()
    assert described["num_requests"] == described["trace"]["rows_read"] == 10_000  # the most of one run
    assert described["rate_rps"] is None and described["realised_rps"] > 10


def test_mooncakes_prefixes_stay_shared_block_by_block(shared_dir: Path) -> None:
    path = real(shared_dir, "mooncake_conversation_trace.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()[:40]]
    workload = replayed(path, num_requests=40)
    assert [len(r.prompt_token_ids) for r in workload.requests] == [row["input_length"] for row in rows]
    assert [r.output_tokens for r in workload.requests] == [row["output_length"] for row in rows]
    assert [r.arrival_ns for r in workload.requests] == [row["timestamp"] * 1_000_000 for row in rows]
    blocks: dict[int, tuple[int, ...]] = {}
    for row, request in zip(rows, workload.requests, strict=True):
        for place, hash_id in enumerate(row["hash_ids"][:-1]):
            block = request.prompt_token_ids[512 * place : 512 * (place + 1)]
            assert blocks.setdefault(hash_id, block) == block
    assert len(set(blocks.values())) == len(blocks)
    seen, repeated = set(), 0
    for row in rows:
        known = [hash_id in seen for hash_id in row["hash_ids"]]
        leading = [*known, False].index(False)
        repeated += min(512 * leading, row["input_length"])
        seen.update(row["hash_ids"])
    share = workload.describe()["trace"]["repeated_prompt_share"]
    assert share == pytest.approx(repeated / sum(row["input_length"] for row in rows)) and share > 0


def test_scaled_mooncake_prompts_share_the_same_part_of_themselves(shared_dir: Path) -> None:
    path = real(shared_dir, "mooncake_conversation_trace.jsonl")
    full, small = (replayed(path, num_requests=30, length_scale=scale) for scale in (1.0, 1 / 32))
    for big, little in zip(full.requests, small.requests, strict=True):
        assert len(little.prompt_token_ids) == max(1, round(len(big.prompt_token_ids) / 32))
    shares = [workload.describe()["trace"]["repeated_prompt_share"] for workload in (full, small)]
    assert shares[1] == pytest.approx(shares[0], rel=0.02)


@pytest.mark.parametrize(("name", "questions", "turns"), [
    ("mt_bench_questions.jsonl", 80, 160), ("spec_bench_question.jsonl", 480, 560)
])  # fmt: skip
def test_questions_are_asked_in_their_words_turn_by_turn(
    shared_dir: Path, name: str, questions: int, turns: int
) -> None:
    path = real(shared_dir, name)
    workload = replayed(path)
    described = workload.describe()
    assert (described["num_requests"], described["sessions"]["count"]) == (turns, questions)
    assert (workload.concurrency, workload.ignore_eos) == (1, False)
    asked = json.loads(path.read_text("utf-8").splitlines()[0])["turns"]
    first, second = (bytes(request.prompt_token_ids).decode() for request in workload.requests[:2])
    assert first == asked[0] and asked[1] in second
    assert workload.requests[1].parent == 0
    assert any("no answers" in note for note in described["notes"])


def test_sharegpts_lengths_become_conversations_and_say_that_they_are_estimates(shared_dir: Path) -> None:
    workload = replayed(real(shared_dir, "sharegpt_v3_pair_lengths.csv"), num_requests=9)
    assert [r.session for r in workload.requests] == [0] * 6 + [1] + [2, 3]
    assert [len(r.prompt_token_ids) for r in workload.requests[:3]] == [48, 47, 22]  # 190, 188, 87 characters
    assert [r.output_tokens for r in workload.requests[:2]] == [325, 415]
    assert any("4 characters" in note for note in workload.describe()["notes"])


# -- files written to the published schemas ----------------------------------------------------------------------


def test_azures_second_trace_has_zones_and_fewer_digits(tmp_path: Path) -> None:
    rows = (
        "2024-05-10 00:00:00.009930+00:00,2162,5\r\n2024-05-10 00:00:01+00:00,33,7\r\n2024-05-10 02:00:01.5+02:00,9,2"
    )
    workload = replayed(written(tmp_path, "azure_2024.csv", AZURE + rows))
    assert shapes(workload) == [(0.0, 2162, 5), (0.99007, 33, 7), (1.49007, 9, 2)]


@pytest.mark.parametrize("header", [BURST, BURST_NEW])
def test_burstgpts_failures_are_dropped_and_counted(tmp_path: Path, header: str) -> None:
    session = "abc,43," if header is BURST_NEW else ""
    rows = [f"{t},{session}ChatGPT,{p},{o},{p + o},Conversation log" for t, p, o in
            [(5, 472, 18), (45.5, 1087, 0), (118, 417, 276), (119, 0, 3)]]  # fmt: skip
    workload = replayed(written(tmp_path, "BurstGPT.csv", header + "\n".join(rows)))
    assert shapes(workload) == [(0.0, 472, 18), (113.0, 417, 276)]
    described = workload.describe()
    assert described["dropped"] == {"no answer (0 tokens)": 1, "no prompt (0 tokens)": 1}
    assert (described["trace"]["format"], described["trace"]["rows_read"]) == ("burstgpt", 4)


def sharegpt_file(tmp_path: Path) -> Path:
    def said(who: str, text: str) -> dict[str, str]:
        return {"from": who, "value": text}

    talks = [
        {"id": "a", "conversations": [said("gpt", "Hello."), said("human", "What is a fjord?"),
                                      said("gpt", "A drowned valley."), said("human", "Where?"),
                                      said("gpt", "Norway.")]},
        {"id": "b", "conversations": []},
        {"id": "c", "conversations": [said("human", "One?"), said("human", "Two?"), said("gpt", "Three.")]},
        {"id": "a", "conversations": [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "你好！"}]},
    ]  # fmt: skip
    return written(tmp_path, "sharegpt.json", json.dumps(talks, ensure_ascii=False))


def test_sharegpt_conversations_are_sessions_with_the_answers_lengths(tmp_path: Path) -> None:
    workload = replayed(sharegpt_file(tmp_path), concurrency=4)
    texts = [bytes(request.prompt_token_ids).decode() for request in workload.requests]
    assert texts == ["What is a fjord?", "Where?", "你好"]
    assert [r.output_tokens for r in workload.requests] == [17, 7, 9]
    assert [(r.session, r.parent) for r in workload.requests] == [(0, None), (0, 0), (1, None)]
    assert workload.requests[1].history_tokens == 16 + 17
    assert workload.describe()["dropped"] == {"messages without an answer, or out of turn": 1}
    assert workload.concurrency == 4


def test_texts_go_without_a_template_where_the_model_has_none(tmp_path: Path) -> None:
    workload = replayed(sharegpt_file(tmp_path), NoTemplate())
    assert bytes(workload.requests[0].prompt_token_ids).decode() == "What is a fjord?\n\n"


def test_a_rate_makes_conversations_without_times_a_poisson_process(tmp_path: Path) -> None:
    talks = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}] * 2}] * 400
    path = written(tmp_path, "talks.json", json.dumps(talks))
    workload = replayed(path, rate_rps=5.0)
    assert (workload.arrivals, workload.concurrency) == ("poisson", None)
    assert workload.describe()["realised_rps"] == pytest.approx(5.0, rel=0.15)
    starts = [r.arrival_ns for r in workload.requests if r.parent is None]
    assert starts == sorted(starts) and len(set(starts)) == 400


def test_our_own_csv(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", OURS + "0.5,10,3\n2.5,20,4\n1.5,30,5\n")
    assert shapes(replayed(path)) == [(0.0, 10, 3), (1.0, 30, 5), (2.0, 20, 4)]
    assert replayed(path) == replayed(f"trace:csv:{path}")


def test_turns_of_lengths_that_outgrow_the_limit_are_dropped_with_those_behind_them(tmp_path: Path) -> None:
    rows = "".join(f"0,{turn},40,80,9,9\n" for turn in range(4)) + "1,0,40,80,9,9\n"
    path = written(tmp_path, "pairs.csv", "conv,turn,human_chars,gpt_chars,human_words,gpt_words\n" + rows)
    workload = replayed(path, max_prompt_tokens=45)  # 10, then 30 more a turn
    assert [r.prompt_tokens for r in workload.requests] == [10, 40, 10]
    assert workload.describe()["dropped"] == {TOO_LONG: 2}


# -- scaling -----------------------------------------------------------------------------------------------------


def test_scales_limits_and_rates_are_applied_and_reported(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", OURS + "0,10,3\n1,20,4\n4,30,5\n")
    scaled = replayed(path, time_scale=2.0, length_scale=2.0, max_prompt_tokens=50, max_tokens_cap=7)
    assert shapes(scaled) == [(0.0, 20, 6), (2.0, 40, 7), (8.0, 50, 7)]
    described = scaled.describe()
    assert described["clipped"] == {"prompt_tokens": 1, "output_tokens": 2}
    assert described["realised_rps"] == pytest.approx(0.25)
    faster = replayed(path, rate_rps=10.0)
    assert [r.arrival_ns for r in faster.requests] == [0, 50_000_000, 200_000_000]
    assert faster.describe()["realised_rps"] == pytest.approx(10.0)
    closed = replayed(path, concurrency=2)
    assert (closed.concurrency, closed.arrivals) == (2, "closed")


ROWS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=30)


@settings(max_examples=40)
@given(rows=ROWS, most=st.integers(1, 40), limit=st.integers(1, 30), scale=st.sampled_from([0.5, 1.0, 2.0]))
def test_every_row_is_used_or_dropped_and_every_length_kept_or_clipped(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]], most: int, limit: int, scale: float
) -> None:
    path = tmp_path_factory.mktemp("trace") / "rows.csv"
    path.write_text(OURS + "".join(f"{t / 1000},{p},{o}\n" for t, p, o in rows))
    whole = [row for row in rows if row[1] and row[2]]
    options = {"num_requests": limit, "max_prompt_tokens": most, "length_scale": scale}
    if not whole:
        with pytest.raises(InputError):
            replayed(path, **options)
        return
    workload = replayed(path, **options)
    assert workload == replayed(path, **options)
    described = workload.describe()
    used = whole[:limit]
    assert described["num_requests"] == described["trace"]["rows_used"] == len(used)
    assert described["trace"]["rows_read"] == len(used) + sum(described["dropped"].values())
    wanted = sorted(max(1, round(p * scale)) for _, p, _ in used)
    assert described["clipped"]["prompt_tokens"] == sum(length > most for length in wanted)
    assert sorted(r.prompt_tokens for r in workload.requests) == sorted(min(most, length) for length in wanted)
    arrivals = [r.arrival_ns for r in workload.requests]
    assert arrivals == sorted(arrivals) and arrivals[0] == 0


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("a.csv", AZURE + "yesterday,1,2\r\n", "line 2 TIMESTAMP"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.,1,2\r\n", "line 2 TIMESTAMP"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.1,1.5,2\r\n", "line 2 ContextTokens"),
        ("a.csv", AZURE + "2023-11-16 18:15:46.1,12\r\n", "line 2 GeneratedTokens"),
        ("b.csv", BURST + "5,ChatGPT,-3,4,1,x\n", "line 2 Request tokens"),
        ("c.csv", OURS + "0,1,1\nnan,1,1\n", "line 3 arrival_s"),
        ("c.csv", OURS + "0,99999999,1\n", "line 2 prompt_tokens"),
        ("c.csv", OURS, "workload"),
        ("d.csv", "when,how\n1,2\n", "workload"),
        ("e.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [-1]}', "line 1 hash_ids"),
        ("e.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n[]', "line 2"),
        ("f.jsonl", '{"turns": []}', "line 1 turns"),
        ("g.jsonl", "not json", "workload"),
        ("h.json", '{"conversations": []}', "workload"),
        ("h.json", "[1]", "workload"),
    ],
)
def test_what_is_wrong_in_a_trace_is_named_with_its_line(tmp_path: Path, name: str, content: str, field: str) -> None:
    with pytest.raises(InputError) as error:
        replayed(written(tmp_path, name, content))
    assert error.value.field == field
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl", "a.json"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x01\n")
        with pytest.raises(InputError) as error:
            replayed(tmp_path / name)
        assert "\n" not in str(error.value)


def test_names_that_are_no_trace_are_refused_and_missing_files_are_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="FORMAT"):
        replayed(f"trace:nothing:{tmp_path}/a.csv")
    with pytest.raises(InputError, match="mixed"):
        replayed("nothing")
    with pytest.raises(CannotRunError, match="there is no file"):
        replayed(f"trace:azure:{tmp_path}/a.csv")
    path = written(tmp_path, "burst.csv", OURS + "3,1,1\n3,1,1\n")
    with pytest.raises(InputError) as error:
        replayed(path, rate_rps=2.0)
    assert error.value.field == "rate_rps"


def test_every_format_says_what_its_rows_are() -> None:
    assert set(FORMATS) == {"azure", "burstgpt", "mooncake", "sharegpt", "sharegpt-lengths", "questions", "csv"}
    assert {form.what for form in FORMATS.values()} == {"requests", "turns"}
