"""Every text of the report, in English and Simplified Chinese, and how numbers are written."""

from __future__ import annotations

import math

from experiments.report.kind_words import KIND_WORDS
from experiments.report.run_words import RUN_WORDS
from ledger.errors import InputError

LANGUAGES = ("en", "zh")
MISSING = "–"

WORDS: dict[str, tuple[str, str]] = {
    **RUN_WORDS,
    **KIND_WORDS,
    "title": ("{candidate} against {baseline}", "{candidate} 对比 {baseline}"),
    "workload": ("Workload", "负载"),
    "run": ("run {id}, {time} UTC", "运行 {id}，{time} UTC"),
    "cancelled": (
        "The comparison was cancelled; this is what the finished repeats say.",
        "对比被取消；以下为已完成的重复所示。",
    ),
    "measured": ("measured", "实测"),
    "computed": ("computed", "计算"),
    "simulated": ("simulated", "模拟"),
    "assumed": ("assumed", "假定"),
    "estimated": ("estimated", "估计"),
    "pays": ("Pays", "值得"),
    "pays_price": ("Pays, with a price", "值得，但有代价"),
    "costs": ("Does not pay", "不值得"),
    "same": ("No difference", "无差异"),
    "undecided": ("Undecided", "尚无定论"),
    "mixed_undecided": ("Pays, partly undecided", "值得，部分尚无定论"),
    "better": ("better", "更好"),
    "worse": ("worse", "更差"),
    "no difference": ("no difference", "无差异"),
    "inconclusive": ("inconclusive", "尚无定论"),
    "batching=continuous": ("Continuous batching", "连续批处理"),
    "batching=dynamic": ("Dynamic batching", "动态批处理"),
    "batching=static": ("Static batching", "静态批处理"),
    "s_better": ("{subject}: {changes}.", "{subject}：{changes}。"),
    "s_worse": ("The price: {changes}.", "代价：{changes}。"),
    "s_worse_only": ("{subject} is worse: {changes}.", "{subject} 更差：{changes}。"),
    "s_same": ("No difference in {names}.", "{names}无差异。"),
    "s_open": ("Inconclusive: {names}.", "尚无定论：{names}。"),
    "s_open_repeats": ("{name} (about {repeats} repeats would decide)", "{name}（约需 {repeats} 次重复）"),
    "basis": (
        "{repeats} paired repeats, 95 % intervals, Holm-corrected over {curves} curves, throughput noise floor {floor}",
        "{repeats} 次配对重复，95 % 置信区间，对 {curves} 条曲线作 Holm 校正，吞吐噪声下限 {floor}",
    ),
    "five_curves": ("Five curves", "五条曲线"),
    "five_caption": (
        "Bars: geometric mean over the pairs with its 95 % interval. Strip below: change against the baseline; the "
        "grey band is the noise floor.",
        "条形：各配对的几何平均及 95 % 置信区间。下方：相对基线的变化；灰带为噪声下限。",
    ),
    "capacity_rps": ("Capacity", "容量"),
    "output_tokens_per_s": ("Throughput", "吞吐"),
    "ttft_s": ("TTFT", "首 token 延迟 TTFT"),
    "itl_s": ("ITL", "token 间隔 ITL"),
    "cost_per_request": ("Cost", "成本"),
    "quality": ("Quality", "质量"),
    "unit_capacity_rps": ("requests/s, the highest that meets the objectives", "请求/s，满足目标的最高值"),
    "unit_output_tokens_per_s": ("output tokens/s", "输出 token/s"),
    "unit_latency": ("{statistic}, {unit}", "{statistic}，{unit}"),
    "unit_cost_per_request": ("per 1,000 requests, price assumed", "每千次请求，价格为假定"),
    "unit_quality": ("probability a token, baseline's text", "基线文本的每 token 概率"),
    "quality_missing": (
        "Quality not measured: {reason}. {variable} can change what the model answers.",
        "未测量质量：{reason}。{variable} 可能改变模型的回答。",
    ),
    "same_tokens": ("same token ids: {share}", "token id 相同：{share}"),
    "interval_line": ("95 % {interval} · floor {floor}", "95 % {interval} · 噪声下限 {floor}"),
    "no_interval": ("no interval: too few pairs", "无区间：配对太少"),
    "same_tick": ("same", "相同"),
    "memory": ("Memory ledger", "内存账本"),
    "memory_caption": ("Median over the repeats, MiB.", "各次重复的中位数，单位 MiB。"),
    "weights": ("weights", "权重"),
    "kv_used": ("KV used, peak", "KV 已用（峰值）"),
    "kv_reserved": ("KV reserved, unused", "KV 已预留未用"),
    "kv_free": ("KV pool, free", "KV 池空闲"),
    "activations": ("activations, peak", "激活（峰值）"),
    "other": ("other: runtime, tokenizer, process", "其他：运行时、分词器、进程"),
    "total": ("total", "合计"),
    "timeline": ("Where each request spent its time", "每个请求的时间去向"),
    "timeline_caption": (
        "Repeat {repeat}, both arms on one time axis in s. Each row is one request, by arrival.",
        "第 {repeat} 次重复，两组共用一个时间轴（秒）。每行一个请求，按到达顺序。",
    ),
    "queue": ("queue", "排队"),
    "prefill": ("prefill", "预填充"),
    "decode": ("decode", "解码"),
    "held": ("slot held after the end", "结束后仍占用槽位"),
    "requests_line": ("{count} requests", "{count} 个请求"),
    "last_token": ("last token {time} s", "最后一个 token {time} s"),
    "how": ("How the verdict is formed", "结论如何得出"),
    "how_pairs": (
        "For each pair i: d = ln(candidate / baseline). Up to 9 pairs the 95 % interval of mean(d) is Student's t, "
        "from 10 pairs a bootstrap of the mean with widened tails. The change is exp(mean(d)) − 1.",
        "对每个配对 i：d = ln(候选 / 基线)。不超过 9 个配对时，mean(d) 的 95 % 区间用 t 分布；从 10 个配对起用"
        "加宽尾部的自助法。变化为 exp(mean(d)) − 1。",
    ),
    "how_floor": (
        "Noise floor: the larger of 1 % and the median change between successive repeats of the same arm "
        "(quality: 1 %).",
        "噪声下限：取 1 % 与同一组相邻重复之间变化的中位数中的较大者（质量为 1 %）。",
    ),
    "how_rule": (
        "Better or worse: Holm-adjusted p below {alpha} and the median change beyond the noise floor. No difference: "
        "interval inside ±max(noise floor, 5 %), at most ±20 %. Inconclusive: anything else.",
        "更好或更差：Holm 校正后的 p 小于 {alpha}，且变化的中位数超出噪声下限。无差异：区间在 ±max(噪声下限, 5 %) "
        "之内，但不宽于 ±20 %。尚无定论：其余情形。",
    ),
    "how_detectable": (
        "Detectable from: the smallest change upwards that would have been called better or worse in 8 of 10 such "
        "comparisons, from the spread of the pairs, their number, alpha and the noise floor.",
        "可检出下限：由配对的离散程度、配对数、显著性水平和噪声下限得出，十次此类对比中有八次会判为更好或更差的最小"
        "增幅。",
    ),
    "detectable_line": ("detectable from {change}", "可检出 {change} 以上"),
    "col_curve": ("curve", "曲线"),
    "col_baseline": ("baseline", "基线"),
    "col_candidate": ("candidate", "候选"),
    "col_change": ("change", "变化"),
    "col_interval": ("95 % interval", "95 % 置信区间"),
    "col_median": ("median", "中位数"),
    "col_floor": ("noise floor", "噪声下限"),
    "col_detectable": ("detectable from", "可检出下限"),
    "col_pairs": ("pairs", "配对"),
    "col_p": ("adjusted p", "校正后 p"),
    "col_method": ("method", "方法"),
    "col_verdict": ("verdict", "结论"),
    "samples": ("Samples of every pair", "每个配对的样本"),
    "col_pair": ("pair", "配对"),
    "settings": ("Settings", "设置"),
    "held_equal": ("Held equal in both arms", "两组保持相同"),
    "held_because": ("Held because another value needs it", "因其他取值的需要而固定"),
    "derived": ("Changed because of the variable", "随变量而变"),
    "environment": ("Environment", "环境"),
    "warnings": ("Warnings", "警告"),
    "reproduce": ("Run it again", "再次运行"),
    "raw": (
        "The raw data of this page (spec, result, and the events of the repeat drawn above) is embedded as JSON in the "
        "script element with id “trilemma-data”.",
        "本页的原始数据（规格、结果以及上图所示重复的事件）以 JSON 嵌入 id 为 “trilemma-data” 的 script 元素中。",
    ),
    "price": (
        "Cost uses a price of {price} per device-hour, which is assumed.",
        "成本按每设备小时 {price} 的价格计算，该价格为假定。",
    ),
    "none": ("none", "无"),
    "f_title": ("{first} and {second}: do they act on each other?", "{first} 与 {second}：二者是否相互影响？"),
    "f_readings": ("Alone, together, and what their product would be", "单独、一起，以及二者之积"),
    "f_reading": (
        "{curve}: {first} alone {first_change}, {second} alone {second_change}; together they give {together}, their "
        "product would be {product}: {meaning}.",
        "{curve}：单独 {first} {first_change}，单独 {second} {second_change}；一起为 {together}，二者之积应为 "
        "{product}：{meaning}。",
    ),
    "f_no_reading": ("{curve}: not measured in all four arms.", "{curve}：四组未全部测得。"),
    "f_is_better": ("better than the product, they help each other", "优于二者之积，相互促进"),
    "f_is_worse": ("worse than the product, they get in each other's way", "差于二者之积，相互妨碍"),
    "f_is_no_difference": ("as much, each acts as it does alone", "与之相同，各自独立起作用"),
    "f_is_inconclusive": ("whether they act on each other is undecided", "是否相互影响尚无定论"),
    "f_basis": (
        "{repeats} repeats of all four arms in a balanced order, 95 % intervals, Holm-corrected over the five curves "
        "of each effect at {alpha}",
        "四组各 {repeats} 次重复，顺序平衡；95 % 置信区间，每种效应对五条曲线作 Holm 校正，水平 {alpha}",
    ),
    "f_plot": (
        "The open circle is where both together would be if their single gains multiplied.",
        "空心圆：若单独的增益相乘，二者一起应处的位置。",
    ),
    "f_effects": ("Effects", "效应"),
    "f_how": (
        "Every effect is a ratio formed within a repeat, and judged as a comparison is. Main effect: over both values "
        "of the other variable. Interaction: what both give over the product of what each gives alone; better or worse "
        "is better or worse than that product.",
        "每种效应都是同一次重复内的比值，判定规则与对比相同。主效应：对另一变量的两个取值取平均。交互作用：二者一起的"
        "结果与各自单独结果之积的比；更好或更差是相对该乘积而言。",
    ),
    "f_first_alone": ("{first} alone", "单独 {first}"),
    "f_second_alone": ("{second} alone", "单独 {second}"),
    "f_together": ("both together", "二者一起"),
    "f_first": ("Main effect of {first_variable}", "{first_variable} 的主效应"),
    "f_second": ("Main effect of {second_variable}", "{second_variable} 的主效应"),
    "f_interaction": ("Interaction", "交互作用"),
    "f_arms": ("The four arms", "四组"),
    "f_arm": ("arm", "组"),
    "f_setting": ("setting", "设置"),
    "f_value": ("value", "取值"),
    "list_join": (", ", "、"),
}


