"""Who drafts tokens, and how many."""

from __future__ import annotations

from core_engine.variables.entry import Variable

LOOK_UPS = ("ngram",)  # forms of draft that need no file and read tokens alone
TRAINED_DRAFTS = ("draft", "medusa", "eagle", "self")

SPECULATION_VARIABLES = (
    Variable(
        "speculation",
        "choice",
        "off",
        group="speculation",
        choices=("off", *LOOK_UPS, *TRAINED_DRAFTS),
        moves=("itl_s", "output_tokens_per_s", "e2e_s"),
        derives=("activation_peak_bytes",),
        peers={
            "vLLM": "--speculative-config",
            "SGLang": "--speculative-algorithm",
            "TensorRT-LLM": "speculative_config",
            "llama.cpp": "--model-draft",
        },
        help="Who proposes tokens that the model verifies several at a time; the output stays the model's own.",
    ),
    Variable(
        "draft_model",
        "path",
        "shipped",
        group="speculation",
        choices=("shipped",),
        paths="a file made by trilemma train-draft",
        moves=("itl_s", "output_tokens_per_s"),
        peers={
            "vLLM": "--speculative-config",
            "SGLang": "--speculative-draft-model-path",
            "TensorRT-LLM": "speculative_config",
            "llama.cpp": "--model-draft",
        },
        help="The trained draft of speculation=draft, medusa, eagle and self: the embedded model's own, or a file.",
    ),
    Variable(
        "num_draft_tokens",
        "int",
        4,
        group="speculation",
        minimum=1,
        maximum=16,
        unit="tokens",
        moves=("itl_s", "output_tokens_per_s"),
        derives=("activation_peak_bytes",),
        peers={
            "vLLM": "num_speculative_tokens",
            "SGLang": "--speculative-num-steps",
            "TensorRT-LLM": "max_draft_len",
            "llama.cpp": "--draft-max",
        },
        help="Speculation only: most tokens proposed for a sequence at a time.",
    ),
    Variable(
        "draft_control",
        "choice",
        "adaptive",
        group="speculation",
        choices=("adaptive", "fixed"),
        moves=("itl_s", "output_tokens_per_s"),
        help="adaptive: fewer drafts where few are accepted, none where steps with them are seen to be slower.",
    ),
)
