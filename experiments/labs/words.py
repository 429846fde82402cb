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
    "mistake.k_without_v": (
        "That is K without V: keys and values are both kept, hence the factor 2.",
        "只算了 K，漏了 V：键和值都要缓存，所以要乘 2。",
    ),
    "mistake.query_heads": (
        "That counts the query heads. Under GQA only the KV heads are kept.",
        "用成了查询头数。GQA 只缓存 KV 头。",
    ),
    "mistake.one_layer": ("That is one layer: every layer keeps its own KV.", "这只是一层：每一层都有自己的 KV。"),
    "mistake.no_scales": (
        "That leaves out scales and zero points: they are stored beside the codes of every group.",
        "漏了缩放系数和零点：每个分组的编码旁都要存它们。",
    ),
    "mistake.payload_only": (
        "That counts the payload only: what is stored beside it takes room too.",
        "只算了有效载荷：附带存储的数据同样占空间。",
    ),
    "mistake.one_sequence": (
        "That is a single sequence: multiply by how many run.",
        "这只是一条序列：还要乘以并发数。",
    ),
    "mistake.hidden_for_heads": (
        "That takes the hidden size; KV has KV heads x head size elements.",
        "用成了隐藏维度；KV 的元素数是 KV 头数 × 头维度。",
    ),
    "mistake.gb_for_gib": (
        "GB and GiB were mixed up: 1 GB is 10^9 bytes, 1 GiB is 2^30.",
        "混淆了 GB 与 GiB：1 GB 是 10^9 字节，1 GiB 是 2^30 字节。",
    ),
    "mistake.factor_2": ("That is off by a factor of exactly 2.", "正好差了 2 倍。"),
    "mistake.bits_for_bytes": ("Bits and bytes were mixed up: a factor of 8.", "混淆了位与字节：差 8 倍。"),
    "mistake.thousand": ("That is off by a factor of 1,000: look at the unit.", "差了 1,000 倍：检查单位。"),
    "mistake.inverse": ("That is the inverse: the ratio is the other way round.", "比值取反了。"),
    "mistake.ratio_for_change": (
        "A ratio and a change were mixed up: 1.4 times is a change of +40 %.",
        "混淆了倍数与变化率：1.4 倍即 +40 %。",
    ),
    "mistake.percent_for_share": (
        "A share and a percentage were mixed up: 0.35 is 35 %.",
        "混淆了小数与百分数：0.35 即 35 %。",
    ),
    "mistake.sign": ("The sign is the wrong way round.", "正负号反了。"),
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
    "next.predict": ("Next: trilemma lab predict {id} VALUE", "下一步：trilemma lab predict {id} VALUE"),
    "next.run": ("Next: trilemma lab run {id}", "下一步：trilemma lab run {id}"),
    "next.answer": (
        "Next: trilemma lab answer {id} {question} ANSWER",
        "下一步：trilemma lab answer {id} {question} ANSWER",
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
    "prompt.predict": ("Your prediction", "你的预测"),
    "prompt.answer": ("Your answer", "你的答案"),
    "prompt.run": ("Press Enter to run the experiment", "按回车开始实验"),
}


def say(lang: str, key: str, **values: object) -> str:
    """The words of a key in a language; InputError for a language that there isn't."""
    if lang not in LANGUAGES:
        raise InputError("--lang", lang, ", ".join(LANGUAGES))
    return WORDS[key][LANGUAGES.index(lang)].format(**values)
