"""The training loop: AdamW with warm-up and a cosine to zero, checkpoints, and going on from one to the very same bits.

A step depends on the parameters, the optimizer's state and the step's number alone: whatever is random is drawn from
(seed, step). So a run that was killed and resumed ends with the weights of one that was not.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from ledger.errors import CannotRunError, InputError

CHECKPOINT_EVERY_S = 60.0
NETWORK, OPTIMIZER = "network.", "optimizer."  # before the names of a checkpoint's tensors
LARGEST_NORM = 1.0  # of a step's gradient


@dataclass(frozen=True)
class Schedule:
    """Steps, the highest learning rate, and the share of the steps in which it is reached."""

    steps: int
    learning_rate: float
    warm_up: float = 0.04
    weight_decay: float = 0.01

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warm = max(1, round(self.steps * self.warm_up))
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, self.steps - warm)))


@dataclass(frozen=True)
class Trained:
    """What a finished training took: seconds of it (before an interruption too) and the mean loss of its last steps."""

    steps: int
    seconds: float
    loss: float


class Loop:
    """One training. `key` says what is being trained: a checkpoint of another one is refused."""

    def __init__(self, network: nn.Module, schedule: Schedule, checkpoint: Path, key: str) -> None:
        self._network, self._schedule, self._checkpoint, self._key = network, schedule, checkpoint, key
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=schedule.weight_decay, fused=True
        )
        self._step, self._seconds = 0, 0.0
        self._recent: list[float] = []

    def resume(self) -> int:
        """Take up the checkpoint and return its step, 0 when there is none; InputError for one of another training."""
        if not self._checkpoint.is_file():
            return 0
        try:
            with safe_open(self._checkpoint, framework="pt") as file:
                about = json.loads((file.metadata() or {})["trilemma"])
                same = about["key"] == self._key
                if same:
                    self._take({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 - not a dict
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, SafetensorError) as error:
            whole = f"a whole checkpoint ({type(error).__name__}); --fresh begins anew"
            raise InputError("checkpoint", str(self._checkpoint), whole) from None
        if not same:
            raise InputError("checkpoint", str(self._checkpoint), "one of the same recipe, model, text and seed")
        self._step, self._seconds, self._recent = about["step"], about["seconds"], about["recent"]
        return self._step

    def _take(self, tensors: dict[str, torch.Tensor]) -> None:
        """The network and the optimizer's state from tensors named NETWORK + name, OPTIMIZER + number + . + name."""
        network: dict[str, torch.Tensor] = {}
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith(NETWORK):
                network[name.removeprefix(NETWORK)] = tensor
            else:
                number, _, key = name.removeprefix(OPTIMIZER).partition(".")
                state.setdefault(int(number), {})[key] = tensor
        self._network.load_state_dict(network)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})

    def run(
        self, loss_of: Callable[[int], torch.Tensor], report: Callable[[str], None], stop_after: int | None = None
    ) -> Trained:
        """All steps that are left, or those up to `stop_after`. loss_of(step) gives the loss of a step."""
        last = self._schedule.steps if stop_after is None else min(stop_after, self._schedule.steps)
        saved_s = told_s = time.perf_counter()
        while self._step < last:
            began_s = time.perf_counter()
            self._one(loss_of)
            now_s = time.perf_counter()
            self._seconds += now_s - began_s
            if now_s - saved_s > CHECKPOINT_EVERY_S or self._step == last:
                self._save()
                saved_s = now_s
            if now_s - told_s > 10 or self._step in (1, last):
                report(self._progress())
                told_s = now_s
        return Trained(self._step, self._seconds, self._loss())

    def _one(self, loss_of: Callable[[int], torch.Tensor]) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.rate(self._step)
        self._optimizer.zero_grad(set_to_none=True)
        loss = loss_of(self._step)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, LARGEST_NORM)
        self._optimizer.step()
        self._step += 1
        self._recent = [*self._recent[-49:], float(loss.detach())]

    def _loss(self) -> float:
        return sum(self._recent) / max(1, len(self._recent))

    def _progress(self) -> str:
        left = self._seconds / self._step * (self._schedule.steps - self._step)
        return f"Step {self._step} of {self._schedule.steps}, loss {self._loss():.3f}, {left:.0f} s left"

    def _save(self) -> None:
        """Beside its place and renamed: a kill at any moment leaves a whole checkpoint."""
        about = {"key": self._key, "step": self._step, "seconds": self._seconds, "recent": self._recent}
        states = self._optimizer.state_dict()["state"]
        tensors = {
            **{f"{NETWORK}{name}": tensor for name, tensor in self._network.state_dict().items()},
            **{f"{OPTIMIZER}{number}.{key}": value for number, state in states.items() for key, value in state.items()},
        }
        separate = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}  # none is shared
        work = self._checkpoint.with_suffix(".part")
        try:
            self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
            save_file(separate, work, metadata={"trilemma": json.dumps(about)})
            os.replace(work, self._checkpoint)
        except OSError as error:
            raise CannotRunError(
                f"train-draft: {self._checkpoint} can't be written: {error.strerror or error}"
            ) from None


def key_of(**settings: Any) -> str:
    """One line that tells trainings apart."""
    return json.dumps(settings, sort_keys=True)
