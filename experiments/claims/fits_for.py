"""What each number format is for, as common advice has it, and what it takes to make. For tables; nothing is judged."""

from __future__ import annotations

# Value of the variable `weights`, and "kv" for every quantized KV format.
FITS_FOR = {
    "none": "when money is no matter and nothing may change",
    "as-stored": "a model that is already quantized",
    "w8a16": "decode of few requests, near exact",
    "w8a8": "many requests at once: the first thing to try",
    "w4a16-rtn": "a single small card, without data to calibrate on",
    "w4a16-awq": "a single small card or an edge device",
    "w4a16-gptq": "a single small card or an edge device",
    "kv": "long context, many sequences",
}
