"""Fuzzes a target with coverage feedback: `python -m tests.fuzz.atheris_run TARGET -runs=100000` (libFuzzer's options).

It needs atheris, in an environment of its own that also sees this project's packages, and stops at the first error that
is not typed; libFuzzer writes the input to a file. Half of the inputs are mutated by the target, which repairs
checksums, half by libFuzzer.
"""

from __future__ import annotations

import sys
from random import Random

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["millrace.hw", "millrace.predicate", "millrace.state", "zipfile", "json"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz the target that the first argument names."""
    target = TARGETS[sys.argv.pop(1)]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = Random(seed)
        return target.make(rng)[:max_size] if rng.random() < 0.5 else atheris.Mutate(data, max_size)

    atheris.Setup(sys.argv, target.check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
