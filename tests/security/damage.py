"""Ways to damage a folder that holds a sealed document: by accident, or by somebody who knows the format.

Every way takes a generator and the files of the folder, and changes some of them in place. Those of a
person who knows the format leave all checksums right.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.storage.document import HEAD

Files = MutableMapping[str, bytes]

TRAVERSAL = (
    "../escape", "/etc/passwd", "centres/../../x", "", ".", "..", "x", "C", "file:///etc/passwd",
    "s3://bucket/x", "centres\x00", "a" * 65, "centres/c", "ünicode", "simplecache::file:///etc/passwd",
)  # fmt: skip
SIZES = (0, -1, 1, 2, 7, 2**31, 2**32 + 1, 10**15, 2**48, 2**63, 10**30, 1.0, True, None, "3", [3])
DTYPES = (
    "float32",
    "float64",
    "int64",
    "object",
    "|O8",
    "complex128",
    "int8",
    "",
    None,
    ["f4"],
    {"a": 1},
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**15, 2**63, -(10**30), 10**400, 0.5, 1e308, float("inf"), "", "x",
    "\x1b]0;title\x07", "\ud800", "../../etc/passwd", "tcp://evil:8786", "<script>alert(1)</script>",
    "x" * 100_000, [], {}, [[]], [{}], {"a": {"b": []}}, list(range(1000)), "__import__('os').system('x')",
    "KMeans", "KernelKMeans", "MiniBatchKernelKMeans", "VariationalGaussianMixture", "cosine", "rbf",
)  # fmt: skip


def pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


# -- accidents ---------------------------------------------------------------------------------------


def change_bytes(rng: np.random.Generator, files: Files) -> None:
    """Cut a file short, flip a bit, overwrite, insert or repeat a part of it."""
    name = pick(rng, sorted(files))
    data = bytearray(files[name])
    place = int(rng.integers(max(1, len(data))))
    way = int(rng.integers(5)) if data else 3
    if way == 0:
        del data[place:]
    elif way == 1:
        data[place] ^= 1 << int(rng.integers(8))
    elif way == 2:
        data[place : place + int(rng.integers(1, 9))] = rng.bytes(int(rng.integers(9)))
    elif way == 3:
        data.insert(place, int(rng.integers(256)))
    else:
        data[place:place] = data[place : int(rng.integers(place, len(data) + 1))]
    files[name] = bytes(data)


def lose_a_file(rng: np.random.Generator, files: Files) -> None:
    """Remove a file, or exchange two of them."""
    one, other = pick(rng, sorted(files)), pick(rng, sorted(files))
    if one == other or rng.random() < 0.5:
        del files[one]
    else:
        files[one], files[other] = files[other], files[one]


# -- by somebody who knows the format ----------------------------------------------------------------


def head_of(files: Files) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files[HEAD])
    return found


def sign(files: Files, head: dict[str, Any], inside: str = "null") -> None:
    """Write the head with the checksum that belongs to it; `inside` stands for every text HERE."""
    attributes = head["attributes"]
    attributes.pop("sha256", None)
    canonical = json.dumps(attributes, sort_keys=True, separators=(",", ":"))
    canonical = canonical.replace('"HERE"', inside)
    attributes["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    files[HEAD] = json.dumps(head).replace('"HERE"', inside).encode()


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) below `value`."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = [(value, key) for key, _ in pairs]
    for _, inner in pairs:
        found += places_in(inner)
    return found


def change_a_value(rng: np.random.Generator, files: Files) -> None:
    """Put something else at any place of the document, or nothing, or something next to it."""
    head = head_of(files)
    holder, key = pick(rng, places_in(head["attributes"]))
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    elif isinstance(holder, dict) and rng.random() < 0.1:
        holder[pick(rng, ("engine", "callbacks", "checkpoint", "__class__", "x"))] = pick(
            rng, VALUES
        )
    else:
        holder[key] = pick(rng, VALUES)
    sign(files, head)


def name_another_scheduler(rng: np.random.Generator, files: Files) -> None:
    """Set parameters that an estimator takes and a model has no business to set."""
    head = head_of(files)
    parameters = head["attributes"]["body"].get("parameters", {})
    for name in ("engine", "callbacks", "checkpoint", "checkpoint_every", "verbose", "n_clusters"):
        if rng.random() < 0.5:
            parameters[name] = pick(rng, VALUES)
    head["attributes"]["body"]["parameters"] = parameters
    sign(files, head)


def rename_an_array(rng: np.random.Generator, files: Files) -> None:
    """Give an array a name that leads elsewhere."""
    head = head_of(files)
    arrays = head["attributes"]["arrays"]
    arrays[pick(rng, TRAVERSAL)] = arrays.pop(pick(rng, sorted(arrays)))
    sign(files, head)


def claim_a_size(rng: np.random.Generator, files: Files) -> None:
    """Claim another shape or dtype of an array, in one place or wherever it is said."""
    head = head_of(files)
    name = pick(rng, sorted(head["attributes"]["arrays"]))
    entry = head["attributes"]["arrays"][name]
    if rng.random() < 0.3:
        entry["dtype"] = pick(rng, DTYPES)
    elif rng.random() < 0.3:
        entry["shape"] = entry["shape"][::-1]
    else:
        entry["shape"] = [pick(rng, SIZES) for _ in range(int(rng.integers(4)))]
    if rng.random() < 0.7:
        agree(files, name, entry)
    sign(files, head)


def agree(files: Files, name: str, entry: dict[str, Any]) -> None:
    """Let the array's own metadata claim the same, chunks as large as a reader expects them."""
    metadata = json.loads(files[f"{name}/zarr.json"])
    metadata["shape"], metadata["data_type"] = entry["shape"], entry["dtype"]
    chunk = list(entry["shape"])
    if chunk and all(type(length) is int and length > 0 for length in chunk):
        row = int(np.prod([float(length) for length in chunk[1:]])) * 8
        chunk[0] = min(chunk[0], max(1, (1 << 26) // max(1, row)))
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = chunk
    files[f"{name}/zarr.json"] = json.dumps(metadata).encode()


def change_the_numbers(rng: np.random.Generator, files: Files) -> None:
    """Write other numbers of the right length, with the right checksum: NaN, infinity, any bits."""
    head = head_of(files)
    name = pick(rng, sorted(head["attributes"]["arrays"]))
    entry = head["attributes"]["arrays"][name]
    part = pick(rng, sorted(file for file in files if file.startswith(f"{name}/c")))
    dtype = np.dtype(entry["dtype"]).newbyteorder("<")
    values = np.frombuffer(files[part], dtype).copy()
    odd = (
        (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308)
        if dtype.kind == "f"
        else (-1, 0, 2**62, -(2**62))
    )
    with np.errstate(over="ignore"):
        values[int(rng.integers(len(values)))] = pick(rng, odd)
    if rng.random() < 0.3:
        values = np.frombuffer(rng.bytes(values.nbytes), dtype)
    files[part] = values.tobytes()
    entry["sha256"] = hashlib.sha256(files[part]).hexdigest()
    sign(files, head)


def nest_deeply(rng: np.random.Generator, files: Files) -> None:
    """Nest values below a place of the document, to any depth."""
    depth = int(pick(rng, (40, 300, 480, 900, 990, 1500, 100_000)))
    head = head_of(files)
    body = head["attributes"]["body"]
    body[pick(rng, sorted(body))] = "HERE"
    sign(files, head)
    opening, closing = pick(rng, ((b"[", b"]"), (b'{"a":', b"}")))
    inner = b"1" if opening != b"[" else b""
    files[HEAD] = files[HEAD].replace(b'"HERE"', opening * depth + inner + closing * depth)
    if depth < 300:  # more cannot be signed this way
        sign(files, head_of(files))


WAYS: dict[str, Callable[[np.random.Generator, Files], None]] = {
    way.__name__: way
    for way in (
        change_bytes,
        lose_a_file,
        change_a_value,
        name_another_scheduler,
        rename_an_array,
        claim_a_size,
        change_the_numbers,
        nest_deeply,
    )
}
ACCIDENTS = ("change_bytes", "lose_a_file")


# -- what no file holds -------------------------------------------------------------------------------


def put_in_its_place(rng: np.random.Generator, file: Path) -> str:
    """Put something that is no plain file in the place of `file`; return what."""
    file.unlink()
    what: str = pick(rng, ("pipe", "folder", "device", "loop", "dangling", "endless file"))
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what == "device":
        file.symlink_to("/dev/zero")
    elif what == "loop":
        file.symlink_to(file.name)
    elif what == "dangling":
        file.symlink_to("/no/such/file")
    else:
        with open(file, "wb") as out:
            out.truncate(1 << 42)
    return what


def remove(file: Path) -> None:
    """Remove whatever `put_in_its_place` left."""
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)
