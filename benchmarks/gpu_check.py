"""`make gpu-check`: what must hold on a CUDA machine, with plain python3 and only what is installed there.

Every kernel against torch, the engine's greedy ids against transformers, then speed on models of real shapes with
random weights: how near a step is to the device's own copy and matrix product, and what each optimisation gains. Prints
one JSON object, and writes it to --json; exit code 3 without CUDA, 1 when something is wrong. Sections that would begin
after --limit seconds are left out and named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from gpu import runs
from gpu.ceilings import copy_bytes_per_s, product_flops_per_s
from gpu.kernels import kernel_checks
from gpu.models import random_model
from gpu.steps import Ceilings, StepKind, measured

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import load_model
from core_engine.request import SamplingParams

PROMPT_LENGTHS = (1, 2, 15, 16, 17, 40, 63, 64, 65, 120, 200, 300)
NEW_TOKENS = 16
KERNELS_LIMIT_S = 120.0
# Each must give the same ids; the small budget cuts prompts into chunks.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"graph": "off", "overlap": "off", "fused_ops": "off"},
    {"kv_splits": "4", "max_num_seqs": 7},
    {"kernels": "torch"},
    {"max_num_batched_tokens": 13, "block_size": 1},
    {"kv_layout": "contiguous", "prefix_cache": "off"},
)


def random_llama(directory: Path, **sizes: Any) -> Any:
    """Save a random Llama and a byte-level tokenizer; returns the transformers model (fp32, CPU)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        max_position_embeddings=2048, rope_theta=10000.0, eos_token_id=0, bos_token_id=1, **sizes
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(directory)
    alphabet = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    return model


def parity(directory: Path) -> dict[str, Any]:
    """Greedy ids of ragged prompts in one batch on CUDA in fp32 against full forward passes on the CPU."""
    model = random_llama(
        directory, vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=2, initializer_range=0.3, tie_word_embeddings=True,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, 256, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    base = {"model": str(directory), "device": "cuda", "dtype": "fp32"}
    loaded = {
        kernels: load_model(EngineConfig.from_settings({**base, "kernels": kernels})) for kernels in ("auto", "torch")
    }
    expected = [reference_ids(model, prompt) for prompt in prompts]
    found = []
    for settings in SETTINGS:
        config = EngineConfig.from_settings({"max_num_seqs": 5, **settings})
        engine = Engine(config, loaded[config.kernels])
        for attempt in ("cold", "with the prefixes of the first"):
            answers = engine.generate(prompts, SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True))
            equal = sum(answer.token_ids == ids for answer, ids in zip(answers, expected, strict=True))
            ran = {name: engine.environment.get(name) for name in ("kernels", "kernels_reason", "captured")}
            found.append({"settings": settings, "attempt": attempt, "equal": equal, **ran})
    ours = loaded["auto"].kernels.kernels == "triton"
    passed = ours and all(run["equal"] == len(prompts) for run in found)
    return {"prompts": len(prompts), "runs": found, "passed": passed}


@torch.inference_mode()
def reference_ids(model: Any, prompt: list[int]) -> list[int]:
    """Greedy by one full forward pass a token."""
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def eight_billion(ceilings: Ceilings) -> dict[str, Any]:
    """Llama-3.1-8B's shape in bf16: the goals, captured against eager, and keys split against whole."""
    loaded = random_model("Llama-3.1-8B", {})
    found = {
        "decode": [measured(loaded, StepKind(batch, 1024), ceilings) for batch in (1, 8, 32)],
        "long_int8": measured(loaded, StepKind(32, 8192), ceilings, {"kv_dtype": "int8"}),
        "long_bf16": measured(loaded, StepKind(32, 8192), ceilings),
        "prefill": measured(loaded, StepKind(1, 8192, prefill=True), ceilings),
        "graph": [measured(loaded, StepKind(1, 1024), ceilings, {"graph": graph}) for graph in ("on", "off")],
        "kv_splits": [
            measured(loaded, StepKind(1, 65_536), ceilings, {"kv_splits": splits}) for splits in ("1", "auto")
        ],
        "switches": runs.switches(loaded, 1, 96),
    }
    found["goals"] = {
        "decode at batch 1, share of the copy's bytes": [found["decode"][0]["read_share"], 0.80],
        "decode 32 x 8K, int8 KV, share of the copy's bytes": [found["long_int8"]["read_share"], 0.70],
        "prefill 8K, share of the matrix product": [found["prefill"]["product_share"], 0.60],
    }
    return found


