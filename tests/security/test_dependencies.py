"""Dependencies: each pinned, each with a licence that the product can keep to, none without an entry in the list."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import licences
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (.+) \|$", re.MULTILINE)
NOT_PINNED = {"lm-eval"}  # the extra `eval`: another harness, whose own pins would decide ours


def listed() -> dict[tuple[str, str], str]:
    """(name, version) -> licence, as docs/licences.md has them."""
    rows = ROW.findall(licences.LIST.read_text("utf-8"))
    return {(name, pinned): licence for name, pinned, licence in rows if name not in ("package", "---")}


def test_every_pin_is_in_the_list_with_a_licence_that_is_accepted() -> None:
    found = listed()
    assert set(found) == set(licences.pins()), "run: python benchmarks/licences.py"
    assert {key: licence for key, licence in found.items() if not licences.is_accepted(licence)} == {}


def test_the_list_says_what_installed_packages_say() -> None:
    checked = 0
    for (name, pinned), licence in listed().items():
        try:
            there = version(name)
        except PackageNotFoundError:
            continue
        if there.partition("+")[0] == pinned:
            assert licences.licence_of(name) == licence, name
            checked += 1
    assert checked > 20


def test_every_dependency_is_pinned_to_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    pinned = {canonicalize_name(name) for name, _ in licences.pins()}
    assert {canonicalize_name(Requirement(line).name) for line in asked} - pinned == NOT_PINNED
    assert len(pinned) == len(list(licences.pins()))


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "AGPL-3.0-or-later", "unknown", "MIT AND GPL-2.0", "", "LicenseRef-x"]
)
def test_a_licence_that_binds_the_whole_product_is_not_accepted(licence: str) -> None:
    assert not licences.is_accepted(licence)


def test_one_of_several_licences_is_enough() -> None:
    assert licences.is_accepted("GPL-2.0 OR MIT") and licences.is_accepted("(MIT OR GPL-2.0) AND BSD-3-Clause")
