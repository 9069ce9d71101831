"""Fuzzes a target with coverage feedback: `python -m tests.fuzz.atheris_run TARGET -runs=100000` (libFuzzer's options).

It needs atheris, in an environment of its own that also sees this project's packages, and stops at the first error that
is not typed; libFuzzer writes the input to a file. Half of the inputs are mutated by the target, which repairs
checksums, half by libFuzzer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-untyped]

LENGTHS = ("-len_control=0", "-max_len=65536")
"""From the first input on, none is cut: by default libFuzzer begins with inputs of 4 bytes, which all are refused."""
MUTATIONS = ("-mutate_depth=1",)
"""One mutation per try: by default libFuzzer calls the mutator five times, which takes longer than the try, and half of
these calls discard what the others made."""
READERS = ("hw", "ingest", "predicate", "state", "index_parts.file", "host.hbtree.file")
"""What reads input from outside. Other modules are not instrumented: Numba could not compile them."""


def _others() -> list[str]:
    """All modules of the library but the readers: atheris takes no package of a package."""
    root = Path(__file__).parents[2]
    files = [file.relative_to(root / "sdk") for file in (root / "sdk/millrace").rglob("*.py")]
    files += [Path("millrace") / file.relative_to(root) for file in (root / "host").rglob("*.py")]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    return [name for name in names if not name.startswith(tuple(f"millrace.{reader}" for reader in READERS))]


with atheris.instrument_imports(include=["millrace", "zipfile", "json"], exclude=_others()):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz the target that the first argument names."""
    target = TARGETS[sys.argv.pop(1)]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = Random(seed)
        return target.make(rng)[:max_size] if rng.random() < 0.5 else atheris.Mutate(data, max_size)

    atheris.Setup([sys.argv[0], *LENGTHS, *MUTATIONS, *sys.argv[1:]], target.check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
