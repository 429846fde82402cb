"""The pages run, in both languages, in every state a run can be in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.components.live import refresh_s
from app.components.picker import HELD
from app.components.trace_parts import ONE_STEP
from app.i18n import catalogue, translate
from app.state import MARKS
from core_engine.environment import cuda_is_here
from core_engine.kernels.choice import expected_here
from core_engine.variables import VARIABLES
from experiments import jobs
from experiments.compare import CompareSpec
from experiments.metrics.host import host_work
from experiments.report import headline
from experiments.report.words import MISSING, number, percent
from tests.app.alone import PATIENCE_S, texts
from tests.app.conftest import Sample

MAIN = str(Path(__file__).resolve().parents[2] / "app" / "main.py")


def opened(home: Path, **params: str) -> AppTest:
    app = AppTest.from_file(MAIN, default_timeout=PATIENCE_S)
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    assert not any(translate(lang, "error.title") in error.value for error in app.error for lang in ("en", "zh"))
    return app


def stored(sample: Sample, state: str, **fields: Any) -> str:
    run_id = sample.store.create_run("compare", CompareSpec().to_dict())
    sample.store.update_run(run_id, state=state, **fields)
    return run_id


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_it_opens_with_the_default_experiment_filled_in_and_one_primary_button(home: Path, lang: str) -> None:
    app = opened(home, lang=lang, variable="batching")
    assert [box.value for box in app.selectbox][:4] == ["batching", "static", "continuous", "mixed"]
    primary = [button for button in app.button if button.proto.type == "primary"]
    assert [button.label for button in primary] == [translate(lang, "picker.run")]
    names = {"baseline": translate(lang, "value.static"), "candidate": translate(lang, "value.continuous")}
    assert app.title[0].value == translate(lang, "page.question_batching", **names)


@pytest.mark.parametrize("name", list(VARIABLES))
def test_every_variable_can_be_chosen(home: Path, name: str) -> None:
    app = opened(home, variable=name)
    assert app.selectbox[0].value == name
    assert app.query_params["variable"] in (name, [name])


def test_choosing_another_variable_fills_in_values_for_it(home: Path) -> None:
    app = opened(home, variable="batching")
    app.selectbox[0].set_value("max_num_seqs").run()
    assert not app.exception
    assert [box.value for box in app.number_input][:2] == [2, 8]


def test_a_held_setting_can_be_made_the_variable(home: Path) -> None:
    app = opened(home, variable="batching")
    app.session_state[HELD] = True
    app.run()
    app.button(key="make-block_size").click().run()
    assert app.selectbox[0].value == "block_size"


def test_values_and_settings_of_the_address_are_taken_and_wrong_ones_passed_over(home: Path) -> None:
    app = opened(
        home, variable="max_num_seqs", a="3", b="nonsense", workload="chat", set="block_size=32,nope=1", requests="7"
    )
    assert [box.value for box in app.number_input][:2] == [3, 8]
    assert app.selectbox[1].value == "chat" and "7" in app.selectbox[1].options[-1]
    assert any("32" in expander.label for expander in app.expander)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_finished_run_shows_verdict_curves_memory_timeline_and_reasons(home: Path, sample: Sample, lang: str) -> None:
    app = opened(home, run=sample.run_id, lang=lang)
    shown = texts(app)
    words = catalogue(lang)
    assert headline(sample.result, lang)[1] in shown
    for key in ("five_curves", "memory", "timeline", "result.why", "result.trap", "why.batching", "trap.batching"):
        assert words[key] in shown, key
    assert shown.count(f"{words['measured']}]") >= 7 and f"{words['computed']}]" in shown
    assert "trilemma compare --vary batching=static,continuous" in "\n".join(code.value for code in app.code)


def test_a_run_of_a_file_opens_with_the_files_name_and_its_clients(home: Path, sample: Sample) -> None:
    spec = {**CompareSpec().to_dict(), "workload": "/data/traffic.toml", "concurrency": 3, "num_requests": 5}
    run_id = sample.store.create_run("compare", spec)
    sample.store.update_run(run_id, state="failed", error="the engine process ended (SIGKILL)")
    app = opened(home, run=run_id)
    workload = next(box for box in app.selectbox if box.label == translate("en", "picker.workload"))
    assert workload.value == "/data/traffic.toml" and "traffic.toml" in workload.options


def test_a_failed_run_says_what_is_safe_and_offers_a_restart(home: Path, sample: Sample) -> None:
    run_id = stored(sample, "failed", error="the engine process ended (SIGKILL)")
    app = opened(home, run=run_id)
    assert "failed: the engine process ended (SIGKILL)" in app.error[0].value
    assert app.button(key="restart").label == translate("en", "failed.restart")
    assert translate("en", "failed.safe") in texts(app)


def test_a_dead_process_is_seen_as_failed_when_the_page_is_opened(home: Path, sample: Sample) -> None:
    run_id = stored(sample, "running", pid=2**22 - 1, pid_started=1.0)
    app = opened(home, run=run_id)
    assert "the engine process ended" in app.error[0].value


def test_a_cancelled_run_without_a_verdict_says_so(home: Path, sample: Sample) -> None:
    app = opened(home, run=stored(sample, "cancelled"))
    assert translate("en", "failed.cancelled") in texts(app)
    assert app.button(key="resume").label == translate("en", "runs.resume")


def test_a_stopped_run_with_finished_pairs_goes_on(home: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[str] = []
    monkeypatch.setattr(jobs, "resume", lambda run_id, *_: resumed.append(run_id))
    run_id = stored(sample, "failed", error="the engine process ended (SIGKILL)")
    sample.store.add_record(run_id, 0, 1, sample.store.record(sample.run_id, 0, 1))
    app = opened(home, run=run_id)
    assert translate("en", "failed.go_on") in texts(app)
    app.button(key="restart").click().run()
    sample.store.update_run(run_id, state="cancelled", result={**sample.result, "cancelled": True})
    opened(home, run=run_id).button(key="resume").click().run()
    sample.store.delete_run(run_id)
    assert resumed == [run_id, run_id]


def test_an_unknown_run_is_named_and_the_page_goes_on(home: Path) -> None:
    app = opened(home, run="deadbeef")
    assert "deadbeef" in app.warning[0].value
    assert app.button(key="run")


# -- Trace & memory ----------------------------------------------------------------------------------------------------

TRACE_SECTIONS = ("trace.blocks", "trace.kinds", "trace.waste", "trace.waterfall", "trace.prefix", "trace.preemptions")


def traced(home: Path, **params: str) -> AppTest:
    """The trace page alone, in the app's own surroundings: AppTest knows no pages made of functions."""

    def script() -> None:
        from app.views import trace

        trace.page()

    app = AppTest.from_function(script, default_timeout=PATIENCE_S)
    for name, value in params.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_trace_page_shows_blocks_kinds_waterfall_hits_and_preemptions(
    home: Path, sample: Sample, lang: str
) -> None:
    app = traced(home, run=sample.run_id, lang=lang, arm="0", repeat="2")
    shown, words = texts(app), catalogue(lang)
    assert app.title[0].value == words["trace.question"]
    for key in TRACE_SECTIONS:
        assert words[key] in shown, key
    assert shown.count(f"{words['measured']}]") >= 5
    assert words["trace.no_preemptions"] in shown
    assert f"trilemma runs trace {sample.run_id} --arm 0 --repeat 2" in app.code[0].value
    assert [list(app.query_params[name]) for name in ("arm", "repeat")] == [["0"], ["2"]]


