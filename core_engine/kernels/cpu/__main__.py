"""`python -m core_engine.kernels.cpu`: build the compiled kernels now and say in one line what came of it. Exits 0."""

from __future__ import annotations

from core_engine.kernels.choice import COMPILED, compiled_here


def main() -> None:
    """A machine without a compiler is no failure: torch's operators run there."""
    found = compiled_here()
    if found.kernels == COMPILED:
        print(f"Compiled kernels: built, {found.instructions}, {found.vector_bits}-bit vectors")
    else:
        print(f"Compiled kernels: none, torch's operators are used instead ({found.kernels_reason})")


if __name__ == "__main__":
    main()
