"""Everything that reads text or bytes from outside, as fuzz targets: each takes bytes and may raise typed errors only.

A target mutates valid inputs. Where a checksum guards a format, half of the mutations change the content and make the
checksum right again, so that the code behind the checksum is reached too. `test_fuzz.py` draws tries from these with
Hypothesis, `atheris_run.py` with coverage feedback.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import millrace as mr
from millrace.host.base.errors import MillraceError
from millrace.host.hbtree import file as container
from millrace.hw import image as images
from millrace.hw import signing
from millrace.ingest.arguments import parse_condition
from millrace.ingest.durations import parse_lateness, parse_window
from millrace.state.join_state import read_state
from millrace.state.manifest import seal, unseal
from tests.boards.cards import small_image
from tests.boards.test_image import PRIVATE, PUBLIC, unzipped, zipped
from tests.fuzz import mutate
from tests.fuzz.links import (
    REQUESTS,
    fuzz_pynq_child,
    fuzz_pynq_link,
    fuzz_serial_link,
    pynq_responses,
    serial_responses,
)


@dataclass(frozen=True)
class Target:
    """`run` processes an input; `make` draws one; every error must be one of `errors`."""

    run: Callable[[bytes], None]
    make: Callable[[Random], bytes]
    errors: tuple[type[Exception], ...]

    def check(self, data: bytes) -> bool:
        """Whether the input was accepted; fails on any other than the typed errors."""
        try:
            self.run(data)
        except self.errors as error:
            str(error).encode()  # a message must be printable
            return False
        return True


# Conditions and windows.

CONDITIONS = (
    "r.power < s.power AND r.cool > s.cool",
    "abs(r.x - s.x) <= 5 OR r.x = s.x + 100",
    "s.x BETWEEN r.lo AND r.hi AND r.a > 5",
    "r.ts - s.ts <= INTERVAL '10 minutes' AND r.ts >= s.ts - INTERVAL 1 DAY",
    "r.a = s.a AND r.b <> 'text' AND s.c = TRUE AND r.d = X'00ff'",
    "-r.x * 2 + 1.5e3 >= -(s.x - .25) AND r.x <> 1",
    "r.\"odd name\" = s.y AND (r.x < s.x) AND r.t > TIMESTAMP '2024-02-29 12:00:00'",
    "10 minutes",
    "1 hour 30 minutes",
    "1000 rows",
)
WORDS = (
    *"()+-*/<>=,.'\"%;",
    *("r", "s", "x", "abs", "AND", "OR", "NOT", "BETWEEN", "INTERVAL", "NULL", "IN", "CASE", "SELECT", "--", "/*"),
    *("<=", ">=", "<>", "!=", "0", "1e999", "9" * 400, "0x1F", "'", "''", "DATE", "TIMESTAMP", "TRUE", "minutes"),
)


def _is_text(data: bytes) -> bool:
    """Whether bytes are text as `_text` makes it; atheris makes others."""
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _read_text(data: bytes) -> None:
    text = data.decode("utf-8", "surrogatepass" if _is_text(data) else "replace")
    for read in (parse_condition.__globals__["_parsed"].__wrapped__, parse_window, parse_lateness):
        try:
            read(text)
        except (mr.PredicateError, mr.ArgumentError) as error:
            str(error)


def _text(rng: Random) -> bytes:
    return mutate.text_of(rng, CONDITIONS, WORDS).encode("utf-8", "surrogatepass")


# Images.


@cache
def _signed() -> bytes:
    return small_image().signed(PRIVATE).pack()


@cache
def _signed_parts() -> dict[str, bytes]:
    return unzipped(_signed())


def _image(rng: Random) -> bytes:
    if rng.random() < 0.4:
        return mutate.bytes_of(rng, _signed())
    files = _signed_parts()
    member = rng.choice((images.MANIFEST, images.SIGNATURE))
    content = mutate.json_of(rng, json.loads(files[member]))
    if member == images.MANIFEST and isinstance(content, dict):
        content.pop("digest", None)
        content["digest"] = hashlib.sha256(images._canonical(content)).hexdigest()
    return zipped({**files, member: images._canonical(content)})


def _read_image(data: bytes) -> None:
    image = images.unpack(data, "the image")
    str(image.manifest).encode()
    signing.verify(image.signature, image.manifest.text(), PUBLIC) if image.signature else None
    images.check(image, None, PUBLIC)


# Index files.


@cache
def _scratch() -> Path:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=folder)) / "index"


@cache
def _index_files() -> tuple[bytes, ...]:
    found = []
    for layout, values in (("implicit", None), ("implicit", ["a", None, "c"]), ("regular", ["a", None, "c"])):
        mr.OrderedIndex(pa.array([7, 5, 9]), values, layout=layout).save(_scratch())  # type: ignore[arg-type]
        found.append(_scratch().read_bytes())
    return tuple(found)


def _index_file(rng: Random) -> bytes:
    seed = rng.choice(_index_files())
    if rng.random() < 0.3:
        return mutate.bytes_of(rng, seed)
    about, sections = container.unpack(seed, "the index")
    parts: dict[str, Any] = {name: data.tobytes() for name, data in sections.items()}
    if rng.random() < 0.5:
        changed = mutate.json_of(rng, about)
        about = changed if isinstance(changed, dict) else about
    else:
        name = rng.choice(list(parts))
        parts[name] = mutate.bytes_of(rng, parts[name])
    return container.pack(about, parts)


def _read_index(data: bytes) -> None:
    _scratch().write_bytes(data)
    index = mr.OrderedIndex.open(_scratch(), threads=1)
    index.lookup(pa.array([5, 6]))
    index.range(0, 10)
    if zlib.crc32(data) % 8 == 0:  # an update costs more than all of the above
        index.update(delete=pa.array([5]))
    len(index)


# States of joins.

ARGUMENTS: dict[str, Any] = {"on": "r.x = s.x", "window": "5 rows", "time": "ts", "threads": 1, "index": "scan"}


@cache
def state() -> mr.StateDelta:
    join = mr.WindowJoin(**ARGUMENTS)
    for side, x in (("r", [1, 2]), ("s", [2, 3])):
        join.push(side, pa.table({"x": x, "ts": x, "name": ["a", None]}))
    return join.state()


@cache
def arguments() -> dict[str, str]:
    return mr.WindowJoin(**ARGUMENTS)._arguments()


@cache
def _content() -> Any:
    return unseal("millrace_state", 1, state().manifest)


def _manifest(rng: Random) -> bytes:
    if rng.random() < 0.2:
        return mutate.bytes_of(rng, state().manifest)
    content = mutate.json_of(rng, _content())
    return seal("millrace_state", 1, content)


def _read_manifest(data: bytes) -> None:
    _go_on(data, state().added)


def _run(rng: Random) -> bytes:
    return mutate.bytes_of(rng, rng.choice(list(state().added.values())))


def _read_run(data: bytes) -> None:
    """A state whose first run is this one, under the name of its content."""
    name, first = hashlib.sha256(data).hexdigest(), min(state().added)
    text = json.dumps(_content()).replace(first, name)
    _go_on(seal("millrace_state", 1, json.loads(text)), {**state().added, name: data})


def _go_on(manifest: bytes, runs: dict[str, bytes]) -> None:
    read_state(manifest, runs, arguments())  # refuses most; a join is made of the others
    join = mr.WindowJoin.restore(manifest, runs, **ARGUMENTS)
    try:
        join.push("r", pa.table({"x": [3], "ts": [9], "name": ["b"]}))
        join.flush()
        join.state()
    finally:
        join._engine.close()


# Boards.


def _request(rng: Random) -> bytes:
    seed = rng.choice(REQUESTS)
    if rng.random() < 0.5:
        return json.dumps(mutate.json_of(rng, seed)).encode()
    return mutate.bytes_of(rng, json.dumps(seed).encode())


TARGETS = {
    "condition": Target(_read_text, _text, ()),
    "image": Target(_read_image, _image, (mr.BitstreamError,)),
    "index file": Target(_read_index, _index_file, (mr.StateError,)),
    "manifest": Target(_read_manifest, _manifest, (MillraceError,)),
    "run": Target(_read_run, _run, (MillraceError,)),
    "serial link": Target(fuzz_serial_link, serial_responses, (mr.DeviceFault,)),
    "pynq link": Target(fuzz_pynq_link, pynq_responses, (mr.DeviceFault,)),
    "pynq child": Target(fuzz_pynq_child, _request, ()),
}
