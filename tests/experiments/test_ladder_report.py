"""The report, the sentences and the command line of a ladder: as a person would say it, in both languages, escaped."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs, loadgen
from experiments.cli import run as command_line
from experiments.cli.ladder import print_ladder
from experiments.kinds import KINDS, resumable
from experiments.playbook.phrases import CURVES, PHRASES, RECIPE_TEXTS, STEP_TEXTS
from experiments.playbook.recipes import RECIPES
from experiments.playbook.steps import STEPS
from experiments.playbook.words import Says
from experiments.report import report_html, report_json
from experiments.simulator.deployment import SimulateSpec
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.playbook.scripted import FAST, Guard, climb, speeds

ROOT = Path(__file__).parents[2]
SPEC: dict[str, Any] = {
    **FAST, "workload": "mixed", "max_tokens_cap": 48, "slo": "ttft_p95=60,itl_p95=5", "recipe": "rollout",
    "steps": ["continuous-paged", "kv-int8", "w4a16", "speculation", "pd"],
    "own": [["<b>mine</b>", {"fused_ops": "off", "block_size": 32}]],
}  # fmt: skip


@cache
def _made() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loadgen.gc, "collect", lambda: 0)
        clock = VirtualClock()
        rig = FakeRig(clock, speed=speeds)
        return json.dumps(climb(clock, rig=rig, guard=Guard(), **SPEC), allow_nan=False)


def made() -> dict[str, Any]:
    """A ladder with every outcome but undecided."""
    found: dict[str, Any] = json.loads(_made())
    return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    return Store(tmp_path / "runs.sqlite3")


def stored(store: Store, result: dict[str, Any]) -> str:
    run_id = store.create_run("ladder", KINDS["ladder"].check(SPEC), environment={"cpu": "ours"})
    store.update_run(run_id, state="done", result=result)
    return run_id


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_says_first_what_came_of_it_then_step_by_step(store: Store, lang: str) -> None:
    page, says, result = report_html(stored(store, made()), store, lang), Says(lang), made()
    verdict = re.search(r'<p class="verdict">(.*?)</p>', page).group(1)  # type: ignore[union-attr]
    assert says.step("kv-int8") in verdict
    first = page.index("<h3>1. ")
    places = [page.index(f". {says.step(row['name'])}", first) for row in result["steps"] if row["name"] in STEPS]
    assert places == sorted(places)
    for outcome in {row["outcome"] for row in result["steps"]}:
        assert says.outcome(outcome).replace("'", "&#x27;") in page
    assert "<b>mine" not in page and "&lt;b&gt;mine" in page
    assert "trilemma simulate embedded --gpu h100-sxm" in page.replace("&#x27;", "'")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_sentence_is_whole(lang: str) -> None:
    for paragraph in Says(lang).report(made()):
        assert paragraph and not re.search(r"[{}]|None|nan", paragraph), paragraph
        assert "  " not in paragraph and ".." not in paragraph and "。。" not in paragraph, paragraph
        assert paragraph.rstrip()[-1] in ".。" or "trilemma simulate" in paragraph


def test_the_paragraphs_read_as_somebody_would_write_them() -> None:
    paragraphs = Says("en").report(made())
    text = "\n".join(paragraphs)
    assert text.startswith("2 of 5 steps adopted: Continuous batching with paged KV, KV cache in INT8. The end against")
    assert re.search(r"measured directly: .*throughput \+\d+ % \[\+\d+, \+\d+\] \(better\)", text)
    assert "1. Continuous batching with paged KV (batching static → continuous, kv_layout contiguous → paged)" in text
    assert re.search(r"rolled back\. Quality is lost: 6 points of the answers \[5\.9, 6\.1\] on 168 items", text)
    assert "Worst: rare_facts 20 points." in text
    assert re.search(r"It began from .*batching=static", text) and "By return on effort here" in text


def test_the_json_form_has_the_headline_and_the_command(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = report_json(stored(store, made()), store)
    assert found["verdict"].startswith("2 of 5 steps adopted")
    asked: list[Any] = []

    def start(kind: str, spec: Any, _: Store, **__: Any) -> str:
        asked.append((kind, KINDS[kind].check(spec)))
        raise InputError("stop", "here", "")

    monkeypatch.setattr(jobs, "start", start)
    command_line(shlex.split(found["reproduce"])[1:])
    assert asked == [("ladder", KINDS["ladder"].check(SPEC))]


def test_a_recipe_fills_in_what_the_command_line_leaves_open(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(kind: str, spec: Any, _: Store, **__: Any) -> str:
        asked.append(KINDS[kind].check(spec))
        raise InputError("stop", "here", "")

    monkeypatch.setattr(jobs, "start", start)
    command_line(["ladder", "--recipe", "slow-tokens"])
    command_line(["ladder", "--recipe", "slow-tokens", "--steps", "none", "--step", "two bits:kv_dtype=int2"])
    assert (asked[0]["workload"], asked[0]["concurrency"], asked[0]["aim"]) == ("chat", 1, "itl_s")
    assert asked[0]["steps"] == list(RECIPES["slow-tokens"].steps)
    assert asked[1]["steps"] == [] and asked[1]["own"] == [["two bits", {"kv_dtype": "int2"}]]


@pytest.mark.parametrize(
    "arguments",
    [["--recipe", "soup"], ["--steps", "nothing"], ["--step", "fast"], ["--repeats", "0"], ["--resume", "x"],
     ["--resume", "x", "--slo", "ttft_p95=1"], ["--resume", "x", "--seed", "5"], ["--set", "kv_layout=odd"],
     ["--workload", "nowhere"]],
)  # fmt: skip
def test_wrong_options_are_one_line(store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert command_line(["ladder", *arguments]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "Traceback" not in said[0]


def test_the_command_line_prints_the_paragraphs_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_ladder(made())
    out = capsys.readouterr().out
    for text in ("2 of 5 steps adopted", "rolled back", "% an hour", "assumed", "<b>mine</b>"):
        assert text in out, text


def test_every_step_recipe_and_phrase_is_there_in_both_languages() -> None:
    assert set(STEP_TEXTS) == set(STEPS) and set(RECIPE_TEXTS) == set(RECIPES)
    pairs = [*PHRASES.values(), *CURVES.values(), *(two for one in STEP_TEXTS.values() for two in one),
             *(two for one in RECIPE_TEXTS.values() for two in one)]  # fmt: skip
    for english, chinese in pairs:
        assert english and (chinese or english == " ")
        assert set(re.findall(r"{(\w+)}", english)) == set(re.findall(r"{(\w+)}", chinese))


def test_the_words_of_a_ladder_need_nothing_imported_before_them() -> None:
    """The command line prints a ladder in a process that has made no report."""
    subprocess.run([sys.executable, "-c", "from experiments.playbook.words import Says"], check=True, cwd=ROOT)


def test_a_ladder_can_go_on() -> None:
    assert resumable()["ladder"] == "a ladder"
    assert KINDS["ladder"].says(KINDS["ladder"].check({"slo": "ttft_p95=1"})) == "rollout on mixed ttft_p95=1"


@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if step.simulate])
def test_what_cannot_run_here_names_a_simulation_that_is_accepted(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def simulate(spec: Any, *_: Any, **__: Any) -> Any:
        asked.append(SimulateSpec.from_dict(spec) if isinstance(spec, dict) else spec)
        raise InputError("stop", "here", "")

    class Refusing(FakeRig):
        def engine(self, config: Any, proposer: Any = None) -> Any:
            if self.made:  # all but the start
                raise CannotRunError("gpu: none is here")
            return super().engine(config, proposer)

    monkeypatch.setattr("experiments.simulator.run.simulate", simulate)
    clock = VirtualClock()
    result = climb(clock, steps=[name], start="defaults", rig=Refusing(clock), slo="ttft_p95=1")
    command = result["steps"][0]["simulate"]
    command_line(shlex.split(command)[1:])
    assert len(asked) == 1, capsys.readouterr().err
    assert asked[0].gpu == "h100-sxm"
