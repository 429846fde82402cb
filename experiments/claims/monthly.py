"""C34: what a request costs, and a month of a 7B model at 10 requests/s with 500 output tokens each."""

from __future__ import annotations

from typing import Any

from experiments.claims.comparison import FAILS, HOLDS
from ledger.capacity import Deployment
from ledger.cost import Scenario, cost_report
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec
from ledger.serving import Traffic

MODEL = "mistral-7b"
CARD = "l4"
# As the statement has them; the rest is assumed here and said in the evidence.
RATE_PER_S, OUTPUT_TOKENS, DAYS = 10, 500, 30
STATED_PER_S, STATED_A_MONTH = 5_000, 12.96e9
INPUT_TOKENS = 500
TPOT_SLO_S = 0.1
# One cut of each kind the statement's source names: fewer tokens, fewer device-hours, more at once.
CUTS = {"prefix_cache": 0.5, "weights": "w8a8", "kv_dtype": "int8"}
CUT_NAMES = {"prefix_cache": "half the prompt cached", "weights": "W8A8 weights", "kv_dtype": "INT8 KV"}


def month_of_a_7b_model(rate_per_s: int = RATE_PER_S, output_tokens: int = OUTPUT_TOKENS) -> dict[str, Any]:
    """Tokens a month, cards at an objective and a utilisation ceiling, a request's cost, and three cuts."""
    traffic, deployment = Traffic(rate_per_s, INPUT_TOKENS, output_tokens), Deployment(load_model_spec(MODEL))
    scenario = Scenario(traffic, deployment, accelerator(CARD), tpot_slo_s=TPOT_SLO_S)
    report = cost_report(scenario, CUTS)
    month, bound = report["month"], report["throughput"]["bound"]
    price = f"price of a device-hour {scenario.price_per_device_hour:g}, {report['price_label']}"
    a_second = f"{rate_per_s} x {output_tokens} = {month['output_tokens_per_s']:,.0f}"
    a_month = f"{month['output_tokens_per_s']:,.0f} x 86,400 s x {DAYS} = {month['output_tokens']:,.0f}"
    evidence = [
        _row("output tokens a second", month["output_tokens_per_s"], "tokens/s", a_second),
        _row("output tokens a month", month["output_tokens"], "tokens", a_month),
        _row(
            "output tokens/s of a card at the roof", bound["output_tokens_per_s_per_device"], "tokens/s", bound["how"]
        ),
        _row("cards", report["cards"], "cards", report["how"]),
        _row("cost of a month", report["month"]["cost"], "price units", f"{report['how']}; {price}"),
        _row("cost of a request", report["request"]["total"], "price units", f"{report['request']['how']}; {price}"),
    ]
    cuts = {CUT_NAMES[row["name"]]: row for row in report["levers"]["each"]}
    cuts["all three"] = report["levers"]["together"]
    evidence += [
        _row(f"cost of a month, {name}", row["cost"], "price units", f"{row['how']}; {price}")
        for name, row in cuts.items()
    ]
    right = (month["output_tokens_per_s"], month["output_tokens"]) == (STATED_PER_S, STATED_A_MONTH)
    whole = ", ".join(f"{name} {row['cards']}" for name, row in cuts.items())
    *each, together = (f"{row['saved_pct']:.0f} %" for row in cuts.values())
    reason = (
        f"{month['output_tokens_per_s']:,.0f} output tokens/s, {month['output_tokens'] / 1e9:g} billion in {DAYS} days;"
        f" {MODEL} on {_assumed(scenario)} takes"
        f" {report['cards']} cards at the roof, which no engine reaches, so it takes more; whole cards after a cut:"
        f" {whole}; of the device time it saves {', '.join(each)}, together {together}, which is not their sum"
    )
    return {"verdict": HOLDS if right else FAILS, "reason": reason, "evidence": evidence}


def _assumed(scenario: Scenario) -> str:
    """Card and assumptions in words."""
    label = "" if scenario.device is None else scenario.device.label
    return (
        f"{label} with prompts of {INPUT_TOKENS} tokens, {TPOT_SLO_S:g} s a token and {scenario.utilisation:.0%} busy"
    )


def _row(name: str, value: float, unit: str, formula: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "formula": formula, "provenance": "computed"}
