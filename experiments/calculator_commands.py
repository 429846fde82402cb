"""The command lines that give what a calculator page shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cost_view import CostSetting
from experiments.model_source import ModelSource
from ledger.engines import engine_rule
from ledger.formats import DEFAULT_GROUP_SIZE, GROUP_OVERHEAD_BYTES


def ledger_command(source: ModelSource, settings: Mapping[str, Any]) -> str:
    """`trilemma ledger ...`; what equals the verb's own default is left out."""
    words = ["trilemma ledger", source.argument(), f"--gpu {settings['gpu']}", *_sizes(settings)]
    words.append(f"--weights {settings['weights']}")
    if settings["engine"] != "vllm":
        words.append(f"--engine {settings['engine']}")
    if settings["memory_fraction"] != engine_rule(settings["engine"]).memory_fraction:
        words.append(f"--memory-fraction {settings['memory_fraction']:g}")
    if settings["max_num_batched_tokens"] != 8192:
        words.append(f"--max-num-batched-tokens {settings['max_num_batched_tokens']}")
    if settings["block_size"] != 16:
        words.append(f"--block-size {settings['block_size']}")
    return " ".join(words)


def kv_command(source: ModelSource, settings: Mapping[str, Any]) -> str:
    """`trilemma kv ...`."""
    return " ".join(["trilemma kv", source.argument(), *_sizes(settings), f"--block-size {settings['block_size']}"])


def _sizes(settings: Mapping[str, Any]) -> list[str]:
    words = [f"--seq-len {settings['seq_len']}", f"--concurrency {settings['concurrency']}"]
    words.append(f"--kv-dtype {settings['kv_dtype']}")
    if settings["kv_dtype"] in GROUP_OVERHEAD_BYTES and settings["kv_group_size"] != DEFAULT_GROUP_SIZE:
        words.append(f"--kv-group-size {settings['kv_group_size']}")
    words += [f"--{name} {settings[name]}" for name in ("tp", "pp") if settings[name] != 1]
    return words


def cost_command(source: ModelSource, gpu: str, setting: CostSetting) -> str:
    """`trilemma cost ...`; a throughput of a stored run stands without a model and a card."""
    words = ["trilemma cost"]
    if setting.source != "run":
        words += [source.argument(), f"--gpu {gpu}", f"--weights {setting.weights}", f"--kv-dtype {setting.kv_dtype}"]
        words += [f"--tp {setting.tp}"] if setting.tp != 1 else []
    words.append(f"--rate {setting.requests_per_s:g}")
    words += [f"--input-tokens {setting.input_tokens}", f"--output-tokens {setting.output_tokens}"]
    words += [f"--price-per-device-hour {setting.price_per_device_hour:g}", f"--utilisation {setting.utilisation:g}"]
    options = {"tokens-per-s-per-device": None if setting.source == "bound" else setting.tokens_per_s_per_device}
    if setting.source != "run":
        options |= {"tpot-slo": setting.tpot_slo_s, "concurrency": setting.concurrency}
    words += [f"--{name} {value:g}" for name, value in options.items() if value is not None]
    return " ".join([*words, *(f"--lever {name}={value}" for name, value in setting.levers)])
