"""Servers behind bench and compare: the spec and its secrets, the order of runs, verdicts, quality, the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from experiments import loadgen
from experiments.bench import run_bench
from experiments.cli import options
from experiments.cli.progress import PHASES
from experiments.cli.sweep import print_sweep
from experiments.cli.tables import print_comparison, print_metrics
from experiments.compare import run_comparison
from experiments.endpoint_fields import parse_endpoints
from experiments.report.comparison import reproduce_command
from experiments.report.reproduce import command_of
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from experiments.sweep.plan import known_speeds, plan
from experiments.sweep.run import run_sweep
from experiments.sweep.spec import SweepSpec
from experiments.targets import EndpointTarget, choice
from ledger.errors import InputError
from tests.experiments.endpoint_rig import Bytes
from tests.experiments.mock_server import MockServer, Turn
from tests.experiments.report_runs import page_of

SMALL = {"workload": "equal", "num_requests": 3, "max_tokens_cap": 4}


@pytest.fixture(autouse=True)
def bytes_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompts are cut by one token a byte instead of by the embedded model."""
    monkeypatch.setattr(choice, "EndpointTarget", lambda spec, config: EndpointTarget(spec, config, tokenizer=Bytes()))
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)


async def at_once(turn: Turn) -> None:
    """All tokens without a wait: these tests are about order and words, not about times."""
    for _ in range(turn.body["max_tokens"]):
        await turn.event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]})
    await turn.end(tokens=turn.body["max_tokens"])


@pytest.fixture
def servers() -> Iterator[tuple[MockServer, MockServer]]:
    with MockServer(at_once, tokenizer=Bytes()) as first, MockServer(at_once, tokenizer=Bytes()) as second:
        yield first, second


def test_bench_drives_a_server_and_says_what_it_could_not_see(
    servers: tuple[MockServer, MockServer], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = BenchSpec.from_dict({**SMALL, "endpoint": servers[0].url})
    run_id = store.create_run("bench", spec.to_dict())
    seen: list[dict[str, Any]] = []
    result = run_bench(spec, store, run_id, seen.append)
    assert seen[0]["phase"] == "drawing" and "model" not in PHASES["drawing"]  # the server has loaded it long ago
    json.dumps(result, allow_nan=False)
    assert (result["completed"], result["failed"]) == (3, 0)
    assert result["target"]["url"] == servers[0].url
    assert store.records(run_id)[0].record["steps"] == []
    assert set(result["in_other_terms"]) == {"vllm", "guidellm", "aiperf"}
    print_metrics(result)
    shown = capsys.readouterr().out
    assert "time_per_output_token" in shown and "begins with 4 words" in shown


def test_compare_runs_two_servers_in_turn_with_the_same_schedule(
    servers: tuple[MockServer, MockServer], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = CompareSpec.from_dict(
        {**SMALL, "endpoints": {"ours": servers[0].url, "theirs": servers[1].url}, "repeats": 2}
    )
    run_id = store.create_run("compare", spec.to_dict())
    result = run_comparison(spec, store, run_id)
    assert (result["variable"], [arm["value"] for arm in result["arms"]]) == ("endpoint", ["ours", "theirs"])
    records = [found.record for found in store.records(run_id)]
    assert len({tuple(r["arrival_ns"] for r in record["requests"]) for record in records}) == 1
    assert result["quality"]["basis"] == "greedy text" and result["quality"]["measured"]
    verdicts = {curve["name"]: curve["verdict"] for curve in result["curves"]}
    assert verdicts["quality"] == "no difference"
    print_comparison(result)
    assert "theirs against ours" in capsys.readouterr().out
    store.update_run(run_id, state="done", result=result)
    page = page_of(store.get_run(run_id), store.records(run_id))
    assert "theirs" in page and reproduce_command(spec.to_dict()).startswith("trilemma compare --endpoint ours=http")


def test_another_text_is_worse_quality(servers: tuple[MockServer, MockServer]) -> None:
    async def other(turn: Turn) -> None:
        await turn.event({"choices": [{"index": 0, "text": "ab" * turn.body["max_tokens"], "finish_reason": None}]})
        await turn.end(tokens=turn.body["max_tokens"])

    servers[1].script = other
    spec = {**SMALL, "endpoints": {"a": servers[0].url, "b": servers[1].url}, "repeats": 2}
    result = run_comparison(spec, None, "r0")
    quality = next(curve for curve in result["curves"] if curve["name"] == "quality")
    assert quality["baseline"] == pytest.approx(1.0)
    assert quality["candidate"] == pytest.approx(2 / 5)  # of "aaaa" only the first letter, one added to both counts


def test_one_server_may_be_compared_with_itself(servers: tuple[MockServer, MockServer]) -> None:
    spec = {**SMALL, "endpoints": {"a": servers[0].url, "b": servers[0].url}, "repeats": 2}
    result = run_comparison(spec, None, "r0")
    prompts = [
        bytes(body["prompt"]).decode("latin-1") for body in servers[0].bodies if isinstance(body["prompt"], list)
    ]
    salts = {prompt.partition("\n")[0] for prompt in prompts if len(prompt.partition("\n")[0].split()) == 4}
    assert len(salts) == 4  # two arms, two repeats, and no two of them share a cache entry
    assert result["repeats"] == 2


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["http://h:8000/v1/"], {"": "http://h:8000"}),
        (["A=http://h:1,B=https://[::1]:2/x#m"], {"A": "http://h:1", "B": "https://[::1]:2/x#m"}),
        (["A=http://h:1", "B=http://h:1"], {"A": "http://h:1", "B": "http://h:1"}),
    ],
)
def test_addresses_are_read_with_their_labels(texts: list[str], found: dict[str, str]) -> None:
    assert parse_endpoints(texts) == found


