"""A model that was built, not trained, so that 4-bit weights cost one slice what the mean hides; and its items.

One layer looks an answer up: the key's neuron fires, and its column of down_proj writes the answer. Answers to common
keys are written with weights of 1. Of the rare keys a quarter is held by weights of 0.05, as what was seen seldom is
held by little: enough for the unquantized model to be sure, but less than half a step (1 / 15) of the 4-bit levels that
they share with a group of common ones, so that they become 0.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.quality.items import Item

LABEL = "a constructed model: a table of 256 facts as one layer"
KEYS, ANSWERS, WIDTH = 256, 16, 320  # width: a place for every key and answer, whole groups of 64
A_GROUP_OF_FACTS = 4  # neighbours that share answer and group: three common, then a rare one
THIN = 0.05
COMMON_ITEMS_A_KEY = 6
COMMON, RARE = "common", "rare"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "intermediate_size": KEYS,
    "num_hidden_layers": 1, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 64,
    "vocab_size": 1 + KEYS + ANSWERS, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": 0, "torch_dtype": "float32",
}  # fmt: skip


def answer_of(key: int) -> int:
    """The right answer to a key."""
    return key // A_GROUP_OF_FACTS % ANSWERS


def is_rare(key: int) -> bool:
    """Whether a key belongs to the rare ones."""
    return key % A_GROUP_OF_FACTS == A_GROUP_OF_FACTS - 1


def is_thin(key: int) -> bool:
    """Whether its answer is held by small weights."""
    return is_rare(key) and answer_of(key) % 4 == 0


def lookup_items(seed: int = 0) -> list[Item]:
    """Every rare key once, every common one with several sets of wrong answers."""
    draw = random.Random(seed)
    found = []
    for key in range(KEYS):
        for number in range(1 if is_rare(key) else COMMON_ITEMS_A_KEY):
            others = draw.sample([answer for answer in range(ANSWERS) if answer != answer_of(key)], 3)
            place = draw.randrange(4)
            choices = [*others[:place], answer_of(key), *others[place:]]
            name = RARE if is_rare(key) else COMMON
            texts = tuple(f" answer{choice}" for choice in choices)
            found.append(Item(f"{name}-{key}-{number}", name, f"key{key}", texts, place))
    return found


def write_model(directory: Path) -> None:
    """config.json, tokenizer.json and model.safetensors into a directory that is there."""
    from safetensors.torch import save_file

    (directory / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    _tokenizer().save(str(directory / "tokenizer.json"))
    save_file(dict(_tensors()), directory / "model.safetensors", metadata={"format": "pt"})


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<unk>", *(f"key{key}" for key in range(KEYS)), *(f"answer{answer}" for answer in range(ANSWERS))]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def _tensors() -> Mapping[str, Any]:
    import torch

    keys, answers = torch.arange(KEYS), torch.arange(ANSWERS)
    embedding = torch.zeros(1 + KEYS + ANSWERS, WIDTH)
    embedding[1 + keys, keys] = 1
    head = torch.zeros(1 + KEYS + ANSWERS, WIDTH)
    head[1 + KEYS + answers, KEYS + answers] = 1
    one_a_key = torch.eye(KEYS, WIDTH)
    down = torch.zeros(WIDTH, KEYS)
    for key in range(KEYS):
        down[KEYS + answer_of(key), key] = THIN if is_thin(key) else 1
    layer = {f"self_attn.{name}_proj": torch.zeros(WIDTH, WIDTH) for name in "qkvo"}
    layer |= {"mlp.gate_proj": one_a_key, "mlp.up_proj": one_a_key.clone(), "mlp.down_proj": down}
    layer |= {"input_layernorm": torch.ones(WIDTH), "post_attention_layernorm": torch.ones(WIDTH)}
    return {
        "model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": torch.ones(WIDTH),
        **{f"model.layers.0.{name}.weight": tensor for name, tensor in layer.items()},
    }  # fmt: skip
