"""Evidence from documents, files and run records: what is not known stays unknown, what is wrong is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core_engine.variables import VARIABLES
from experiments.advisor.evidence import NUMBERS, Evidence, evidence_of
from experiments.advisor.from_run import document_of, evidence_from_run, repeated_share, with_extras
from experiments.advisor.numbers_file import evidence_from_file
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from tests.experiments.records import record, request, step

DOCS = Path(__file__).parents[2] / "docs" / "advisor.md"


def test_what_is_left_out_or_null_is_unknown_and_never_zero() -> None:
    evidence = evidence_of({"load": {"waiting": None, "running": 0}}, "typed in")
    assert evidence.waiting is None and evidence.running == 0
    assert dict(Evidence().known()) == {}
    assert evidence.queue_share is None and evidence.seats_taken is None and evidence.missed("ttft") is None


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"loads": {"waiting": 1}}, "loads"),
        ({"load": {"wating": 1}}, "load.wating"),
        ({"kv": {"used_share": 1.2}}, "kv.used_share"),
        ({"kv": {"used_share": "full"}}, "kv.used_share"),
        ({"counters": {"preemptions": -1}}, "counters.preemptions"),
        ({"load": {"growing": "yes"}}, "load.growing"),
        ({"requests_per_s": float("inf")}, "requests_per_s"),
        ({"requests_per_s": True}, "requests_per_s"),
        ({"requests_per_s": 10**400}, "requests_per_s"),
        ({"requests_per_s": float("nan")}, "requests_per_s"),
        ({"load": 3}, "load"),
        ({"engine": "vllm2"}, "engine"),
        ({"provenance": "guessed"}, "provenance"),
        ({"config": {"max_num_sequences": 8}}, "config"),
        ({"config": {"max_num_seqs": "many"}}, "config.max_num_seqs"),
        ({"config": {"max_num_seqs": float("inf")}}, "config.max_num_seqs"),
        ({"config": {"max_num_seqs": 10**400}}, "config.max_num_seqs"),
        ({"config": {"max_num_seqs": -1}}, "config.max_num_seqs"),
        ({"quality": {"slices": {"chat": 3}}}, "quality.slices.chat"),
        ({"slo": "ttft_p90=1"}, "slo"),
        ({"slo": 3}, "slo"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(document: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        evidence_of(document, "typed in")
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", VARIABLES)
def test_every_setting_that_a_run_can_have_is_evidence(name: str) -> None:
    entry = VARIABLES[name]
    for value in {entry.default, entry.minimum, entry.maximum} - {None}:
        if entry.kind not in ("int", "float") or not isinstance(value, str):
            assert evidence_of({"config": {name: value}}, "run", strict=False).setting(name) == value


def test_every_number_has_a_row_in_the_documentation() -> None:
    text = DOCS.read_text("utf-8")
    for meta in NUMBERS.values():
        group, _, key = str(meta["path"]).rpartition(".")
        assert f"`{meta['path']}`" in text or (f"`{group}`" in text and (f'"{key}"' in text or f"`{key}`" in text)), (
            meta
        )


def test_the_documented_example_is_a_queue() -> None:
    import tomllib

    from experiments.advisor.diagnose import diagnose

    example = DOCS.read_text("utf-8").split("```toml")[1].split("```")[0]
    found = diagnose(evidence_of(tomllib.loads(example), "typed in"))
    assert found.top is not None and found.top.cause == "queue-bound"


def test_objectives_are_judged_on_the_statistic_they_name() -> None:
    evidence = evidence_of({"slo": "ttft_p95=1,itl_p99=0.1", "ttft_s": {"p50": 5.0, "p95": 0.9}}, "typed in")
    assert evidence.missed("ttft") is False
    assert evidence.missed("itl") is None and evidence.missed("ttft", "itl") is None
    assert evidence_of({"ttft_s": {"p95": 2.0}}, "typed in", slo="ttft_p95=1").missed("ttft") is True


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_file_is_read_with_its_objectives_unless_others_are_given(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"numbers{suffix}"
    body = '{"slo": "ttft_p95=1", "ttft_s": {"p95": 2}}' if suffix == ".json" else 'slo = "ttft_p95=1"\nttft_s.p95 = 2'
    path.write_text(body)
    assert evidence_from_file(path).missed("ttft") is True
    assert evidence_from_file(path, "ttft_p95=3").missed("ttft") is False


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.yaml", "x: 1"), ("a.json", "{"), ("a.json", "[1]"), ("a.toml", "= 3"), ("a.json", "\xff"), ("a.json", None),
     ("a.json", '{"load": {"running": NaN}}'), ("a.json", "[" * 100_000)],
)  # fmt: skip
def test_a_file_that_is_no_object_of_numbers_is_one_line(tmp_path: Path, name: str, content: str | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        evidence_from_file(path)
    assert "\n" not in str(caught.value)


# -- run records ------------------------------------------------------------------------------------------------------


def steps_of(*kinds: str) -> list[dict[str, Any]]:
    """10 ms steps one after another, "p" with a prompt in it."""
    made = [step(i, 10 * i, 10 * i, 10 * i + 10, 10 * i + 10) for i in range(len(kinds))]
    return [{**one, "prefill_tokens": 32 * (kind == "p")} for one, kind in zip(made, kinds, strict=True)]


def test_gaps_beside_a_prompt_are_told_from_others() -> None:
    steps = steps_of(*("ddpp" * 12))
    ends = [(10 * i + 10, 1) for i in range(len(steps))]
    document = document_of(record(request(ends, steps=[[0, "decode", 1]]), steps=steps))
    assert document["steps"]["itl_with_prefill_s"] == pytest.approx(0.01)
    assert document["steps"]["itl_without_prefill_s"] == pytest.approx(0.01)
    few = document_of(record(request(ends[:4], steps=[[0, "decode", 1]]), steps=steps[:4]))
    assert "itl_with_prefill_s" not in few["steps"]


def test_waiting_is_weighted_with_what_steps_last() -> None:
    steps = [{**step(0, 0, 0, 30, 30), "waiting": 4}, {**step(1, 30, 30, 40, 40), "waiting": 0}]
    document = document_of(
        record(request([(30, 1), (40, 1)], steps=[[0, "prefill", 1], [1, "decode", 1]]), steps=steps)
    )
    assert document["load"]["waiting"] == pytest.approx(3.0)
    assert document["steps"]["busy_share"] == pytest.approx(1.0)


def test_repeated_prompt_tokens_are_counted_in_whole_pieces_of_what_came_before() -> None:
    prompts = [list(range(40)), [*range(32), *range(100, 108)], list(range(200, 240)), [7, *range(1, 40)]]
    made = record(
        *(request([(10, 1)], id=f"r{i}", arrival_ms=i, prompt_token_ids=ids) for i, ids in enumerate(prompts))
    )
    assert repeated_share(made) == pytest.approx(32 / 160)  # the last differs in its first token
    assert repeated_share(record(request([(10, 1)]))) is None


def test_a_bench_result_is_read_as_it_is_printed() -> None:
    from experiments.metrics import compute_metrics

    made = record(request([(30, 1), (40, 1)], steps=[[0, "prefill", 1]]), steps=steps_of("p", "d", "d", "d"))
    metrics = json.loads(json.dumps(compute_metrics(made)))
    evidence = evidence_of(with_extras({**metrics, "run_id": "0", "warnings": []}), "typed in")
    assert evidence.ttft_p50_s == pytest.approx(0.03) and evidence.completed == 1


def test_a_stored_run_has_its_objectives_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = {"workload": "mixed", "slo": "ttft_p95=0.01", "price_per_device_hour": 2.0}
    run_id = store.create_run("bench", spec)
    with pytest.raises(CannotRunError, match="no record"):
        evidence_from_run(run_id, store)
    made = record(request([(30, 1), (40, 1)], steps=[[0, "prefill", 1]]), steps=steps_of("p", "d", "d", "d"))
    store.add_record(run_id, 0, 1, made)
    evidence = evidence_from_run(run_id, store)
    assert evidence.missed("ttft") is True and evidence.source_of("ttft_p95_s") == f"run {run_id}"
    assert evidence_from_run(run_id, store, slo="ttft_p95=1").missed("ttft") is False
    with pytest.raises(InputError, match="arm"):
        evidence_from_run(run_id, store, arm=3)
    with pytest.raises(InputError):
        evidence_from_run("ffffffff", store)
    other = store.create_run("plan", {})
    with pytest.raises(InputError, match="kind"):
        evidence_from_run(other, store)
