"""What to change next, and what not to: evidence, causes that match it, and the changes that they propose."""

__all__ = [
    "advice",
    "advice_table",
    "diagnose",
    "evidence",
    "finding",
    "from_run",
    "metrics_page",
    "numbers_file",
    "prediction",
    "record",
    "record_score",
    "record_table",
    "speculation",
]
