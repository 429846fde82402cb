"""Which kernels compute a model's steps and why: asked once when it is loaded, told by environment, page, command line.

Owns the rule between `kernels`, the device, the number format and what compiled code can do here. Knows no weights.
torch is imported only where a device or a number format is looked at: the page asks what to expect without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_engine.config import EngineConfig
from core_engine.environment import cpu_flags, cuda_is_here
from core_engine.kernels.cpu.native import compiler, library, library_path, width_flags
from core_engine.kernels.triton.available import is_interpreted, missing_here
from ledger.errors import CannotRunError

if TYPE_CHECKING:
    import torch

AUTO, COMPILED, TRITON, TORCH = "auto", "compiled", "triton", "torch"
FLOAT_BITS = 32


@dataclass(frozen=True)
class KernelChoice:
    """kernels: "compiled" (a CPU's), "triton" (a GPU's) or "torch"; kernels_reason: why these.

    vector_bits and instructions: what compiled code was built for, None with torch or before it is built. bf16_pairs:
    whether it multiplies pairs of bf16, rounding activations to bf16 as well.
    """

    kernels: str
    kernels_reason: str
    vector_bits: int | None = None
    instructions: str | None = None
    bf16_pairs: bool = False

    def refuse_what_needs_compiled(self, config: EngineConfig) -> None:
        """CannotRunError naming every setting that only kernels of our own have, when these are torch's."""
        if self.kernels != TORCH:
            return
        asked = {
            f"kernels={config.kernels}": config.kernels in (COMPILED, TRITON),
            f"graph={config.graph}": config.graph == "on",
            f"kv_splits={config.kv_splits}": config.kv_splits != "auto",
        }
        needing = [setting for setting, needs in asked.items() if needs]
        if needing:
            raise CannotRunError(f"{', '.join(needing)}: kernels of our own can't run here: {self.kernels_reason}")


def choose_kernels(
    config: EngineConfig,
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    report: Callable[[str], None] = lambda _: None,
) -> KernelChoice:
    """Kernels of our own where `kernels` allows them and they can run here, else torch's operators.

    Compiled code on a CPU (built if it has to be), Triton's on CUDA. `report` gets a line before a build, and one when
    auto comes to torch. CannotRunError when a setting needs kernels of our own and they can't run, with the reason.
    """
    if config.kernels == TORCH:
        choice = KernelChoice(TORCH, "kernels=torch")
    elif config.kernels == TRITON or (config.kernels == AUTO and device.type == "cuda"):
        choice = _triton_for(device, dtype, head_dim)
    elif device.type != "cpu":
        choice = KernelChoice(TORCH, f"compiled kernels are for a CPU, not for {device.type}")
    else:
        choice = _compiled_for(dtype, head_dim, report)
    choice.refuse_what_needs_compiled(config)
    if config.kernels == AUTO and choice.kernels == TORCH:
        report(f"Kernels: torch's operators, since {choice.kernels_reason}")
    return choice


def compiled_here() -> KernelChoice:
    """Compiled kernels as they are on this machine, built when they are not there yet; torch's, with the reason, when
    they can't be had."""
    try:
        bits, pairs = int(library().trilemma_vector()) * FLOAT_BITS, bool(library().trilemma_pairs())
    except OSError as error:
        return KernelChoice(TORCH, str(error))
    return KernelChoice(COMPILED, "built for this processor", bits, _instructions(bits), pairs)


def expected_here() -> KernelChoice:
    """As compiled_here, without building: a library that is still to be built has no vector_bits yet."""
    try:
        if library_path(compiler(), width_flags()).is_file():
            return compiled_here()
    except OSError as error:
        return KernelChoice(TORCH, str(error))
    return KernelChoice(COMPILED, "built at the first run")


def _triton_for(device: torch.device, dtype: torch.dtype, head_dim: int) -> KernelChoice:
    import torch

    from core_engine.kv.format import MOST_HEAD_DIM

    interpreted = is_interpreted()
    if device.type != "cuda" and not interpreted:
        return KernelChoice(TORCH, "Triton's kernels need a CUDA device")
    if (missing := missing_here()) is not None:
        return KernelChoice(TORCH, missing)
    if head_dim > MOST_HEAD_DIM or head_dim % 16:
        sizes = f"a multiple of 16, at most {MOST_HEAD_DIM}"
        return KernelChoice(TORCH, f"the head size is {head_dim}, Triton's kernels need {sizes}")
    if interpreted and dtype is torch.bfloat16:
        return KernelChoice(TORCH, "Triton's interpreter gets products of bf16 wrong")
    return KernelChoice(TRITON, "Triton's interpreter" if interpreted else "built for this device")


def expected_with_auto() -> KernelChoice:
    """What device=auto and kernels=auto come to on this machine, without building anything."""
    if not cuda_is_here():
        return expected_here()
    missing = missing_here()
    return KernelChoice(TRITON, "built for this device") if missing is None else KernelChoice(TORCH, missing)


def _compiled_for(dtype: torch.dtype, head_dim: int, report: Callable[[str], None]) -> KernelChoice:
    import torch

    if dtype not in (torch.float32, torch.bfloat16):
        return KernelChoice(TORCH, f"there are no compiled kernels for {dtype}")
    found = expected_here()
    if found.kernels == COMPILED and found.vector_bits is None:
        report("Compiling the kernels once for this processor (about 15 s)")
        found = compiled_here()
    lanes = (found.vector_bits or FLOAT_BITS) // FLOAT_BITS
    if head_dim % lanes:
        return KernelChoice(TORCH, f"the head size {head_dim} is no multiple of {lanes}, as compiled kernels need")
    return found


def _instructions(bits: int) -> str:
    """The instruction set whose vectors are that wide on this processor."""
    if bits == 512:
        return "AVX-512"
    if bits == 256:
        return "AVX2"
    return "NEON" if cpu_flags() & {"asimd", "neon"} else "SSE"
