"""Where a workload comes from: a built-in name, a workload file, or a trace. Says so before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.workloads.builtin import WORKLOADS
from experiments.workloads.draw import check, draw
from experiments.workloads.file import SUFFIXES, identity, read_workload_file
from experiments.workloads.options import Options
from experiments.workloads.replay import replay
from experiments.workloads.spec import WorkloadSpec
from experiments.workloads.text import TokenizerLike
from experiments.workloads.trace_formats import FORMATS, detect
from experiments.workloads.workload import Workload
from ledger.errors import CannotRunError, InputError, unknown_name

TRACE = "trace:"
TRACE_SUFFIXES = (".csv", ".jsonl", ".json")
ACCEPTED = f"{', '.join(WORKLOADS)}, a file ({', '.join(SUFFIXES)}), or a trace ({', '.join(TRACE_SUFFIXES)})"


@dataclass(frozen=True)
class Trace:
    """A trace file and its format."""

    path: Path
    form: str


def find(name: str) -> WorkloadSpec | Trace:
    """What `name` stands for: a built-in workload, FILE.toml or .yaml, trace:FORMAT:PATH, or a trace's path.

    InputError for a name that is none of these or a file with a wrong content, CannotRunError for a file that is not
    there.
    """
    if name in WORKLOADS:
        return WORKLOADS[name]
    if name.startswith(TRACE):
        form, separator, where = name.removeprefix(TRACE).partition(":")
        if not separator or form not in FORMATS:
            raise InputError("workload", name, f"trace:FORMAT:PATH with FORMAT = {', '.join(FORMATS)}")
        return Trace(_there(Path(where)), form)
    path = Path(name)
    if path.suffix in SUFFIXES:
        return read_workload_file(_there(path))
    if path.suffix in TRACE_SUFFIXES:
        return Trace(_there(path), detect(path))
    raise unknown_name("workload", name, WORKLOADS, ACCEPTED)


def full_name(name: str) -> str:
    """`name` with a path in it made absolute, so that it means the same in another folder."""
    if name in WORKLOADS:
        return name
    if name.startswith(TRACE):
        head, form, path = name.split(":", 2)
        return f"{head}:{form}:{Path(path).resolve()}"
    return str(Path(name).resolve())


def short_name(name: str) -> str:
    """`name` without folders, for lists."""
    return name if name in WORKLOADS else Path(name.removeprefix(TRACE)).name


def check_options(name: str, options: Options) -> None:
    """InputError for an option that this workload can't follow, before anything is loaded."""
    source = find(name)
    if isinstance(source, WorkloadSpec):
        check(source, options)


def build(
    name: str,
    *,
    seed: int,
    tokenizer: TokenizerLike,
    num_requests: int | None = None,
    rate_rps: float | None = None,
    max_tokens_cap: int | None = None,
    max_prompt_tokens: int | None = None,
    concurrency: int | None = None,
    time_scale: float = 1.0,
    length_scale: float = 1.0,
) -> Workload:
    """Draws or replays workload `name` (see `find`), the same for the same seed and options on every machine.

    Options are those of options.Options; None keeps the workload's own. Raises InputError naming what is wrong, and
    CannotRunError for a file that is missing or a chat workload on a model without a template.
    """
    if seed < 0:
        raise InputError("seed", seed, "a whole number from 0")
    source = find(name)
    options = Options(
        num_requests=num_requests,
        rate_rps=rate_rps,
        max_tokens_cap=max_tokens_cap,
        max_prompt_tokens=max_prompt_tokens,
        concurrency=concurrency,
        time_scale=time_scale,
        length_scale=length_scale,
    )
    if isinstance(source, Trace):
        return replay(source.path, source.form, seed=seed, tokenizer=tokenizer, options=options)
    drawn = draw(source, seed=seed, tokenizer=tokenizer, options=options)
    if name in WORKLOADS:
        return drawn
    return replace(drawn, made=replace(drawn.made, file=identity(Path(name))))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise CannotRunError(f"workload: there is no file {path}")
    return path