def quantized_eight_billion(ceilings: Ceilings) -> dict[str, Any]:
    """The same shape with 4- and 8-bit weights."""
    return {
        weights: [
            measured(loaded, kind, ceilings)
            for kind in (StepKind(1, 1024), StepKind(32, 1024), StepKind(1, 2048, prefill=True))
        ]
        for weights in ("w4a16-rtn", "w8a8")
        for loaded in [random_model("Llama-3.1-8B", {"weights": weights})]
    }


def smaller(ceilings: Ceilings) -> dict[str, Any]:
    """Llama-3.2-1B, where launches and the host weigh most, and Qwen2.5-7B."""
    one = random_model("Llama-3.2-1B", {})
    found: dict[str, Any] = {
        "1B": [measured(one, StepKind(batch, 512), ceilings) for batch in (1, 8, 64)],
        "1B switches": [runs.switches(one, batch, 96) for batch in (1, 32)],
    }
    del one
    seven = random_model("Qwen2.5-7B", {})
    found["7B"] = [measured(seven, kind, ceilings) for kind in (StepKind(1, 1024), StepKind(1, 4096, prefill=True))]
    return found


def drafts(_: Ceilings) -> dict[str, Any]:
    """Speculation on the enlarged target's shape."""
    return runs.speculation(random_model("enlarged target", {}), (0.6, 0.8, 1.0), 4, 96)


def same_ids(_: Ceilings) -> dict[str, Any]:
    """`parity` over a model in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return parity(Path(folder))


@torch.inference_mode()
def every_kernel(_: Ceilings) -> dict[str, Any]:
    """Each kernel against torch on this device, as far as the time goes: on a new machine most of it is compiling."""
    return kernel_checks(torch.device("cuda"), limit_s=KERNELS_LIMIT_S)


SECTIONS: tuple[tuple[str, Callable[[Ceilings], dict[str, Any]]], ...] = (
    ("parity in fp32", same_ids),
    ("Llama-3.1-8B", eight_billion),
    ("kernels", every_kernel),
    ("speculation", drafts),
    ("Llama-3.2-1B and Qwen2.5-7B", smaller),
    ("Llama-3.1-8B quantized", quantized_eight_billion),
)


def run_sections(ceilings: Ceilings, ends_s: float) -> dict[str, Any]:
    """Each section's result, its error, or that there was no time for it."""
    found: dict[str, Any] = {}
    for name, section in SECTIONS:
        began_s = time.perf_counter()
        if began_s > ends_s:
            found[name] = {"left_out": "no time was left"}
            continue
        try:
            found[name] = section(ceilings)
        except Exception:
            found[name] = {"error": traceback.format_exc()}
        found[name]["seconds"] = time.perf_counter() - began_s
        torch.cuda.empty_cache()
        print(f"gpu-check: {name}: {found[name]['seconds']:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Run the checks and print their figures."""
    parser = argparse.ArgumentParser(description="Correctness and speed of the engine on a CUDA device.")
    parser.add_argument("--json", type=Path, help="write the report here as well")
    parser.add_argument("--limit", type=float, default=450.0, help="seconds after which no section begins")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu-check: no CUDA device is usable here", file=sys.stderr)
        return 3
    ends_s = time.perf_counter() + arguments.limit
    device = torch.device("cuda")
    ceilings = Ceilings(copy_bytes_per_s(device), product_flops_per_s(device, torch.bfloat16))
    report = {
        "provenance": "measured",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ceilings": vars(ceilings),
        "sections": run_sections(ceilings, ends_s),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(text + "\n", "utf-8")
    return int(any("error" in part or not part.get("passed", True) for part in report["sections"].values()))


if __name__ == "__main__":
    sys.exit(main())