def test_both_arms_stand_side_by_side_unless_one_is_asked_for(home: Path, sample: Sample) -> None:
    app = traced(home, run=sample.run_id)
    assert app.query_params["arm"] in ("both", ["both"])
    shown = texts(app)
    assert "**static**" in shown and "**continuous**" in shown
    columns = [set(frame.value.columns) for frame in app.dataframe]
    assert any({"static, MiB", "continuous, MiB"} <= named for named in columns)


def test_the_waste_table_adds_up_to_the_pool(home: Path, sample: Sample) -> None:
    app = traced(home, run=sample.run_id, arm="1")
    (frame,) = [item.value for item in app.dataframe if "MiB" in item.value.columns]
    sizes = dict(zip(frame.iloc[:, 0], frame["MiB"].astype(float), strict=True))
    parts = [size for name, size in sizes.items() if not name.startswith(("External", "Wasted"))]
    assert sum(parts) == pytest.approx(4.0, abs=0.05)  # kv_memory_mib of the sample


def test_moving_the_moment_shows_another_step(home: Path, sample: Sample) -> None:
    app = traced(home, run=sample.run_id, arm="0")
    app.session_state[ONE_STEP] = True
    app.run()
    before = [item.value for item in app.caption if "rows," in item.value]
    app.slider[0].set_value(100).run()
    assert not app.exception
    after = [item.value for item in app.caption if "rows," in item.value]
    assert len(before) == len(after) == 1 and before != after


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_host_share_of_a_step_is_told_from_the_recorded_steps(home: Path, sample: Sample, lang: str) -> None:
    found = host_work(sample.store.record(sample.run_id, 0, 1))
    assert found["share"]["n"] > 0 and 0 < found["share"]["p50"] < 1
    figures = {"ms": number(1000 * found["host_s"]["p50"]), "share": percent(100 * found["share"]["p50"])}
    said = translate(lang, "trace.host", arm="", n=found["share"]["n"], **figures)
    for app in (traced(home, run=sample.run_id, lang=lang, arm="0"), opened(home, run=sample.run_id, lang=lang)):
        assert any(item.value.endswith(said) for item in app.caption)


