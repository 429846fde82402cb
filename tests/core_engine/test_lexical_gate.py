"""The lexical gate: what keeps two questions apart, and what does not."""

from __future__ import annotations

import pytest

from core_engine.answer_cache.gate import closeness, difference, read_question
from core_engine.answer_cache.gate.chinese_asking import asking
from core_engine.answer_cache.gate.chinese_numbers import numbers
from core_engine.answer_cache.gate.difference import SAME_SENTENCE, kept_share
from core_engine.answer_cache.gate.english import stem

APART = [
    ("How long do I boil 3 eggs?", "How long do I boil 5 eggs?", "numbers"),
    ("How long do I boil three eggs?", "How long do I boil 5 eggs?", "numbers"),
    ("Who won the race in 2,019 heats?", "Who won the race in 2,020 heats?", "numbers"),
    ("Who was Charles I?", "Who was Charles II?", "numbers"),
    ("What happens in act 1?", "What happens in act II of it?", "numbers"),
    ("What is -5 °C in Fahrenheit?", "What is 5 °C in Fahrenheit?", "numbers"),
    ("What is 2^-3?", "What is 2^3?", "numbers"),
    ("What does async do in C#?", "What does async do in C?", "words"),
    ("How heavy is 5 kg of sand?", "How heavy is 5 pounds of sand?", "units"),
    ("Should I water a cactus?", "Shouldn't I water a cactus?", "negation"),
    ("Can I paint with a primer?", "Can I paint without a primer?", "negation"),
    ("Who may enter?", "Nobody may enter?", "negation"),
    ("Should I stretch before a run?", "Should I stretch after a run?", "opposites"),
    ("My plan is to open the shop. Any tips?", "I want to close a store, what helps?", "opposites"),
    ("Which train goes to Lyon?", "A railway to Bordeaux, which one?", "names"),
    ("What does chmod() change?", "What is it that chown() does?", "names"),
    ("Who runs the lab?", "When do they run a lab?", "asks"),
    ("How do I boil an egg?", "How do I fry an egg?", "words"),
    ("May I park here?", "Must I park here?", "words"),
    ("How do I log in?", "How do I log out?", "words"),
    ("How do I convert feet to yards?", "How do I convert yards to feet?", "order"),
    ("Does my sister owe my brother?", "Does my brother owe my sister?", "order"),
    ("煮3个鸡蛋要多久？", "煮5个鸡蛋要多久？", "numbers"),
    ("煮三个鸡蛋要多久？", "煮五个鸡蛋要多久？", "numbers"),
    ("一百二十元能买什么？", "一百三十元能买什么？", "numbers"),
    ("-5摄氏度是多少华氏度？", "5摄氏度是多少华氏度？", "numbers"),
    ("跑5公里要多久？", "跑5英里要多久？", "units"),
    ("仙人掌要浇水吗？", "仙人掌不要浇水吗？", "negation"),
    ("饭前吃药还是别的时候？在饭之前吃行吗", "饭之后吃药行吗", "opposites"),
    ("怎么安装这个软件？", "想把一个程序卸载，怎么弄？", "opposites"),
    ("怎么用Git撤销提交？", "SVN提交错了如何退回？", "names"),
    ("谁管这件事？", "这件事什么时候办？", "asks"),
    ("怎么煮鸡蛋？", "怎么煎鸡蛋？", "words"),
    ("英尺怎么换算成码？", "码怎么换算成英尺？", "order"),
    ("他的钥匙在我这儿吗？", "我的钥匙在他这儿吗？", "order"),
    ("13B的模型多大？", "70亿参数的模型占多少空间？", "numbers"),
    ("阅览室允许喝水吗？", "阅览室里头不允许喝水是真的吗？", "negation"),
    ("我家房东乱收费怎么投诉？", "有个租客拖欠水电，去哪里投诉比较好", "opposites"),
    ("报名要多久？", "报名的流程是什么？", "asks"),
    ("报名多少钱？", "为什么要报名？", "asks"),
    ("哪些人能报名？", "能帮别人报名吗", "asks"),
    ("怎么煮鸡蛋？", "如何煎鸡蛋？", "words"),
    ("周末开不开门？", "周末几点开门？", "asks"),
    ("桥上能不能骑车？", "桥上可不可以停车？", "words"),
    ("我听谁的？", "谁听我的？", "order"),
    ("怎样才能把这些卢布全部换成欧元呢，去银行行吗", "欧元现在能换卢布吗", "order"),
    ("一家公司最多可以有多少个股东？", "一个股东同时能投资几家公司？", "order"),
    ("How do I boil an egg?", "怎么煮鸡蛋？", "language"),
]
TOGETHER = [
    ("How do I boil an egg?", "How do I boil an egg"),
    ("How do I boil an egg?", "Please, how do I boil the eggs?"),
    ("How do I boil three eggs?", "What's the way to cook 3 eggs in water?"),
    ("What's the population of the UK?", "How many people live in the United Kingdom?"),
    ("Can I read pages 3-5 of it?", "Can I read the pages 3-5 of it, please?"),
    ("Which single tool opens one jar?", "A jar: with what does one open it?"),
    ("I'm late. Can I still get in?", "Am I allowed to enter when I come late?"),
    ("Which cities of Europe are the oldest?", "The most ancient European towns?"),
    ("怎么煮鸡蛋？", "请问怎么煮鸡蛋呢？"),
    ("煮三个鸡蛋要几分钟？", "3个蛋下锅以后多久能熟"),
    ("能不能带宠物？", "可以带宠物吗"),
    ("钥匙丢了，进不去家门怎么办？", "弄没了开门的东西，要如何回家"),
    ("一块24G的显卡带得动13B吗？", "130亿参数的模型，24GB显存跑不跑得起来"),
    ("电梯坏了找谁修？", "楼里电梯不动了，该联系哪位？"),
    ("水开了要再煮多久？", "沸腾以后还得煮几分钟？"),
    ("铜和铁有什么区别？", "铁跟铜有何不同？"),
    ("什么是梅雨？", "梅雨是什么意思？"),
    ("没有热水怎么洗澡？", "热水器停了，想冲个凉有什么办法？"),
    ("怎么报名？", "麻烦告诉我报名的流程"),
]


