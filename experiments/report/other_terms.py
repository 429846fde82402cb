"""One run in the terms of other tools, as rows for a report and for a page: their figure, ours beside it, and why they
differ, in English or Simplified Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.metrics import translation as terms
from experiments.report.words import MISSING, Words, number

COLUMNS = ("tool", "name", "ours", "unit", "mean", "p50", "p99", "why")
CHINESE = {
    terms.FROM_SEND: "从发送时刻算起；我们从计划到达时刻算起，发送端迟到也不会被掩盖",
    terms.ANY_CHUNK: "第一个事件即计入，不论有无文本；我们取第一个有文本的事件",
    terms.PER_CHUNK: "每个数据块一个样本，不论含几个 token，与我们相同",
    terms.WITH_TTFT: "包含首个 token 的时间；我们不包含，一次慢的预填充不会显得像慢的解码",
    terms.BY_ALL: "除以 n − 1；我们除以首个数据块之后的 token 数，首块只有一个 token 时两者相同",
    terms.WEIGHTED: "每个请求一个均值，按 n − 1 加权；请求中最长的间隔因此消失，我们保留每个间隔",
    terms.UNWEIGHTED: "每个请求一个均值；请求中最长的间隔因此消失，我们保留每个间隔",
    terms.WHOLE_RUN: "按整个运行时段；我们到末个 token 为止",
    terms.FIRST_SEND: "从首次发送到末个回答；我们从首个到达到末个 token",
    terms.WITH_TAIL: "到流结束为止，晚于末个 token；我们到末个 token 为止",
}


def other_terms_rows(metrics: Mapping[str, Any], words: Words) -> tuple[list[str], list[list[str]]]:
    """(header, rows of texts), a row a figure of a tool; none for a run of before, or where they have another shape."""
    told = metrics.get("in_other_terms")
    rows = [
        [str(tool), *(_text(name, row.get(name), words) for name in COLUMNS[1:])]
        for tool, listed in (told if isinstance(told, Mapping) else {}).items()
        for row in (listed if isinstance(listed, list) else ())
        if isinstance(row, Mapping)
    ]
    return [words(f"ot_{name}") for name in COLUMNS], rows


def metrics_in(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metrics that a result has in other terms: its own, or those of its first arm or last point."""
    if "in_other_terms" in result:
        return result
    listed = (result.get("arms") or [])[:1] or (result.get("points") or [])[-1:]
    found = next((one.get("metrics") for one in listed if isinstance(one, Mapping)), None)
    return found if isinstance(found, Mapping) else {}


def _text(name: str, value: Any, words: Words) -> str:
    if name in ("mean", "p50", "p99"):
        return number(value, 4) if isinstance(value, int | float) else MISSING
    text = "" if value is None else str(value)
    if name == "why" and words.lang == "zh":
        for english, chinese in CHINESE.items():
            text = text.replace(english, chinese)
        return text.replace("; ", "；")
    return text
