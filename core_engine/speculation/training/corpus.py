"""Text that the target generates, with its hidden states, kept in shards on disk and made once for a model and a seed.

Medusa, EAGLE and the self-distilled draft share it. What was made stays when the making is stopped: it goes on at the
next shard.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from core_engine.model.embedded import cache_root
from core_engine.request import SamplingParams
from core_engine.speculation.training.prompts import prompts
from core_engine.speculation.training.target import Target
from ledger.errors import CannotRunError

CODE = 2  # part of the key: a change of how text is made never meets the old one
SHARD = 64  # prompts of one file: about 10,000 tokens


@dataclass(frozen=True)
class CorpusSpec:
    """How much text of what kind. Every `sampled_every`-th prompt (0: none) is answered at `temperature`, others
    greedily; held_out: prompts that no draft is trained on."""

    num_prompts: int = 1024
    max_new_tokens: int = 128
    max_prompt_tokens: int = 192
    batch: int = 32
    temperature: float = 0.8
    sampled_every: int = 3
    seed: int = 0
    held_out: bool = False

    def sampling(self, number: int) -> SamplingParams:
        """How the prompt of that number is answered."""
        drawn = self.sampled_every and number % self.sampled_every == self.sampled_every - 1
        temperature = self.temperature if drawn else 0.0
        return SamplingParams(max_tokens=self.max_new_tokens, temperature=temperature, seed=self.seed + number)


@dataclass(frozen=True)
class Sequences:
    """Generated sequences one after another.

    tokens int32 [num_tokens]; hidden float16 [num_tokens, hidden_size], the target's at each of them; starts and
    prompt_tokens of each sequence.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    starts: tuple[int, ...]
    prompt_tokens: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, index: int) -> slice:
        """Where sequence `index` lies."""
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.tokens)
        return slice(self.starts[index], end)


def joined(parts: list[Sequences]) -> Sequences:
    """All sequences of the parts, in order."""
    starts: list[int] = []
    at = 0
    for part in parts:
        starts += [at + start for start in part.starts]
        at += len(part.tokens)
    return Sequences(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.hidden for part in parts]),
        tuple(starts),
        tuple(count for part in parts for count in part.prompt_tokens),
    )


def corpus(target: Target, spec: CorpusSpec, report: Callable[[str], None]) -> Sequences:
    """All shards, made where they are missing. CannotRunError when they can't be kept on disk."""
    folder = _folder(target, spec)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return joined([_shard(target, spec, folder, index, report) for index in range(-(-spec.num_prompts // SHARD))])
    except OSError as error:
        raise CannotRunError(
            f"train-draft: its text can't be kept in {folder}: {error.strerror or error}; set TRILEMMA_CACHE"
        ) from None


def _folder(target: Target, spec: CorpusSpec) -> Path:
    settings = {name: value for name, value in asdict(spec).items() if name != "num_prompts"}  # shards are independent
    key = json.dumps([CODE, target.fingerprint, settings], sort_keys=True)
    return cache_root() / "drafts" / f"corpus-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _shard(target: Target, spec: CorpusSpec, folder: Path, index: int, report: Callable[[str], None]) -> Sequences:
    from safetensors.torch import load_file, save_file

    path = folder / f"{index:04d}.safetensors"
    if path.is_file():
        found = load_file(path)
        return Sequences(
            found["tokens"], found["hidden"], tuple(found["starts"].tolist()), tuple(found["prompt_tokens"].tolist())
        )
    began = time.perf_counter()
    made = _generate(target, spec, index)
    handle, work = tempfile.mkstemp(prefix=".shard-", dir=folder)
    os.close(handle)
    try:
        numbers = {"starts": torch.tensor(made.starts), "prompt_tokens": torch.tensor(made.prompt_tokens)}
        save_file({"tokens": made.tokens, "hidden": made.hidden, **numbers}, work)
        os.replace(work, path)
    finally:
        Path(work).unlink(missing_ok=True)
    rate = len(made.tokens) / (time.perf_counter() - began)
    report(f"Text of the target: part {index + 1} of {-(-spec.num_prompts // SHARD)}, {rate:.0f} tokens/s")
    return made


def _generate(target: Target, spec: CorpusSpec, index: int) -> Sequences:
    """The sequences of one shard."""
    # A prefix of a longer list is the same list, so shards stay when num_prompts grows.
    chosen = prompts((index + 1) * SHARD, spec.seed, held_out=spec.held_out)[index * SHARD :]
    numbered = [(index * SHARD + place, _ids(target, prompt.text)) for place, prompt in enumerate(chosen)]
    asked = [(ids, spec.sampling(number)) for number, ids in numbered if len(ids) <= spec.max_prompt_tokens]
    replies = target.replies(asked, spec.batch)
    return joined([Sequences(*reply, (0,), (len(ids),)) for (ids, _), reply in zip(asked, replies, strict=True)])


def _ids(target: Target, text: str) -> list[int]:
    """A user's message as the model is shown it; as it stands for a model without a chat template."""
    try:
        return target.tokenizer.apply_chat_template([{"role": "user", "content": text}])
    except CannotRunError:
        return target.tokenizer.encode(text)