@pytest.mark.parametrize(("one", "other", "reason"), APART)
def test_a_difference_in_what_is_asked_keeps_questions_apart(one: str, other: str, reason: str) -> None:
    assert difference(read_question(one), read_question(other)) == reason
    assert difference(read_question(other), read_question(one)) == reason


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_other_words_for_the_same_are_let_through(one: str, other: str) -> None:
    assert difference(read_question(one), read_question(other)) is None
    assert difference(read_question(other), read_question(one)) is None


@pytest.mark.parametrize("text", ["", "?", "!!!", "1", "I", "。", "é", "x" * 512, "第", "°"])
def test_any_text_can_be_read(text: str) -> None:
    question = read_question(text)
    assert difference(question, question) is None
    assert difference(question, read_question("How do I boil an egg?")) in ("numbers", "language", None)


def test_one_changed_word_in_a_kept_sentence_is_always_seen() -> None:
    words = ["how", "do", "small", "grey", "birds", "find", "their", "way", "home", "at", "night"]
    sentence = read_question(" ".join(words))
    for place in range(len(words)):
        changed = read_question(" ".join([*words[:place], "violet", *words[place + 1 :]]))
        assert kept_share(sentence.reading, changed.reading) > SAME_SENTENCE
        if words[place] not in ("do",):
            assert difference(sentence, changed) is not None, words[place]


@pytest.mark.parametrize(
    ("word", "same"), [("cities", "city"), ("boiling", "boil"), ("stopped", "stop"), ("uses", "use"), ("boxes", "box")]
)
def test_inflections_share_a_stem(word: str, same: str) -> None:
    assert stem(word) == stem(same)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("一百二十元", ["120"]), ("3,500块", ["3500"]), ("[1,100]之间", ["1", "100"]), ("13B", ["13000000000"]),
        ("1.5万人", ["15000"]), ("32k上下文", ["32000"]), ("5千米", ["5"]), ("三四天", ["3", "4"]), ("第二次", ["2"]),
        ("两张桌子", ["2"]), ("半小时", ["0.5"]), ("两个半月", ["0.5", "2"]), ("-5度", ["-5"]), ("等一下", []),
        ("一个人", []), ("半价以外", ["0.5"]), ("万一下雨", []),
    ],
)  # fmt: skip
def test_chinese_numbers_have_one_value_however_they_are_written(text: str, found: list[str]) -> None:
    assert sorted(numbers(text)) == found


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("退票怎么办理", {"method"}), ("退票的步骤有哪些？", {"method"}), ("退票扣多少钱？", {"price"}),
        ("几天能退完？", {"time"}), ("退票要多少天", {"time"}), ("退几张？", {"quantity"}),
        ("为啥不能退？", {"reason"}),
        ("不能退票的原因在哪？", {"reason"}), ("能不能退？", {"whether"}), ("退票是怎么回事", {"reason", "definition"}),
        ("退票和改签的区别是什么", {"difference"}), ("退票和改签差在哪儿？", {"difference"}), ("去哪儿退？", {"place"}),
        ("谁能退？", {"person"}), ("退票还是改签？", {"which"}), ("票退不掉了", set()),
        ("两种票有不同的颜色吗", {"whether"}),
    ],
)  # fmt: skip
def test_the_kind_of_answer_is_read_off_the_words_that_ask(text: str, kinds: set[str]) -> None:
    assert asking(text).kinds == kinds


def test_a_distance_counts_for_more_in_chinese_and_most_where_the_kind_of_answer_is_unsure() -> None:
    egg, boil = read_question("How do I boil an egg?"), read_question("What's the way to boil eggs?")
    how, way, why = map(read_question, ("怎么煮鸡蛋？", "煮鸡蛋有什么方法？", "鸡蛋"))
    assert closeness(0.9, egg, boil) == 0.9
    assert 0.8 < closeness(0.9, how, why) < closeness(0.9, how, way) < 0.9
    assert closeness(1.0, how, why) == closeness(1.0, how, way) == 1.0
