"""The registry, the configuration and what they refuse."""

from __future__ import annotations

from dataclasses import fields

import pytest

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, parse_setting
from ledger.errors import InputError


def test_the_config_has_exactly_the_registered_variables_with_their_defaults() -> None:
    assert {field.name for field in fields(EngineConfig)} == set(VARIABLES)
    assert (
        EngineConfig().settings()
        == EngineConfig.from_settings().settings()
        == {n: v.default for n, v in VARIABLES.items()}
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nope=1", "variable"),
        ("batching=fast", "batching"),
        ("max_num_seqs=0", "max_num_seqs"),
        ("max_num_seqs=2.5", "max_num_seqs"),
        ("max_wait_ms=nan", "max_wait_ms"),
        ("block_size", "--set"),
        ("kv_memory_mib=", "kv_memory_mib"),
        ("model= ", "model"),
    ],
)
def test_a_wrong_setting_is_one_line_with_field_and_what_is_accepted(text: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_setting(text)
    assert caught.value.field == field
    assert "accepted: " in str(caught.value) and "\n" not in str(caught.value)


def test_settings_are_parsed_to_their_types() -> None:
    assert parse_setting("max_num_seqs=4") == ("max_num_seqs", 4)
    assert parse_setting("max_wait_ms=2.5") == ("max_wait_ms", 2.5)
    assert EngineConfig.from_settings({"block_size": "32"}).block_size == 32


@pytest.mark.parametrize(
    "settings",
    [{"attention": "naive", "kv_splits": "4"}, {"kernels": "torch", "pin_threads": "auto"}],
)
def test_what_would_have_no_effect_is_refused(settings):
    with pytest.raises(InputError):
        EngineConfig.from_settings(settings)
