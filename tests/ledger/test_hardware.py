from pathlib import Path

import pytest

from ledger.errors import CannotRunError, InputError
from ledger.hardware import GIB, MIB, Accelerator, accelerator, catalogue, read_hardware

# 2:4 sparsity doubles a dense rate; vendors print these for the 16-bit types, TFLOPS.
SPARSE_16_BIT = {
    "a100-sxm-80gb": 624,
    "a30": 330,
    "a10": 250,
    "l4": 242,
    "l40s": 733,
    "h100-pcie": 1513,
    "h100-sxm": 1979,
    "h200-sxm": 1979,
    "b200": 4500,
    "b300": 4500,
    "mi300x": 2615,
    "rtx-4090": 330.4,
}
CARD = """
[my-card]
label = "My card"
vendor = "Us"
aliases = ["mine"]
memory_gib = 10
bandwidth = 500
dense = { bf16 = 50, int8 = 100 }
power_w = 200
sources = ["its box"]
"""


@pytest.fixture(autouse=True)
def no_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRILEMMA_HARDWARE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_at_least_25_accelerators_each_with_a_source() -> None:
    found = catalogue()
    assert len(found) >= 25
    assert all(item.sources and item.provenance == "datasheet" for item in found.values())


def test_no_alias_means_two_cards() -> None:
    for item in catalogue().values():
        for spelling in (item.name, item.label, *item.aliases):
            assert accelerator(spelling) == item, spelling


@pytest.mark.parametrize("name", SPARSE_16_BIT)
def test_16_bit_rates_are_dense(name: str) -> None:
    dense = catalogue()[name].rate("bf16")[1] / 1e12
    assert dense == pytest.approx(SPARSE_16_BIT[name] / 2, rel=0.02)


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm", "h100-pcie", "h200-sxm", "b200", "l4", "l40s", "mi300x"])
def test_dense_int8_is_twice_dense_bf16(name: str) -> None:
    item = catalogue()[name]
    assert item.flops_per_s["int8"] / item.flops_per_s["bf16"] == pytest.approx(2, rel=0.02)


def test_int8_gains_nothing_where_the_hardware_has_no_faster_path() -> None:
    assert catalogue()["mi250x"].rate("int8")[1] == catalogue()["mi250x"].rate("bf16")[1]
    assert catalogue()["v100-sxm2-32gb"].rate("int8") == ("fp16", 125e12)


def test_h100_holds_what_its_driver_reports_and_not_80_gb() -> None:
    item = accelerator("H100")
    assert (item.memory_bytes, item.memory_source) == (81_559 * MIB, "driver")
    assert item.memory_bytes not in (80 * 10**9, 80 * GIB)


def test_a_nominal_memory_says_so() -> None:
    assert (catalogue()["mi325x"].memory_bytes, catalogue()["mi325x"].memory_source) == (256 * GIB, "nominal")


def test_a_link_is_one_direction() -> None:
    assert accelerator("h100").link_bytes_per_s == 450e9
    assert accelerator("a100").link_bytes_per_s == 300e9


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("L4", "l4"),
        ("4090", "rtx-4090"),
        ("nvidia a100 sxm 80 gb", "a100-sxm-80gb"),
        ("RTX_5090", "rtx-5090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("H100-SXM5-80GB", "h100-sxm"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
    ],
)
def test_names_are_found_in_any_case_and_by_alias(text: str, name: str) -> None:
    assert accelerator(text).name == name


def test_a_dtype_without_a_path_runs_in_the_next_wider_one() -> None:
    assert accelerator("a100").rate("fp8") == ("bf16", 312e12)
    assert accelerator("t4").rate("bf16") == ("fp16", 65e12)
    with pytest.raises(InputError, match="fp32"):
        accelerator("a10g").rate("fp32")


def test_a_dtype_whose_own_path_is_slower_runs_in_a_wider_one() -> None:
    assert catalogue()["b300"].flops_per_s["int8"] == 153.5e12
    assert catalogue()["b300"].rate("int8") == ("bf16", 2250e12)


def test_the_ridge_is_rate_over_bandwidth() -> None:
    assert accelerator("h100").ridge("bf16") == pytest.approx(989e12 / 3350e9)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="h100-sxm"):
        accelerator("h9000")


def test_this_machine_is_the_calibration_that_is_passed_in() -> None:
    with pytest.raises(CannotRunError, match="calibrate"):
        accelerator("this")
    mine = Accelerator("this", "here", "", 1, "system", 1.0, {"fp32": 1.0}, None, None, (), "measured")
    assert accelerator("This machine", mine) is mine


def test_a_file_of_the_user_adds_cards_and_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CARD + CARD.replace("my-card", "l4").replace("mine", "other"))
    monkeypatch.setenv("TRILEMMA_HARDWARE", str(path))
    assert accelerator("mine").provenance == "user"
    assert accelerator("my card").memory_bytes == 10 * GIB
    assert accelerator("l4").bandwidth_bytes_per_s == 500e9
    assert accelerator("h100").provenance == "datasheet"


def test_a_path_is_an_accelerator(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(CARD)
    two.write_text(CARD + CARD.replace("my-card", "second").replace("mine", "other"))
    assert accelerator(str(one)).name == "my-card"
    assert accelerator(f"{two}:second").name == "second"
    with pytest.raises(InputError, match="NAME of my-card, second"):
        accelerator(str(two))


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("memory_gib = 10", "", "my-card.memory_mib"),
        ("memory_gib = 10", "memory_gib = 10\nmemory_mib = 5", "my-card.memory_mib"),
        ("memory_gib = 10", "memory_gib = -1", "my-card.memory_gib"),
        ("bandwidth = 500", "bandwidth = nan", "my-card.bandwidth"),
        ("bandwidth = 500", "bandwidth = true", "my-card.bandwidth"),
        ("bandwidth = 500", "", "my-card.bandwidth"),
        ("bf16 = 50", "bf16 = 0", "my-card.dense.bf16"),
        ("bf16 = 50", "bf15 = 50", "my-card.dense"),
        ("power_w = 200", "powr = 200", "my-card.powr"),
        ('"its box"', "5", "my-card.sources"),
        ('label = "My card"', "label = 5", "my-card.label"),
        ("[my-card]", "[sources]\nits = 3\n[my-card]", "sources"),
        ("[my-card]", "[my-card", "TOML"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_field(tmp_path: Path, before: str, after: str, names: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(CARD.replace(before, after))
    with pytest.raises(InputError, match=names) as raised:
        read_hardware(path)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_missing_or_empty_is_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    for path in (tmp_path / "none.toml", empty, tmp_path):
        with pytest.raises(InputError):
            read_hardware(path)
