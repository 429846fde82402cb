"""What labs say beside their own texts, in English and Simplified Chinese: verdicts, named mistakes, steps."""

from __future__ import annotations

from experiments.labs.lab import LANGUAGES
from ledger.errors import InputError

WORDS: dict[str, tuple[str, str]] = {
    "right": ("Right.", "正确。"),
    "close": ("Close, but outside the tolerance: half the points.", "接近，但超出容差：得一半分。"),
    "partly": ("Partly right.", "部分正确。"),
    "wrong": ("Wrong.", "错误。"),
    "open": (
        "Your run could not tell this figure, so the question doesn't count.",
        "你的运行没有给出这个量，本题不计分。",
    ),
    "tries_left": ("{left} of {tries} tries left.", "还可再答 {left} 次（共 {tries} 次）。"),
    "solution": ("The answer: {answer}.", "答案：{answer}。"),
    "step.goal": ("Goal", "目标"),
    "step.theory": ("Theory", "原理"),
    "step.predict": ("Predict", "先预测"),
    "step.run": ("Experiment", "实验"),
    "step.measured": ("Measured beside predicted", "预测与结果"),
    "step.why": ("Why", "为什么"),
    "step.questions": ("Questions", "问题"),
    "step.score": ("Score", "得分"),
    "step.reading": ("Further reading", "延伸阅读"),
    "predicted": ("predicted", "预测"),
    "named": ("{name}: {value}", "{name}：{value}"),
    "compared": (
        "{name}: {predicted} {prediction}, {label} {outcome}",
        "{name}：{predicted} {prediction}，{label} {outcome}",
    ),
    "in_brackets": (" ({text})", "（{text}）"),
    "join": ("; ", "；"),
    "over_predicted": ("{ratio} times what was predicted", "为预测值的 {ratio} 倍"),
    "hint.many": (" (all that are right)", "（多选）"),
    "hint.order": (" (put them in order)", "（排序）"),
    "score": ("{points} of {of} points ({percent} %)", "{points} / {of} 分（{percent} %）"),
    "passed": ("Passed (pass mark {mark} %).", "已通过（及格线 {mark} %）。"),
    "not_passed": ("Not passed yet (pass mark {mark} %).", "尚未通过（及格线 {mark} %）。"),
    "state.new": ("not begun", "未开始"),
    "state.predicted": ("predicted", "已预测"),
    "state.running": ("running", "运行中"),
    "state.measured": ("measured", "已有结果"),
    "state.answered": ("answered", "已作答"),
    "state.passed": ("passed", "已通过"),
    "minutes": ("{minutes} min", "{minutes} 分钟"),
    "in_unit": (" (in {unit})", "（单位：{unit}）"),
    "next.predict": ("Next: trilemma lab predict {id} VALUE", "下一步：trilemma lab predict {id} 预测值"),
    "next.run": ("Next: trilemma lab run {id}", "下一步：trilemma lab run {id}"),
    "next.answer": (
        "Next: trilemma lab answer {id} {question} ANSWER",
        "下一步：trilemma lab answer {id} {question} 答案",
    ),
    "next.done": ("All questions are answered: trilemma lab score {id}", "所有问题均已作答：trilemma lab score {id}"),
    "kept_prediction": ("Prediction kept: {prediction}.", "已记录预测：{prediction}。"),
    "reset_done": ("{id} begins anew.", "{id} 已重置。"),
    "figure": ("figure", "量"),
    "value": ("value", "值"),
    "from": ("from", "来源"),
    "measured": ("measured", "实测"),
    "computed": ("computed", "计算"),
    "simulated": ("simulated", "模拟"),
    "estimated": ("estimated", "估计"),
    "assumed": ("assumed", "假定"),
    "asked_below": ("[asked below]", "［下面会问］"),
    "no_answer": ("Not answered.", "未作答。"),
    "prompt.predict": ("Your prediction", "你的预测"),
    "prompt.answer": ("Your answer", "你的答案"),
    "prompt.run": ("Press Enter to run the experiment", "按回车开始实验"),
}


def say(lang: str, key: str, **values: object) -> str:
    """The words of a key in a language; InputError for a language that there isn't."""
    if lang not in LANGUAGES:
        raise InputError("--lang", lang, ", ".join(LANGUAGES))
    return WORDS[key][LANGUAGES.index(lang)].format(**values)
