"""The last change of a form can be taken back, on the Workbench, on the 2 x 2 page and on pages of inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.components.draft import STARTS
from app.i18n import catalogue
from core_engine.variables import VARIABLES
from tests.app.alone import asked, page_alone, used


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def test_changes_of_the_workbench_are_taken_back_one_by_one() -> None:
    app = page_alone("workbench")
    assert "undo-draft" not in [button.key for button in app.button]
    app.selectbox[0].set_value("max_num_seqs").run()
    app.number_input[0].set_value(5).run()
    assert app.button(key="undo-draft").label.endswith(catalogue("en")["var.max_num_seqs"])
    app.button(key="undo-draft").click().run()
    assert app.number_input[0].value == STARTS["max_num_seqs"][0]
    app.button(key="undo-draft").click().run()
    assert app.selectbox[0].value == "batching" and asked(app, "variable") == "batching"
    assert "undo-draft" not in [button.key for button in app.button]


def test_an_input_of_a_calculator_is_taken_back_in_the_address_too() -> None:
    app = page_alone("roofline", kv_dtype="int8")
    app.selectbox(key="roofline-kv_dtype").set_value("bf16").run()
    app.button(key="undo-roofline").click().run()
    assert app.selectbox(key="roofline-kv_dtype").value == "int8" and asked(app, "kv_dtype") == "int8"


def test_two_at_once_lives_in_its_address_and_is_taken_back() -> None:
    app = page_alone("factorial", x="max_num_seqs", x0="3", y="block_size", y1="32", set="seed=7,nope=1", repeats="3")
    assert [box.value for box in app.selectbox][:2] == ["max_num_seqs", "block_size"]
    assert [box.value for box in app.number_input] == [3, STARTS["max_num_seqs"][1], STARTS["block_size"][0], 32]
    assert asked(app, "set") == "seed=7" and asked(app, "repeats") == "3"
    app.number_input[0].set_value(4).run()
    assert asked(app, "x0") == "4"
    app.button(key="undo-two-draft").click().run()
    assert app.number_input[0].value == 3 and asked(app, "x0") == "3"


@pytest.mark.parametrize(
    ("page", "key", "variable"),
    [
        ("quantization", "quant-group", "weight_group"),
        ("speculation", "spec-k", "num_draft_tokens"),
        ("caching", "caching-threshold", "semantic_threshold"),
        ("kernels", "prof-model", "model"),
    ],
)
def test_a_variable_has_the_registrys_control_on_every_page(page: str, key: str, variable: str) -> None:
    entry = VARIABLES[variable]
    kind = {"choice": "selectbox", "path": "text_input"}.get(entry.kind, "number_input")
    here = getattr(page_alone(page), kind)(key=key)
    there = getattr(page_alone("workbench", variable=variable), kind)(key=f"value-0-{variable}-0")
    assert here.label == catalogue("en")[f"var.{variable}"]
    for what in {"choice": ("options",), "path": ("help",)}.get(entry.kind, ("min", "max", "step")):
        assert getattr(here, what) == getattr(there, what), what
