"""The two errors a user can cause or meet; everything else is a fault of ours.

They live in the lowest package so that every layer raises the same types and the command line maps them to
exit codes once.
"""


class InputError(ValueError):
    """The input is wrong (exit code 2): one line naming the field, the value and what is accepted."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field, self.value, self.accepted = field, value, accepted
        super().__init__(f"{field}: {value!r} is not accepted; accepted: {accepted}")


class CannotRunError(RuntimeError):
    """It cannot run here (exit code 3): one line naming what is missing and what to do."""
