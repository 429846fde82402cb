"""What every figure of a report means, in English and Simplified Chinese: the definitions of the design, section 4."""

from __future__ import annotations

from collections.abc import Iterable

# Name -> (English, Chinese). The order is that in which a report prints them.
DEFINITIONS: dict[str, tuple[str, str]] = {
    "arrival": (
        "The time the schedule says, computed before the run from one seed. Latencies count from it, not from the "
        "send.",
        "由同一个种子在运行前算出的计划到达时间。延迟从它算起，而不是从发送时刻算起。",
    ),
    "ttft_s": (
        "First non-empty token − arrival, s.",
        "首个非空 token 的时刻 − 到达时刻，秒。",
    ),
    "tpot_s": (
        "Per request (last token − first token) / (tokens − tokens of the first emission), s; no value for one "
        "emission.",
        "每个请求：(末个 token − 首个 token) / (token 数 − 首次输出的 token 数)，秒；只有一次输出时无值。",
    ),
    "itl_s": (
        "Gaps between consecutive emissions, pooled over all requests, s.",
        "相邻两次输出的间隔，所有请求合并，秒。",
    ),
    "e2e_s": ("Last token − arrival, s.", "末个 token − 到达时刻，秒。"),
    "output_tokens_per_s": (
        "Tokens of successful requests / (last token − first arrival). Of a sweep with clients: while all are at work.",
        "成功请求的 token 数 / (末个 token − 首个到达)。并发扫描中只计全部客户端都在工作的时段。",
    ),
    "requests_per_s": (
        "Successful requests / (last token − first arrival).",
        "成功请求数 / (末个 token − 首个到达)。",
    ),
    "goodput_rps": (
        "Successful requests that meet every objective / s; no value without objectives.",
        "每秒满足全部目标的成功请求数；没有目标时无值。",
    ),
    "slo_attainment": (
        "Share of all requests that meet every objective; failed ones count against it.",
        "满足全部目标的请求占全部请求的比例；失败的请求算未满足。",
    ),
    "latency_per_token_s": (
        "End-to-end times of all requests together / their output tokens together, s a token.",
        "所有请求的端到端时间之和 / 输出 token 数之和，秒/token。",
    ),
    "latency_breakdown": (
        "Queue: waiting before the first step and after a preemption. Prefill and decode: executor time of the steps "
        "in which the request had such rows. Overhead: host time by its own timers. Stalled: admitted and not "
        "scheduled. "
        "Unexplained: what is left.",
        "排队：首步之前及被抢占后的等待。预填充与解码：含该请求相应行的步的执行时间。开销：主机自身计时。"
        "停滞：已接纳但未调度。"
        "未解释：其余部分。",
    ),
    "cost": (
        "Device-hours × price; the price is assumed.",
        "设备小时 × 价格；价格为假定。",
    ),
    "quality": (
        "Mean probability a token that an arm gives the baseline's own text; 1 would be certainty.",
        "各组对基线文本每个 token 给出的平均概率；1 表示完全确定。",
    ),
    "energy": (
        "Of the whole device by NVML, idle power included, from the first arrival to the last token; "
        "tokens/J = tokens of successful requests / J.",
        "NVML 所读的整块设备能耗（含空闲功率），从首个到达到末个 token；token/J = 成功请求的 token 数 / 焦耳。",
    ),
    "alpha": (
        "Drafted tokens accepted / positions tested. Acceptance rate: accepted / drafted. Tokens a pass: emitted / "
        "target passes, after trimming by stops.",
        "接受的草稿 token / 被检验的位置。接受率：接受 / 草稿。"
        "每次前向的 token：输出 / 目标前向次数（按停止条件截断后）。",
    ),
    "speedup": (
        "Time of plain decoding / time with drafts, in pairs of the same repeat. v: pass of k + 1 rows / pass of one; "
        "c: a draft step / pass of one. Model: (1 − a^(k+1)) / ((1 − a)(v + k c)).",
        "同一次重复中普通解码的时间 / 使用草稿的时间。v：k + 1 行的前向 / 一行的前向；c：一步草稿 / 一行的前向。"
        "模型：(1 − a^(k+1)) / ((1 − a)(v + k c))。",
    ),
    "knee": (
        "Latency knee: the last load before latency a token rises faster than throughput, by a test of slopes. "
        "Memory knee: the first load with preemptions, refusals or waiting for KV blocks.",
        "延迟拐点：每 token 延迟的上升快于吞吐之前的最后一个负载（斜率检验）。"
        "内存拐点：首个出现抢占、拒绝或等待 KV 块的负载。",
    ),
    "limits": (
        "Instance limit = highest rate × (1 − headroom); one more instance from scale-out share × that; instances = "
        "demand / that, rounded up.",
        "单实例上限 = 最高速率 × (1 − 余量)；达到其扩容比例时增加一个实例；实例数 = 需求 / 该值，向上取整。",
    ),
    "accuracy": (
        "Share of items whose right answer has the highest log-likelihood. Points: change of accuracy × 100, with "
        "Tango's paired interval and McNemar's exact test, Holm-corrected.",
        "正确答案对数似然最高的题目比例。"
        "百分点：准确率变化 × 100，采用 Tango 配对区间与 McNemar 精确检验，并作 Holm 校正。",
    ),
    "percentiles": (
        "Percentiles by linear interpolation; n is printed beside them.",
        "百分位数用线性插值；旁边给出样本数 n。",
    ),
}
OF_A_RUN = (
    "arrival", "ttft_s", "tpot_s", "itl_s", "e2e_s", "output_tokens_per_s", "requests_per_s", "goodput_rps",
    "slo_attainment", "latency_breakdown", "cost", "percentiles",
)  # fmt: skip


def definitions(names: Iterable[str], lang: str) -> list[tuple[str, str]]:
    """(name, definition) in the language, in the order of the table."""
    wanted = set(names)
    place = 1 if lang == "zh" else 0
    return [(name, texts[place]) for name, texts in DEFINITIONS.items() if name in wanted]
