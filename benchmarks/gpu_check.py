"""`make gpu-check`: what must hold on a CUDA machine, with plain python3 and only what is installed there.

Makes a tiny random Llama with transformers, compares greedy token ids of the engine on CUDA in fp32 with transformers
on the CPU, then times decode of a larger random model in bf16. Prints one JSON object; exit code 3 without CUDA, 1 on a
mismatch. Random weights, so the texts mean nothing; the ids must agree all the same.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model
from core_engine.request import SamplingParams

PROMPT_LENGTHS = (1, 2, 15, 16, 17, 40, 63, 64, 65, 120, 200, 300)
NEW_TOKENS = 16
# Each must give the same ids; the small budget cuts prompts into chunks.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
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
        directory, vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=2, initializer_range=0.3, tie_word_embeddings=True,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, 256, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    loaded = load_model(EngineConfig.from_settings({"model": str(directory), "device": "cuda", "dtype": "fp32"}))
    expected = [reference_ids(model, prompt) for prompt in prompts]
    found = []
    for settings in SETTINGS:
        engine = Engine(EngineConfig.from_settings({"max_num_seqs": 5, **settings}), loaded)
        for attempt in ("cold", "with the prefixes of the first"):
            answers = engine.generate(prompts, SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True))
            equal = sum(answer.token_ids == ids for answer, ids in zip(answers, expected, strict=True))
            found.append({"settings": settings, "attempt": attempt, "equal": equal})
    return {"prompts": len(prompts), "runs": found, "passed": all(run["equal"] == len(prompts) for run in found)}


@torch.inference_mode()
def reference_ids(model: Any, prompt: list[int]) -> list[int]:
    """Greedy by one full forward pass a token."""
    ids = list(prompt)
    for _ in range(NEW_TOKENS):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def speed(directory: Path, batch: int) -> dict[str, Any]:
    """Median decode step of `batch` sequences, bf16, a random model of SmolLM2-135M's shape; after 20 warm-up steps."""
    loaded = _speed_model(directory)
    config = EngineConfig.from_settings({"max_num_seqs": batch, "max_num_batched_tokens": 4096, "kv_memory_mib": 2048})
    engine = Engine(config, loaded)
    for index in range(batch):
        engine.add([3 + index % 200] * 64, SamplingParams(max_tokens=200, ignore_eos=True))
    while engine.has_unfinished():
        engine.step()
    decode = [step for step in engine.trace.steps if not step["prefill_tokens"]][20:]
    step_s = statistics.median(step["commit_end_ns"] - step["plan_start_ns"] for step in decode) / 1e9
    return {
        "batch": batch,
        "prompt_tokens": 64,
        "output_tokens": 200,
        "decode_step_ms": step_s * 1e3,
        "output_tokens_per_s": batch / step_s,
    }


def _speed_model(directory: Path) -> LoadedModel:
    if not (directory / "config.json").is_file():
        random_llama(
            directory, vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
        )  # fmt: skip
    return load_model(EngineConfig.from_settings({"model": str(directory), "device": "cuda", "dtype": "bf16"}))


def main() -> int:
    """Run the checks and print their figures."""
    if not torch.cuda.is_available():
        print("gpu-check: no CUDA device is usable here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny").mkdir()
        (Path(folder) / "speed").mkdir()
        report = {
            "provenance": "measured",
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "parity_fp32": parity(Path(folder) / "tiny"),
            "speed_bf16": [speed(Path(folder) / "speed", batch) for batch in (1, 8, 64)],
        }
    print(json.dumps(report, indent=1))
    return 0 if report["parity_fp32"]["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
