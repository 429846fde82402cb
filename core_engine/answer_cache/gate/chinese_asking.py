"""How a Chinese question asks: which kind of answer it wants, and in which words.

怎么申请退货 and 退货的流程是什么 want the same kind of answer, in other words; 退货要多久 wants another one about the
same thing. Kinds that one answer may serve are RELATED.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[A-Za-z][A-Za-z0-9_.+-]*|[\u3400-\u9fff]|[%+*/=<>°-]")
# What stands around a question without asking anything.
POLITE = re.compile(
    "请问|请帮我|帮我|麻烦您?|劳驾|我?想问一下|我?想知道|我想要?|请教|能不能告诉我|告诉我|求助|您好|你好|谢谢|到底|究竟|具体|一下|简单"
)
_PERIOD = "个?(?:天|日|年|月|小时|钟头|分钟|周|星期|礼拜|秒)"
_WHERE = "在哪[里儿]?|何在"
_UNLIKE = "区别|不同|差别|差异"
# The kind of answer, or kinds, by the words that ask for it. Where two fit, the upper one reads the words.
_WAYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("difference", (
        f"有(?:什么|何|啥|没有)(?:{_UNLIKE})",
        f"(?:{_UNLIKE})(?:点|之处)?(?:是什么|有哪些|是啥|{_WHERE}|(?=[？?。]?$))",
        f"差{_WHERE}|不一样(?:{_WHERE})?|好{_WHERE}|一回事吗?",
        "哪个(?:更?好|合适|划算)|(?:怎么|如何)选|孰优孰劣|有何优势|相比|请比较",
    )),
    ("reason|definition", ("是?怎么回事|是什么情况",)),
    ("definition", (
        "什么是|是?什么意思|指的是(?:什么|啥)|指什么|是指什么|什么叫做?|叫什么|说的是什么",
        "解释|介绍|讲一?讲|说一?说(?!明)|简述|叙述",
    )),
    ("reason", (
        "为什么|为何|为啥|凭什么|(?:是|有)?(?:什么|啥)(?:原因|道理|缘故)",
        f"的?(?:原因|道理|缘由|原理|成因|起因)(?:是什么|是啥|{_WHERE})?|从何而来|由什么造成",
        "(?:可能是|出了)什么问题|哪里(?:坏了|出了?问题|有问题)",
    )),
    ("time", (
        f"多久|多长时间|多长的?时?|(?:几|多少){_PERIOD}(?!份)|何时|什么时[候间]|啥时候?",
        "几时|几点|几号|哪一?[天年月]|什么年份|几月份?|期限|截止",
    )),
    ("price", ("多少钱|几块钱|什么价格?|多少金额|什么金额|费用",)),
    ("method|quantity", ("(?:怎么|如何|怎样)计?算",)),
    ("quantity", ("是?多少|几|多[高重大远宽深厚快]|百分之几|什么程度",)),
    ("person", ("谁|哪位|什么人|哪类人",)),
    ("method", (
        "怎么办|怎么样|怎么才能|怎样才能|如何才能|怎么弄|怎么|怎样|如何|咋办?|该做什么|入口",
        "(?:有|用)?(?:没有|什么|啥|哪些|何)?(?:好|快)?(?:办法|方法|诀窍|窍门|手段|步骤|流程|途径|做法|写法|方式)"
        "(?:是什么|是啥|有哪些)?",
    )),
    ("place", ("(?:在|到|去|从)?哪[里儿]|在哪|何处|什么地方",)),
    ("whether", ("是否|吗",)),
    ("which", ("哪些|哪一?[个种条座家款张台级类项门]|什么|哪|啥",)),
)  # fmt: skip
ASKING = re.compile("|".join(f"(?P<way{number}>{'|'.join(words)})" for number, (_, words) in enumerate(_WAYS)))
_KINDS = {f"way{number}": frozenset(kinds.split("|")) for number, (kinds, _) in enumerate(_WAYS)}
# Ways to say can, and to ask whether, in one form each.
CAN = re.compile("可不可以|能不能够?|可否|能否|是否(?:可以|能够?)"), re.compile("可以|能够")
A_NOT_A = re.compile(r"(.)[不没]\1")
EITHER = re.compile("还是")
# The thing whose number or identity is asked for: 导师 in 几个导师.
ASKED_FOR = re.compile(r"(?:(?:哪一?|几|多少)[个种条座家款张台级类项门些位名]|什么|多少)([A-Za-z]+|[\u3400-\u9fff]{2})")
# Kinds of which one answer may serve both.
RELATED = frozenset(
    frozenset(pair)
    for pair in (
        ("method", "reason"), ("method", "place"), ("method", "difference"), ("method", "which"),
        ("reason", "definition"), ("definition", "which"), ("person", "which"), ("place", "which"), ("time", "which"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Asking:
    """How a text asks.

    words: those that ask, as written and in order; kinds: of answer, none where it doesn't say; things: whose number
    or identity is asked for; wording: the text's tokens, with a mark of the kind for each of the words; rest: the text
    without them.
    """

    words: tuple[str, ...]
    kinds: frozenset[str]
    things: frozenset[str]
    wording: tuple[str, ...]
    rest: str


def asking(text: str) -> Asking:
    """See Asking. Politeness is left out, 要不要 reads as 要吗, and 可以 as 能."""
    plain = CAN[1].sub("能", CAN[0].sub("能吗", POLITE.sub("", text.lower())))
    plain = A_NOT_A.sub(r"\1吗", plain)
    words: list[str] = []
    kinds: set[str] = set()
    wording: list[str] = []
    at = 0
    for match in ASKING.finditer(plain):
        found = _KINDS[str(match.lastgroup)]
        words.append(match.group())
        kinds |= found
        wording += [*TOKEN.findall(plain[at : match.start()]), f"<{'|'.join(sorted(found))}>"]
        at = match.end()
    wording += TOKEN.findall(plain[at:])
    if not kinds and EITHER.search(plain):
        kinds.add("which")
    return Asking(
        words=tuple(words),
        kinds=frozenset(kinds),
        things=frozenset(ASKED_FOR.findall(plain)),
        wording=tuple(wording),
        rest=ASKING.sub(" ", plain),
    )


def agree(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether both want an answer of one kind, and say so."""
    return bool(a & b)


def may_agree(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether one answer may serve both: they want one of one kind, or of related ones, or one of them doesn't say."""
    return not a or not b or agree(a, b) or any(frozenset((x, y)) in RELATED for x in a for y in b)