@pytest.mark.parametrize(
    "text",
    ["localhost:8000", "ftp://h", "http://", "http://user:pa55@h", "http://h?key=pa55", "http://h:99999", "A=http://h,A=http://i",
     "A=http://h,http://i", "A=http://h,B=http://i,C=http://j", "http://user:pa55@h?x=pa55"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_and_no_password_repeated(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_endpoints([text])
    assert refused.value.field == "--endpoint"
    assert "pa55" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"endpoint_api": "grpc"}, "endpoint_api"),
        ({"key_env": "sk-1 2"}, "key_env"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": "nan"}, "timeout_s"),
        ({"retries": -1}, "retries"),
        ({"settings": {"block_size": 16}}, "--set"),
    ],
)
def test_a_wrong_field_of_a_server_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        BenchSpec.from_dict({"endpoint": "http://h", **change})
    assert refused.value.field == field
    assert "sk-1" not in str(refused.value)


def test_a_variable_beside_a_server_is_refused_and_two_servers_survive_their_json() -> None:
    with pytest.raises(InputError, match="a server has settings of its own"):
        CompareSpec.from_dict({"endpoint": "http://h", "variable": "block_size", "values": [16, 32]})
    with pytest.raises(InputError, match="the server is what is varied"):
        CompareSpec.from_dict({"endpoints": {"a": "http://h", "b": "http://i"}, "variable": "block_size"})
    spec = CompareSpec.from_dict({"endpoints": {"b": "http://h", "a": "http://i"}, "timeout_s": 5})
    again = CompareSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec and again.values == ("b", "a")
    assert [arm.endpoint for arm in again.arms()] == ["http://h", "http://i"]


def test_the_command_line_words_one_server_and_two() -> None:
    assert options.Server(["http://h"]).one()["endpoint"] == "http://h"
    two = options.Server(["a=http://h,b=http://i"])
    assert two.fields()["endpoints"] == {"a": "http://h", "b": "http://i"}
    with pytest.raises(InputError, match="compare takes two"):
        two.one()
    assert options.Server().fields()["endpoint"] is None


def test_a_sweep_of_a_server_has_its_curve_and_says_why_there_is_no_memory_knee(
    servers: tuple[MockServer, MockServer], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = SweepSpec.from_dict({**SMALL, "endpoint": servers[0].url, "values": [1, 2]})
    run_id = store.create_run("sweep", spec.to_dict())
    result = run_sweep(spec, store, run_id)
    json.dumps(result, allow_nan=False)
    assert [point["metrics"]["completed"] for point in result["points"]] == [3, 8]
    assert result["settings"] == {} and result["unavailable"] == []
    print_sweep(result)
    assert "memory knee: unknown" in capsys.readouterr().out
    assert f"--endpoint {servers[0].url}" in (command_of("sweep", spec.to_dict()) or "")
    assert not any("slots" in text for text in plan(spec, None)["warnings"])


def test_speeds_of_a_server_are_no_estimate_for_the_engine(
    servers: tuple[MockServer, MockServer], tmp_path: Any
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    spec = BenchSpec.from_dict({**SMALL, "endpoint": servers[0].url})
    run_id = store.create_run("bench", spec.to_dict())
    store.update_run(run_id, state="done", result=run_bench(spec, store, run_id))
    of_server = SweepSpec.from_dict({**SMALL, "endpoint": servers[0].url})
    assert known_speeds(of_server, store) is not None
    assert plan(of_server, store)["estimate_s"] is not None
    assert known_speeds(SweepSpec.from_dict(SMALL), store) is None