def test_a_run_recorded_before_kv_by_kind_says_so_and_shows_its_latency(home: Path, sample: Sample) -> None:
    run_id = stored(sample, "done", result={})
    record = sample.store.record(sample.run_id, 0, 1)
    for step in record["steps"]:
        for name in ("kv", "kv_events", "kv_commit_events", "rows", "admitted", "preempted"):
            step.pop(name)
    for name in ("host_ns", "sender_ns", "kv_events_after"):
        record.pop(name)
    sample.store.add_record(run_id, 0, 1, record)
    app = traced(home, run=run_id)
    sample.store.delete_run(run_id)
    assert [item.value for item in app.info] == [translate("en", "trace.older")]
    shown = texts(app)
    assert translate("en", "trace.waterfall") in shown and translate("en", "trace.blocks") not in shown


LEDGER_WORD = re.compile(r"[A-Za-z]{2,}")
SAME_IN_BOTH = {"MLP", "token", "logits", "KV", "MiB", "qkv", "gate", "up", "torch", "NVML"}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_account_is_labelled_by_row_and_the_runtime_is_a_reading(home: Path, sample: Sample, lang: str) -> None:
    words = catalogue(lang)
    label = {name: f":gray-badge[{mark} {words[name]}]" for name, (mark, _) in MARKS.items()}
    (table,) = [item.value for item in traced(home, run=sample.run_id, lang=lang, arm="0").table]
    rows = table.set_index(words["accounts.account"])
    predicted, measured = rows[words["accounts.predicted"]], rows[words["accounts.measured"]]
    runtime, weights = words["accounts.runtime"], words["accounts.weights"]
    assert words["accounts.reading"] in predicted[runtime] and label["measured"] in predicted[runtime]
    assert label["computed"] in predicted[weights] and label["measured"] in measured[weights]
    assert label["estimated"] in measured[words["accounts.history"]]
    assert list(rows.index)[-3:] == [words[f"accounts.{name}"] for name in ("unexplained", "total", "process_peak")]
    assert MISSING not in measured[words["accounts.process_peak"]]


def test_the_chinese_page_tells_how_in_chinese(home: Path, sample: Sample) -> None:
    app = traced(home, run=sample.run_id, lang="zh", arm="0")
    names = [catalogue("zh")[f"accounts.{name}"] for name in ("weights", "kv_pool", "activation_peak", "history")]
    told = [str(item.value) for item in app.markdown if any(str(item.value).startswith(f"**{n}**  ") for n in names)]
    assert len(told) == len(names)
    for text in told:
        assert set(LEDGER_WORD.findall(re.sub(r":[a-z]+-badge", "", text))) <= SAME_IN_BOTH, text


def test_a_run_recorded_before_predictions_says_so(home: Path, sample: Sample) -> None:
    run_id = stored(sample, "done", result={})
    record = sample.store.record(sample.run_id, 0, 1)
    del record["memory"]["accounts"]
    sample.store.add_record(run_id, 0, 1, record)
    app = traced(home, run=run_id)
    sample.store.delete_run(run_id)
    assert translate("en", "accounts.older") in texts(app) and not app.table


def test_a_run_without_a_finished_repeat_and_an_unknown_one_are_said(home: Path, sample: Sample) -> None:
    run_id = stored(sample, "cancelled")
    app = traced(home, run=run_id)
    sample.store.delete_run(run_id)
    assert app.info[0].value == translate("en", "trace.no_records")
    assert "deadbeef" in traced(home, run="deadbeef").warning[0].value


def test_the_page_is_in_the_navigation_and_a_value_that_another_needs_is_said(home: Path) -> None:
    app = opened(home, variable="kv_layout")
    said = translate("en", "picker.held_because", value="off", because="kv_layout=contiguous")
    assert said in texts(app)
    assert said not in texts(opened(home, variable="block_size"))


@pytest.mark.parametrize(("cores", "seconds"), [(1, 8.0), (2, 4.0), (4, 2.0), (64, 2.0)])
def test_the_fewer_cores_the_seldomer_the_live_page_is_redrawn(cores: int, seconds: float) -> None:
    assert refresh_s(cores) == seconds


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_says_what_stands_in_for_a_cuda_graph(home: Path, lang: str) -> None:
    compiled = opened(home, variable="graph", lang=lang)
    by_torch = opened(home, variable="graph", set="kernels=torch", lang=lang)
    here = expected_here().kernels == "compiled" and not cuda_is_here()
    assert translate(lang, "kernels.stand_in" if here else "kernels.no_stand_in") in texts(compiled)
    assert translate(lang, "kernels.no_stand_in") in texts(by_torch)
