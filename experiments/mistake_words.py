"""The usual mistakes behind a wrong number, in words that labs and interview share: a clause each, in two languages.

A mistake of one lab, or of one kind of question, has its words there.
"""

from __future__ import annotations

USUAL: dict[str, tuple[str, str]] = {
    "k_without_v": (
        "only the keys were counted and the values forgotten, or the other way round: a factor 2 is missing.",
        "只算了 K 没算 V（或者反过来），少了一个 2。",
    ),
    "heads_for_kv_heads": (
        "query heads were taken for KV heads. Under grouped-query attention only the KV heads are cached.",
        "把查询头数当成了 KV 头数。GQA 只缓存 KV 头。",
    ),
    "one_layer": (
        "one layer was counted instead of all: every layer has a part of its own.",
        "只算了一层。每一层都各有一份。",
    ),
    "scales_forgotten": (
        "scales and zero points were left out: they are stored beside the codes of every group.",
        "漏了各组的缩放系数和零点：每个分组的编码旁都要存它们。",
    ),
    "payload_only": (
        "only the payload bits were counted: what is stored beside them takes room too.",
        "只算了有效载荷，附带存储的数据（如缩放系数和零点）同样占空间。",
    ),
    "one_sequence": (
        "one sequence was counted instead of the whole batch.",
        "只算了一条序列，没有乘并发数。",
    ),
    "hidden_for_heads": (
        "the hidden size was taken; KV has KV heads x head size elements.",
        "用成了隐藏维度；KV 的元素数是 KV 头数 × 头维度。",
    ),
    "gb_for_gib": (
        "GB and GiB were mixed up. A GiB is 2^30 = 1,073,741,824 B, 7.4 % more than a GB.",
        "GB 与 GiB 混用了。1 GiB = 2^30 = 1,073,741,824 B，比 GB 大 7.4 %。",
    ),
    "factor_2": (
        "a factor 2 is missing or there twice: 2 bytes an element, and K and V each once.",
        "少了或多了一个 2：每元素 2 字节，K 和 V 各算一次。",
    ),
    "bits_for_bytes": (
        "bits and bytes were mixed up: a factor 8.",
        "位与字节混用了，差 8 倍。",
    ),
    "thousand": (
        "it is off by a factor of 1,000: look at the unit.",
        "差了 1,000 倍：检查单位。",
    ),
    "inverse": (
        "the ratio is the other way round.",
        "比值取反了。",
    ),
    "ratio_for_change": (
        "a ratio and a change were mixed up: 1.4 times is a change of +40 %.",
        "混淆了倍数与变化率：1.4 倍即 +40 %。",
    ),
    "percent_for_share": (
        "a share and a percentage were mixed up: 0.35 is 35 %.",
        "混淆了小数与百分数：0.35 即 35 %。",
    ),
    "sign": (
        "the sign is the wrong way round.",
        "正负号反了。",
    ),
}
LANGUAGES = ("en", "zh")  # in the order of the pairs


def usual_mistake(lang: str, name: str) -> str:
    """The clause of a mistake, which begins small in English: "This is what comes out when: ..."."""
    return USUAL[name][LANGUAGES.index(lang)]


def usual_mistake_told(lang: str, name: str) -> str:
    """The same as a sentence."""
    text = usual_mistake(lang, name)
    return text[0].upper() + text[1:]
