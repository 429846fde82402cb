"""`trilemma generate`: one prompt through the engine, in this process."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from experiments.cli.numbers import number, whole
from experiments.cli.options import Json, Set, settings
from experiments.cli.output import note, print_json
from ledger.errors import InputError


def generate(
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="The prompt; raw unless --chat.")],
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt through the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="System message; with --chat.")] = None,
    max_tokens: Annotated[str, typer.Option("--max-tokens", metavar="N")] = "128",
    min_tokens: Annotated[str, typer.Option("--min-tokens", metavar="N", help="No end before N tokens.")] = "0",
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="The model's end tokens do not end it.")] = False,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="Ends the text; repeatable.")] = None,
    temperature: Annotated[str, typer.Option("--temperature", metavar="T", help="0 is greedy.")] = "0",
    top_k: Annotated[str, typer.Option("--top-k", metavar="K", help="Only the K likeliest; 0 is off.")] = "0",
    top_p: Annotated[str, typer.Option("--top-p", metavar="P", help="Only the likeliest that reach P together.")] = "1",
    min_p: Annotated[str, typer.Option("--min-p", metavar="P", help="Only those above P times the likeliest.")] = "0",
    repetition_penalty: Annotated[
        str, typer.Option("--repetition-penalty", metavar="X", help="On tokens of prompt and text; 1 is off.")
    ] = "1",
    presence_penalty: Annotated[
        str, typer.Option("--presence-penalty", metavar="X", help="Once for each token that the text has.")
    ] = "0",
    frequency_penalty: Annotated[
        str, typer.Option("--frequency-penalty", metavar="X", help="For each time that the text has the token.")
    ] = "0",
    logit_bias: Annotated[
        list[str] | None, typer.Option("--logit-bias", metavar="ID=VALUE", help="Added to a token's logit; repeatable.")
    ] = None,
    logprobs: Annotated[
        str | None, typer.Option("--logprobs", metavar="N", help="Log-probabilities: of the token and the N likeliest.")
    ] = None,
    n: Annotated[str, typer.Option("--n", metavar="N", help="Number of answers; needs a temperature.")] = "1",
    seed: Annotated[str | None, typer.Option("--seed", metavar="N")] = None,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Generate text from one prompt."""
    from core_engine.config import EngineConfig

    messages = _messages(prompt, system, chat)
    config = EngineConfig.from_settings(settings(sets))
    from core_engine.sampling_params import SamplingParams

    params = SamplingParams(
        max_tokens=whole("--max-tokens", max_tokens) or 0,
        min_tokens=whole("--min-tokens", min_tokens) or 0,
        ignore_eos=ignore_eos,
        stop=tuple(stop or ()),
        temperature=number("--temperature", temperature),
        top_k=whole("--top-k", top_k) or 0,
        top_p=number("--top-p", top_p),
        min_p=number("--min-p", min_p),
        repetition_penalty=number("--repetition-penalty", repetition_penalty),
        presence_penalty=number("--presence-penalty", presence_penalty),
        frequency_penalty=number("--frequency-penalty", frequency_penalty),
        logit_bias=tuple(_bias(text) for text in logit_bias or ()),
        logprobs=whole("--logprobs", logprobs),
        n=whole("--n", n) or 0,
        seed=whole("--seed", seed),
    )
    # Answers that grow at the same time can't be written one after another as they come.
    stream = sys.stdout.isatty() and not as_json and params.n == 1
    result = _generate(messages if chat else prompt, config, params, stream=stream)
    if as_json:
        print_json(result)
    else:
        _print(result, streamed=stream)


def _messages(prompt: str, system: str | None, chat: bool) -> list[dict[str, str]]:
    """The conversation of --chat; InputError for texts that are empty or have no effect."""
    if not prompt:
        raise InputError("--prompt", prompt, "a text of at least one character")
    if system is not None and not chat:
        raise InputError("--system", system, "only together with --chat")
    if system == "":
        raise InputError("--system", system, "a text of at least one character")
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": prompt}]


def _bias(text: str) -> tuple[int, float]:
    """ID=VALUE as a pair."""
    token, equals, value = text.partition("=")
    if not equals:
        raise InputError("--logit-bias", text, "ID=VALUE, as 42=-5")
    return whole("--logit-bias", token) or 0, number("--logit-bias", value)


def _generate(prompt: str | list[dict[str, str]], config: Any, params: Any, *, stream: bool) -> dict[str, Any]:
    """Run one request and return the `generate` JSON; with `stream` the text goes to stdout as it comes.

    With n > 1 the keys of an answer are the first one's, and `choices` has them all.
    """
    from experiments.rig import Rig

    started = time.perf_counter()
    rig = Rig(note)
    loaded = rig.loaded(config)
    engine = rig.engine(config)
    loaded_s = time.perf_counter() - started
    tokenizer = loaded.tokenizer
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt)
    request_id = engine.add(ids, params)
    engine.expect_more_arrivals(False)
    while engine.has_unfinished():
        for output in engine.step():
            if stream:
                sys.stdout.write(output.text)
                sys.stdout.flush()
    if stream:
        sys.stdout.write("\n")
    completions = [engine.completion(request_id)] if params.n == 1 else engine.completions(request_id)
    choices = [_choice(completion, tokenizer, params) for completion in completions]
    return {
        **choices[0],
        "prompt_tokens": completions[0].prompt_tokens,
        "timings": {**_timings(engine.record()), "load_s": loaded_s},
        **({"choices": choices} if params.n > 1 else {}),
        "config": config.settings(),
        "provenance": "measured",
    }


def _choice(completion: Any, tokenizer: Any, params: Any) -> dict[str, Any]:
    """The keys that each answer has of its own."""
    choice = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "completion_tokens": len(completion.token_ids),
    }
    if params.logprobs is not None:
        choice["logprobs"] = [
            _token(tokenizer, token, entry.chosen) | {"top": [_token(tokenizer, *likely) for likely in entry.top]}
            for token, entry in zip(completion.token_ids, completion.logprobs, strict=True)
        ]
    return choice


def _token(tokenizer: Any, token_id: int, logprob: float) -> dict[str, Any]:
    return {"token_id": token_id, "token": tokenizer.token_text(token_id), "logprob": logprob}


def _print(result: dict[str, Any], *, streamed: bool) -> None:
    """The answers as text, numbered when there are several, each with its tokens' log-probabilities if asked for."""
    choices = result.get("choices", [result])
    for index, choice in enumerate(choices, 1):
        if len(choices) > 1:
            print(f"--- {index} of {len(choices)}")
        if not streamed:
            print(choice["text"])
        for entry in choice.get("logprobs", []):
            likely = "  ".join(f"{top['token']!r} {top['logprob']:.3f}" for top in entry["top"])
            print(f"{entry['logprob']:8.3f}  {entry['token']!r:<16}{likely}".rstrip())


def _timings(record: dict[str, Any]) -> dict[str, Any]:
    """TTFT, time per output token, end to end, in s, as means over the answers, and the decode rate in tokens/s; with
    speculation its counters."""
    from experiments.metrics import compute_metrics

    metrics = compute_metrics(record)
    tpot = metrics["tpot_s"]["mean"]
    return {
        "ttft_s": metrics["ttft_s"]["mean"],
        "tpot_s": tpot,
        "e2e_s": metrics["e2e_s"]["mean"],
        "output_tokens_per_s": metrics["output_tokens_per_s"],
        **({"speculation": metrics["counters"]} if record["config"]["speculation"] != "off" else {}),
    }
