"""`trilemma kv`: bytes of the KV cache from a config or typed numbers. Arithmetic only, no engine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.numbers import whole
from experiments.cli.options import Json, Plain
from experiments.cli.output import note, print_json
from ledger.errors import InputError


def kv(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="config.json, model directory, preset, or - for stdin.")
    ] = None,
    seq_len: Annotated[str | None, typer.Option("--seq-len", metavar="N", help="Tokens in a sequence.")] = None,
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="Sequences at once.")] = "1",
    kv_dtype: Annotated[
        str | None, typer.Option("--kv-dtype", metavar="TYPE", help="Format of an element; 2 bytes if not given.")
    ] = None,
    kv_group: Annotated[
        str | None,
        typer.Option(
            "--kv-group-size", metavar="N", help="Elements that share a scale; 64; 0 counts the payload only."
        ),
    ] = None,
    block_size: Annotated[
        str | None, typer.Option("--block-size", metavar="N", help="Round sequences up to blocks of N tokens.")
    ] = None,
    tp: Annotated[str, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks; the largest counts.")] = "1",
    pp: Annotated[str, typer.Option("--pp", metavar="N", help="Pipeline stages; the largest counts.")] = "1",
    layers: Annotated[str | None, typer.Option("--layers", metavar="N", help="Typed instead of CONFIG.")] = None,
    kv_heads: Annotated[str | None, typer.Option("--kv-heads", metavar="N", help="Typed instead of CONFIG.")] = None,
    head_dim: Annotated[str | None, typer.Option("--head-dim", metavar="N", help="Typed instead of CONFIG.")] = None,
    plain: Plain = False,
    as_json: Json = False,
) -> None:
    """Compute KV cache bytes a token, a sequence and in all."""
    from ledger.formats import element_format
    from ledger.kv_cache import kv_report

    # What was given is judged before what is missing.
    if seq_len is None and all(value is None for value in (config, layers, kv_heads, head_dim)):
        accepted = "a model (CONFIG, or --layers, --kv-heads and --head-dim) and its sequence length"
        raise InputError("CONFIG, --seq-len", "", accepted)
    spec = _spec(config, {"--layers": layers, "--kv-heads": kv_heads, "--head-dim": head_dim}, plain)
    element_format(kv_dtype, whole("--kv-group-size", kv_group))
    if seq_len is None:
        raise InputError("--seq-len", "", "a whole number of tokens from 1 up")
    report = kv_report(
        spec,
        whole("--seq-len", seq_len) or 0,
        whole("--concurrency", concurrency) or 0,
        kv_dtype,
        whole("--block-size", block_size),
        whole("--tp", tp) or 0,
        whole("--kv-group-size", kv_group),
        whole("--pp", pp) or 0,
    )
    for warning in report["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(report)
    else:
        _print(report)


def _spec(config: str | None, typed: dict[str, str | None], plain: bool) -> Any:
    from ledger.model_spec import ModelSpec, load_model_spec

    given = [name for name, value in typed.items() if value is not None]
    if config is not None:
        if given:
            raise InputError(given[0], typed[given[0]], "either CONFIG or typed fields, not both")
        return load_model_spec(config, plain_attention=plain)
    for name, value in typed.items():
        if value is None:
            missing = name if given else "CONFIG"
            raise InputError(missing, "", "CONFIG, or --layers, --kv-heads and --head-dim together")
    layers, kv_heads, head_dim = (whole(name, value) or 0 for name, value in typed.items())
    return ModelSpec.from_fields(layers=layers, kv_heads=kv_heads, head_dim=head_dim)


def _print(report: dict[str, Any]) -> None:
    from experiments.cli.tables import console, plain_table

    table = plain_table("KV cache", "bytes", "GB", "GiB")
    rows = {
        "a token": report["kv_bytes_per_token"],
        "a token, all attention layers in full": report["kv_bytes_per_token_all_layers"],
        f"a sequence of {report['seq_len']:,}": report["kv_bytes_per_sequence"],
        f"{report['concurrency']:,} sequence{'s' * (report['concurrency'] > 1)}": report["kv_bytes_total"],
        "recurrent state a sequence": report["state_bytes_per_sequence"],
    }
    for label, size in rows.items():
        table.add_row(label, f"{size:,}", f"{size / 1e9:,.3f}", f"{size / 1024**3:,.3f}")
    out = console()
    out.print(table)
    out.print(f"{report['formula']}  ({report['provenance']})", highlight=False)
