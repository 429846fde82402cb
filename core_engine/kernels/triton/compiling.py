"""Compile kernels for an architecture without a GPU: registers, spilled bytes and shared memory of each main shape.

`python -m core_engine.kernels.triton.compiling [--module NAME]... [--capability N]...` compiles the main shapes of the
modules in MODULES, prints one JSON object, and exits with 1 when a shape fails or spills a register. Such a module
has a function

    def MAIN_SHAPES() -> list[MainShape]

with the specialisations that its launches use most, as launched: signature, constants, warps and stages. Triton's
interpreter and its compiler exclude each other: TRITON_INTERPRET must not be set here (exit code 2).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

MODULES = ("attention", "kv_write", "pointwise", "w8a8", "w4a16", "sampling")
CAPABILITIES = (80, 89, 90, 100)
WARP_SIZE = 32


@dataclass(frozen=True)
class MainShape:
    """A specialisation of a kernel.

    signature: type of every argument in order, "*bf16", "fp32", "i32"; pointers, and integers written "i32:16", are
    multiples of 16, as torch's allocator and the launcher make them; what is not a constant of `constants` must be
    there. constants: every constexpr argument, and None for an argument that is left out. capabilities: the
    architectures it is launched on, where launches differ by architecture.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    capabilities: tuple[int, ...] = CAPABILITIES


@dataclass(frozen=True)
class Compiled:
    """What the assembler says of a kernel: registers of a thread; bytes spilled to and read back from local memory
    by a thread; shared memory of a program, static and dynamic."""

    name: str
    capability: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    cubin_bytes: int


def compiled(shape: MainShape, capability: int) -> Compiled:
    """Compile for sm_<capability>. ValueError where an argument has no type; whatever Triton raises on bad code."""
    signature, attributes = _typed(shape)
    source = ASTSource(shape.kernel, signature, dict(shape.constants), attributes)
    options = {"num_warps": shape.num_warps, "num_stages": shape.num_stages}
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, WARP_SIZE), options=options)
    registers, spilled = _registers(kernel.asm["ptx"], capability)
    return Compiled(shape.name, capability, registers, spilled, kernel.metadata.shared, len(kernel.asm["cubin"]))


def _typed(shape: MainShape) -> tuple[dict[str, str], dict[tuple[int], list[list[Any]]]]:
    """Signature over all arguments, and which of them are multiples of 16."""
    signature, attributes = {}, {}
    for place, name in enumerate(shape.kernel.arg_names):
        if name in shape.constants:
            signature[name] = "constexpr"
            continue
        if name not in shape.signature:
            raise ValueError(f"{shape.name}: argument {name} has no type and no constant")
        kind, _, multiple = shape.signature[name].partition(":")
        signature[name] = kind
        if multiple or kind.startswith("*"):
            attributes[(place,)] = [["tt.divisibility", 16]]
    return signature, attributes


def _registers(ptx: str, capability: int) -> tuple[int, int]:
    """(registers, spilled bytes) of a thread, by the assembler that Triton itself uses."""
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        command = [_assembler(capability), "-v", f"--gpu-name={target[1]}", str(path), "-o", f"{path}.cubin"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    spilled = [int(number) for number in re.findall(r"(\d+) bytes spill (?:stores|loads)", said)]
    return max(registers), sum(spilled)


def _assembler(capability: int) -> str:
    tool = knobs.nvidia.ptxas_blackwell if capability >= 100 else knobs.nvidia.ptxas
    return str(tool.path)


@cache
def why_not(capability: int) -> str | None:
    """None where the installed Triton can compile for the architecture, else why it can't."""
    try:
        listed = subprocess.run([_assembler(capability), "--help"], check=True, capture_output=True, text=True).stdout
    except (OSError, RuntimeError, AttributeError) as error:
        return f"triton {triton.__version__} has no assembler for it: {error}"
    if f"sm_{capability}" not in listed:
        return f"the assembler of triton {triton.__version__} does not know it"
    return None


def main_shapes(modules: tuple[str, ...] = MODULES) -> Iterator[MainShape]:
    """The main shapes of all of these modules."""
    for module in modules:
        yield from importlib.import_module(f"core_engine.kernels.triton.{module}").MAIN_SHAPES()


def survey(modules: tuple[str, ...] = MODULES, capabilities: tuple[int, ...] = CAPABILITIES) -> dict[str, Any]:
    """Every main shape on every architecture: {"triton", "skipped": {architecture: why}, "shapes": [Compiled as a
    dict, or {"name", "capability", "error"}], "ok": none failed, none spills}."""
    skipped = {f"sm_{number}": why for number in capabilities if (why := why_not(number)) is not None}
    shapes: list[dict[str, Any]] = []
    for shape in main_shapes(modules):
        for capability in capabilities:
            if f"sm_{capability}" in skipped or capability not in shape.capabilities:
                continue
            try:
                shapes.append(asdict(compiled(shape, capability)))
            except Exception as error:  # one kernel that can't be compiled is a finding, not the end of the survey
                shapes.append({"name": shape.name, "capability": capability, "error": _root(error)})
    ok = all("error" not in shape and not shape["spill_bytes"] for shape in shapes)
    return {"triton": triton.__version__, "skipped": skipped, "shapes": shapes, "ok": ok}


def _root(error: BaseException) -> str:
    """What went wrong at the bottom, one line: the errors above it each quote the code that called the next."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split()) or type(error).__name__


def main() -> int:
    """Print the survey. 0: all is well; 1: a shape fails or spills; 2: run under the interpreter."""
    parser = argparse.ArgumentParser(description="Compile every kernel on its main shapes, without a GPU.")
    parser.add_argument("--module", action="append", choices=MODULES)
    parser.add_argument("--capability", action="append", type=int)
    wanted = parser.parse_args()
    if knobs.runtime.interpret:
        print("TRITON_INTERPRET is set: unset it, the interpreter compiles nothing", file=sys.stderr)
        return 2
    found = survey(tuple(wanted.module or MODULES), tuple(wanted.capability or CAPABILITIES))
    print(json.dumps(found, indent=1))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
