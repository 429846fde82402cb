"""The table of launch settings: what goes first, what is written, what the rules give. No device is timed here."""

from __future__ import annotations

import json

import pytest
import torch

from core_engine.kernels.triton import tune_products, tuning

NAME = "NVIDIA H200 (test)"
FOUND = {"BLOCK_N": 32, "BLOCK_M": 16, "SPLITS": 2, "num_warps": 2, "num_stages": 3}
SHAPE = (16, 4096, 4096, 64)


@pytest.fixture(autouse=True)
def own_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "shipped")
    tuning.forget()
    yield
    tuning.forget()


def ship(table):
    tuning.SHIPPED.mkdir()
    (tuning.SHIPPED / "nvidia-h200-test.json").write_text(json.dumps(table))
    tuning.forget()


def test_without_a_table_the_rule_decides():
    assert tuning.config("w4a16", SHAPE, NAME) == tuning.product_rule(SHAPE, tuning.USUAL_PROCESSORS)


def test_a_kernel_of_another_module_brings_its_own_rule():
    assert tuning.config("attention", (1,), NAME, lambda shape, processors: {"BLOCK": 7 * shape[0]}) == {"BLOCK": 7}
    with pytest.raises(KeyError):
        tuning.config("attention", (2,), NAME)


def test_the_users_entries_go_before_the_shipped_ones_and_those_before_the_rule():
    ship({"w4a16/16,4096,4096,64": {"BLOCK_N": 16}, "w8a8/1,2,3,4": {"BLOCK_N": 8}})
    assert tuning.config("w4a16", SHAPE, NAME) == {"BLOCK_N": 16}
    tuning.remember("w4a16", SHAPE, NAME, FOUND)
    assert tuning.config("w4a16", SHAPE, NAME) == FOUND
    assert tuning.config("w8a8", (1, 2, 3, 4), NAME) == {"BLOCK_N": 8}
    assert tuning.config("w4a16", SHAPE, "another device") == tuning.product_rule(SHAPE, tuning.USUAL_PROCESSORS)


def test_remembering_one_keeps_the_others():
    tuning.remember("w4a16", SHAPE, NAME, FOUND)
    tuning.remember("w8a8", SHAPE, NAME, {"BLOCK_N": 8})
    assert tuning.config("w4a16", SHAPE, NAME) == FOUND
    assert [path.name for path in tuning.user_table(NAME).parent.iterdir()] == ["nvidia-h200-test.json"]


def test_what_is_returned_may_be_changed():
    tuning.config("w4a16", SHAPE, NAME)["BLOCK_N"] = 1
    assert tuning.config("w4a16", SHAPE, NAME)["BLOCK_N"] != 1


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"w4a16/16,4096,4096,64": {"BLOCK_N": -1}}', '{"w4a16/16,4096,4096,64": 3}']
)
def test_a_table_that_is_no_table_is_passed_over(text):
    path = tuning.user_table(NAME)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert tuning.config("w4a16", SHAPE, NAME) == tuning.product_rule(SHAPE, tuning.USUAL_PROCESSORS)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [({1: 3.0, 2: 1.0, 3: 2.0}, 2), ({1: None, 2: None, 3: 5.0}, 3)],
    ids=["fastest", "launched"],
)
def test_tuning_writes_the_fastest_of_those_that_can_be_launched(monkeypatch, seconds, expected):
    monkeypatch.setattr(tuning, "_seconds", lambda launch, settings: seconds[settings["num_warps"]])
    candidates = [{"num_warps": number} for number in seconds]
    assert tuning.tune("w4a16", SHAPE, NAME, candidates, lambda settings: None) == (
        {"num_warps": expected}, seconds[expected],
    )  # fmt: skip
    assert tuning.config("w4a16", SHAPE, NAME) == {"num_warps": expected}


def test_tuning_says_when_nothing_can_be_launched(monkeypatch):
    monkeypatch.setattr(tuning, "_seconds", lambda launch, settings: None)
    with pytest.raises(RuntimeError, match="none of 1 settings of w4a16"):
        tuning.tune("w4a16", SHAPE, NAME, [FOUND], lambda settings: None)
    assert not tuning.user_table(NAME).exists()


@pytest.mark.parametrize(("tokens", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (9999, 4096)])
def test_numbers_of_tokens_share_settings_up_to_a_power_of_two(tokens, expected):
    assert tuning.bucket(tokens) == expected


H200 = 132  # processors


@pytest.mark.parametrize("out", [2048, 4096, 28672, 128256])
@pytest.mark.parametrize("tokens", [1, 8, 64])
def test_few_tokens_fill_the_device_or_split_as_far_as_they_may(tokens, out):
    found = tuning.product_rule((tokens, out, 4096, 64), H200)
    programs = -(-out // found["BLOCK_N"]) * found["SPLITS"]
    assert programs >= 132 * 2 or found["SPLITS"] == 8
    assert found["SPLITS"] == 1 or programs < 132 * 10
    assert found["BLOCK_M"] >= max(tokens, 16)


def test_many_tokens_are_not_split_where_the_device_is_full():
    assert tuning.product_rule((4096, 4096, 4096, 64), H200)["SPLITS"] == 1
    assert tuning.product_rule((128, 1024, 4096, 64), H200)["SPLITS"] > 1


@pytest.mark.parametrize("tokens", [1, 16, 64, 128, 4096])
def test_candidates_are_whole_settings_each_once(tokens):
    found = tuning.product_candidates((tokens, 4096, 4096, 64))
    assert len({tuple(sorted(settings.items())) for settings in found}) == len(found) > 10
    assert all(settings.keys() == FOUND.keys() for settings in found)


@pytest.mark.parametrize(("form", "group"), [("w4a16", 64), ("w8a16", 128), ("w8a8", 32)])
def test_a_product_looks_up_what_was_measured_for_it(monkeypatch, form, group):
    monkeypatch.setattr(tuning, "_seconds", lambda launch, settings: launch({**settings, "SPLITS": 1}) and 1.0)
    monkeypatch.setattr(tuning, "product_candidates", lambda shape: [FOUND])
    used = []
    for held in (tune_products.WeightOnly, tune_products.W8A8):
        monkeypatch.setattr(held, "product_with", lambda self, settings, x, bias=None: used.append(settings) or True)
    matrix = tune_products.random_matrix(form, 32, 128, group)
    assert tune_products.tuned(form, matrix, 5, torch.device("cpu"))[0] == FOUND
    held = tune_products.W8A8 if form == "w8a8" else tune_products.WeightOnly
    held.of(matrix, torch.device("cpu")).product(torch.zeros(7, 128))
    assert used[-1] == FOUND