class Words:
    """The texts of one language; InputError for a language that is not there."""

    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise InputError("lang", lang, ", ".join(LANGUAGES))
        self.lang = lang
        self._place = LANGUAGES.index(lang)

    def __call__(self, key: str, **values: object) -> str:
        """The text of `key` with its placeholders filled in."""
        return WORDS[key][self._place].format(**values)

    def listed(self, items: list[str]) -> str:
        """The items as one enumeration."""
        return self("list_join").join(items)


def signed_percent(value: float | None) -> str:
    """+107 %, −0.3 %, 0 %: a true minus, one decimal below 10; a dash for no value."""
    if value is None:
        return MISSING
    size = abs(value)
    text = f"{size:,.0f}" if size >= 10 else f"{size:.1f}"
    if float(text.replace(",", "")) == 0:
        return "0 %"
    return f"{'+' if value > 0 else '−'}{text} %"


def percent(value: float | None) -> str:
    """3 %, 1.5 %: without a sign."""
    return MISSING if value is None else f"{value:.3g} %"


def interval(bounds: list[float] | None) -> str:
    """[+96, +117] in %, a dash for none."""
    if bounds is None:
        return MISSING
    return "[" + ", ".join(signed_percent(bound).removesuffix(" %") for bound in bounds) + "]"


def number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands separated and never in powers of ten above 1e-4."""
    if value is None:
        return MISSING
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}g}" if decimals > 6 else f"{value:,.{decimals}f}".replace("-", "−")


def curve_value(name: str, value: float | None) -> str:
    """A curve's value with its unit: latencies in s or ms, cost per 1,000 requests, quality in %."""
    if value is None:
        return MISSING
    if name in ("ttft_s", "itl_s"):
        return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"
    if name == "cost_per_request":
        return number(value * 1000)
    return f"{number(value * 100)} %" if name == "quality" else number(value)


def latency_unit(*values: float | None) -> str:
    """The unit that `curve_value` writes for these latencies, for a caption."""
    units = {"s" if value >= 1 else "ms" for value in values if value is not None}
    return " / ".join(sorted(units)) or "s"
