"""`trilemma ledger`: does a model fit on a card, with how many sequences of which length. Arithmetic only."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import Gpu, Json, Plain
from experiments.cli.output import note, print_json
from ledger.errors import InputError

LENGTHS = tuple(1024 * n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))
CONCURRENCIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


def ledger(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="config.json, model directory, preset, or - for stdin.")
    ],
    gpu: Gpu = None,
    seq_len: Annotated[str, typer.Option("--seq-len", metavar="N", help="Tokens in a sequence.")] = "4096",
    concurrency: Annotated[str, typer.Option("--concurrency", metavar="N", help="Sequences at once.")] = "1",
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", metavar="TYPE", help="Format of KV elements.")] = "bf16",
    kv_group: Annotated[
        str | None,
        typer.Option("--kv-group-size", metavar="N", help="Elements that share a scale, 64; 0: payload only."),
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", metavar="FORMAT", help="Format of the weights; as-stored follows the config.")
    ] = "as-stored",
    tp: Annotated[str, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks; the largest counts.")] = "1",
    pp: Annotated[str, typer.Option("--pp", metavar="N", help="Pipeline stages; the fullest counts.")] = "1",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="vllm, sglang, tensorrt-llm, llama.cpp or trilemma.")
    ] = "vllm",
    fraction: Annotated[
        str | None, typer.Option("--memory-fraction", metavar="F", help="Instead of the engine's default.")
    ] = None,
    key_axis: Annotated[
        str, typer.Option("--kv-key-axis", metavar="AXIS", help="channel or token: of int4 and int2 in our own engine.")
    ] = "channel",
    protect: Annotated[
        str, typer.Option("--kv-protect", metavar="WHAT", help="none, sinks or outliers: likewise.")
    ] = "none",
    block_size: Annotated[str, typer.Option("--block-size", metavar="N", help="Tokens of a KV page.")] = "16",
    batched: Annotated[
        str, typer.Option("--max-num-batched-tokens", metavar="N", help="Tokens of the largest step.")
    ] = "8192",
    max_num_seqs: Annotated[
        str | None, typer.Option("--max-num-seqs", metavar="N", help="Instead of the engine's default.")
    ] = None,
    capacity_bytes: Annotated[
        str | None, typer.Option("--capacity-bytes", metavar="N", help="Memory of a card instead of --gpu.")
    ] = None,
    capacity_gib: Annotated[
        str | None, typer.Option("--capacity-gib", metavar="X", help="The same in GiB (2^30 bytes).")
    ] = None,
    measured_bytes: Annotated[
        str | None,
        typer.Option("--measured-bytes", metavar="N", help="What was really held, to show what is unexplained."),
    ] = None,
    plain: Plain = False,
    surface: Annotated[bool, typer.Option("--surface", help="Also context x concurrency by KV format.")] = False,
    as_json: Json = False,
) -> None:
    """Predict the memory of a deployment, account by account, and what fits."""
    from ledger.capacity import Deployment, ledger_report
    from ledger.capacity import surface as points_of
    from ledger.model_spec import load_model_spec

    spec = load_model_spec(config, plain_attention=plain)
    device, card, capacity = _capacity(gpu, capacity_bytes, capacity_gib)
    deployment = Deployment(
        spec,
        weights=weights,
        kv_dtype=kv_dtype,
        kv_group_size=whole("--kv-group-size", kv_group),
        kv_key_axis=key_axis,
        kv_protect=protect,
        seq_len=_given("--seq-len", seq_len),
        concurrency=_given("--concurrency", concurrency),
        tp=_given("--tp", tp),
        pp=_given("--pp", pp),
        block_size=_given("--block-size", block_size),
        max_num_batched_tokens=_given("--max-num-batched-tokens", batched),
        engine=engine,
        memory_fraction=None if fraction is None else number("--memory-fraction", fraction),
        capacity_bytes=capacity,
        max_num_seqs=whole("--max-num-seqs", max_num_seqs),
        device=device,
        card=card,
    )
    report = ledger_report(deployment, whole("--measured-bytes", measured_bytes)) | {"gpu": gpu}
    points = points_of(deployment, LENGTHS, CONCURRENCIES) if surface else []
    for warning in report["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        print_json(report | ({"surface": [point.__dict__ for point in points]} if surface else {}))
        return
    _print(report)
    if surface:
        _print_surface(points)


def _given(option: str, text: str) -> int:
    return whole(option, text) or 0


def _capacity(gpu: str | None, capacity_bytes: str | None, capacity_gib: str | None) -> tuple[str, str, int | None]:
    """(device, name of the card or "", bytes of one card): from the option that is given, at most one."""
    given = {"--gpu": gpu, "--capacity-bytes": capacity_bytes, "--capacity-gib": capacity_gib}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(named[1], given[named[1]], f"one of {', '.join(given)}")
    if gpu is not None:
        from experiments.calibrate import find_accelerator

        card = find_accelerator(gpu)
        return "cpu" if card.memory_source == "system" else "cuda", card.name, card.memory_bytes
    if capacity_gib is not None:
        return "cuda", "", round(number("--capacity-gib", capacity_gib) * 2**30)
    return "cuda", "", whole("--capacity-bytes", capacity_bytes)


def _print(report: dict[str, Any]) -> None:
    from experiments.cli.tables import console, plain_table

    ranks = report["tp"] * report["pp"]
    table = plain_table("account" if ranks == 1 else f"account, fullest of {ranks} ranks", "GB", "GiB", "")
    for account in report["accounts"]:
        table.add_row(account["name"].replace("_", " "), *_sizes(account["bytes"]), account["provenance"])
    for label, key in (("total", "total_bytes"), ("usable", "usable_bytes"), ("capacity", "capacity_bytes")):
        if report[key] is not None:
            table.add_row(label, *_sizes(report[key]), "")
    if report["unexplained_bytes"] is not None:
        table.add_row("measured", *_sizes(report["measured_bytes"]), "measured")
        table.add_row("unexplained", *_sizes(report["unexplained_bytes"]), "")
    out = console()
    out.print(table)
    lines = [f"{item['name'].replace('_', ' ')}: {item['how']}" for item in report["accounts"]]
    engine = report["engine"]
    lines.append(f"{engine['name']}: {engine['flag']} {engine['memory_fraction']:g} {engine['rule']}; {engine['how']}")
    if report["fits"] is not None:
        lines += _verdict(report)
    for line in lines:
        out.print(line, highlight=False)


def _verdict(report: dict[str, Any]) -> list[str]:
    at_once = f"{report['concurrency']:,} x {report['seq_len']:,} tokens"
    longest = report["max_seq_len"]
    lines = [
        f"{at_once}: {'fits' if report['fits'] else 'does not fit'}",
        f"at {report['seq_len']:,} tokens at most {report['max_concurrency']:,} sequences; "
        f"{report['concurrency']:,} at once may have {'any length' if longest is None else f'{longest:,} tokens'}",
    ]
    for row in report["precisions"]:
        bare = row["max_concurrency_payload_only"]
        extra = f" ({bare:,} if scales and zero points took no room)" if bare != row["max_concurrency"] else ""
        lines.append(f"KV in {row['kv_dtype']}: {row['max_concurrency']:,} sequences{extra}")
    return lines


def _print_surface(points: list[Any]) -> None:
    from experiments.cli.tables import console, plain_table

    formats = list(dict.fromkeys(point.kv_dtype for point in points))
    best: dict[tuple[int, int], str] = {}
    for point in points:
        if point.fits:
            best.setdefault((point.concurrency, point.seq_len), point.kv_dtype)
    table = plain_table("sequences", *(f"{length // 1024}k" for length in LENGTHS))
    for count in reversed(CONCURRENCIES):
        table.add_row(f"{count:,}", *(best.get((count, length), "-") for length in LENGTHS))
    out = console()
    out.print(f"First KV format of {', '.join(formats)} that fits, by context (tokens, k = 1,024):")
    out.print(table)


def _sizes(size: int) -> tuple[str, str]:
    return f"{size / 1e9:,.2f}", f"{size / 2**30:,.2f}"
