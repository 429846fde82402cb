"""The ledger's sentences and arithmetic on a Chinese page."""

from __future__ import annotations

import pytest

from app.i18n.phrases import in_language


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "16,384 tokens are more than the model's maximum of 2,048; computed all the same",
            "16,384 token 超过模型上限 2,048；仍按此计算",
        ),
        ("pp: 16 is not accepted; accepted: at most one stage for each of the 12 layers",
         "pp：不接受 16；可接受：不多于 12 层，每级至少一层"),
        ("2 x 32 layers x 8 KV heads x 128 x 2 B = 131,072 B a token",
         "2 x 32 层 x 8 KV 头 x 128 x 2 B = 131,072 B 每 token"),
        ("9 blocks x 16 tokens in int4, 5.12 bits an element with scales = 61,440 B",
         "9 块 x 16 个 int4 token，含缩放系数每元素 5.12 位 = 61,440 B"),
        ("the open block of 8 running requests in float32: 1,024 B",
         "8 个运行中请求的未满块，float32：1,024 B"),
        ("the sender kept 6.03 of the 6.44 requests/s that were scheduled",
         "计划每秒发送 6.44 个请求，发送端实际只达到 6.03 个"),
        ("warm-up of disaggregated did not settle within 10 % in 4 runs",
         "disaggregated 的预热跑了 4 次，仍未稳定到 10 % 以内"),
        ("3 requests of continuous failed and are counted in no curve", "continuous 有 3 个请求失败，未计入任何曲线"),
    ],
)  # fmt: skip
def test_a_known_phrase_is_chinese_and_its_numbers_stay(english: str, chinese: str) -> None:
    assert in_language("zh", english) == chinese


def test_names_of_operators_and_fields_are_not_torn_apart() -> None:
    assert in_language("zh", "mlp.experts.down_proj, num_key_value_heads, layers_block_type") == (
        "mlp.experts.down_proj, num_key_value_heads, layers_block_type"
    )


def test_english_stays_as_it_is() -> None:
    text = "2 x 32 layers x 8 KV heads"
    assert in_language("en", text) == text
