"""The product's version, for records and `doctor`."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


def version() -> str:
    """Version of the installed package; "source" when it runs from a checkout that was never installed."""
    try:
        return installed_version("trilemma")
    except PackageNotFoundError:
        return "source"
