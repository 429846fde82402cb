"""A number of things as one writes it."""


def counted(number: int, noun: str) -> str:
    """1 thread, 2 threads, 1,312 threads: of a noun whose plural ends in s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
