"""Kernels compile for each architecture without a GPU and spill no register. The interpreter is on in this process, so
that a process of its own compiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

compiling = pytest.importorskip("core_engine.kernels.triton.compiling", reason="triton is not installed")
MODULE = "core_engine.kernels.triton.compiling"

# A kernel that spills: a program with more numbers in use than registers. Its own module, since source is read back.
SPILLING = """
import triton
import triton.language as tl
from core_engine.kernels.triton.compiling import MainShape, compiled

@triton.jit
def kernel(x, y, SIZE: tl.constexpr, count):
    place = tl.arange(0, SIZE)
    first, second = tl.load(x + place), tl.load(x + SIZE + place)
    for _ in range(count):
        first, second = first * second + 1, second * first + 2
    tl.store(y + place, first + second)

shape = MainShape("many", kernel, {"x": "*fp32", "y": "*fp32", "count": "i32"}, {"SIZE": 8192}, num_warps=1)
print(compiled(shape, 90).spill_bytes)
few = MainShape("few", kernel, {"x": "*fp32", "y": "*fp32", "count": "i32:16"}, {"SIZE": 128}, num_warps=4)
found = compiled(few, 80)
print(found.spill_bytes, 0 < found.registers < 64, found.shared_bytes, found.cubin_bytes > 1000, found.capability)
try:
    compiled(MainShape("untyped", kernel, {"x": "*fp32"}, {"SIZE": 128}), 90)
except ValueError as error:
    print(error)
"""


def without_interpreter(*command):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)


def test_registers_and_spills_are_read(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(SPILLING)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    del environment["TRITON_INTERPRET"]
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment)
    spilled, few, refused = ran.stdout.splitlines()
    assert int(spilled) > 0
    assert few == "0 True 0 True 80"
    assert refused == "untyped: argument y has no type and no constant"


def test_the_survey_is_one_object_and_names_what_it_skips():
    ran = without_interpreter("-m", MODULE, "--module", "kv_write", "--capability", "90", "--capability", "777")
    found = json.loads(ran.stdout)
    assert ran.returncode == 0, [shape for shape in found["shapes"] if shape.get("spill_bytes", 1)]
    assert found["ok"]
    assert list(found["skipped"]) == ["sm_777"]
    assert {shape["capability"] for shape in found["shapes"]} == {90}


def test_the_interpreter_is_refused():
    ran = subprocess.run([sys.executable, "-m", MODULE], capture_output=True, text=True)
    assert ran.returncode == 2
    assert "TRITON_INTERPRET" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("capability", compiling.CAPABILITIES)
@pytest.mark.parametrize("module", compiling.MODULES)
def test_no_main_shape_spills(module, capability):
    ran = without_interpreter("-m", MODULE, "--module", module, "--capability", str(capability))
    found = json.loads(ran.stdout)
    assert ran.returncode == 0, [shape for shape in found["shapes"] if shape.get("spill_bytes", 1)]
