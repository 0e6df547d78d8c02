"""Commands on rows alone: ``daskcluster convert``, ``shuffle`` and ``info``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from daskcluster.cli.main import Console
from daskcluster.cli.options import (
    SectionedCommand,
    Size,
    complete_path,
    declared_option,
    overwrite_option,
    takes_console,
    takes_source,
)
from daskcluster.parameters import shared

_source = click.argument("source", shell_complete=complete_path)
_output = click.argument("output", shell_complete=complete_path)
_chunk_rows = click.option(
    "--chunk-rows", type=click.IntRange(min=1), help="Rows per chunk. Default: about 8 MB."
)
_shard_rows = click.option(
    "--shard-rows", type=click.IntRange(min=1), help="Rows per shard; a shard holds many chunks."
)


@click.command("convert")
@_source
@_output
@click.option(
    "--dtype",
    metavar="DTYPE",
    help="Dtype of the output, e.g. float32. Default: that of the source.",
)
@_chunk_rows
@_shard_rows
@takes_source("missing", "grid", "scale")
@overwrite_option
@takes_console
def convert(
    source: str, output: str, console: Console, opening: dict[str, Any], **options: Any
) -> None:
    """Convert the rows of SOURCE to a Zarr array with suitable chunks, in bounded memory.

    SOURCE is anything that fit takes: .npy, .npz, .parquet, .arrow, .feather, .ipc, .lance, .csv, .tsv,
    .jsonl, .ndjson, .h5 and .h5ad files, a folder or a pattern of them, or Zarr. Sparse rows (scipy's
    .npz, CSR in Zarr) stay sparse.
    """
    from daskcluster.data.convert import convert

    with console.watching() as callbacks:
        done = convert(source, output, callbacks=callbacks, **options, **opening)
    console.emit(asdict(done), _rows_of_output(asdict(done)))


@click.command("shuffle")
@_source
@_output
@declared_option(
    shared.RANDOM_STATE,
    help="Seed; the same seed and number of rows give the same order. Default: a fresh one.",
)
@click.option(
    "--with-index",
    metavar="URL",
    help="Also write the permutation: the source row of every output row, as a 1-D int64 Zarr array.",
)
@_chunk_rows
@_shard_rows
@click.option(
    "--memory-limit",
    type=Size(),
    help="Memory limit, e.g. 4GB; larger data use scratch files. Default: a quarter of the memory.",
)
@click.option(
    "--scratch",
    metavar="DIR",
    help="Local folder for rows that do not fit in memory. Default: next to a local output, else the "
    "system's folder for temporary files.",
)
@takes_source("columns", "missing", "grid", "scale")
@overwrite_option
@click.option("--dry-run", is_flag=True, help="Show bytes read, written and held, then exit.")
@takes_console
def shuffle(
    source: str,
    output: str,
    random_state: int | None,
    dry_run: bool,
    console: Console,
    opening: dict[str, Any],
    **options: Any,
) -> None:
    """Write the rows of SOURCE to OUTPUT in random order, as Zarr, in bounded memory.

    Every order is equally likely. Mini-batch methods read rows that are sorted on disk best after this.
    Weighted rows become a group with the arrays X and weights; sparse rows stay sparse, as a CSR group.
    """
    from daskcluster.data.shuffle import prepare, shuffle
    from daskcluster.host import format_bytes

    given = {**options, **opening}
    if not dry_run:
        with console.watching() as callbacks:
            done = shuffle(source, output, callbacks=callbacks, random_state=random_state, **given)
        console.emit(asdict(done), _rows_of_output(asdict(done)))
        return
    plan = prepare(source, output, **given)[1]
    rows = [
        ("rows", f"{plan.n_rows:,} x {plan.n_features:,} {plan.dtype}"),
        ("passes", f"{plan.passes}, {_how(plan.n_buckets)}"),
        ("read", format_bytes(plan.bytes_read)),
        ("written", f"{format_bytes(plan.bytes_written)} before compression"),
    ]
    if plan.scratch is not None:
        free, needed = format_bytes(plan.scratch_free or 0), format_bytes(plan.bytes_scratch)
        rows.append(("scratch", f"{needed}, {free} free in {plan.scratch}"))
    memory = f"{format_bytes(plan.memory)} of {format_bytes(plan.memory_limit)}"
    console.emit({"dry_run": True, **plan.facts()}, [*rows, ("memory", memory)])


def _rows_of_output(done: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what `convert` or `shuffle` wrote as lines of text."""
    from daskcluster.reports.pages import format_seconds

    rows = [("output", str(done["url"]))]
    if done["array"] is not None:
        rows = [
            ("output", f"{done['url']} (rows in {done['array']}, weights in {done['weights']})")
        ]
    if done.get("index"):
        rows.append(("index", done["index"]))
    rows.append(("rows", f"{done['n_rows']:,} x {done['n_features']:,} {done['dtype']}"))
    if done.get("n_entries") is not None:
        rows.append(("stored values", f"{done['n_entries']:,}"))
    rows.append(("chunks", f"{done['chunk_rows']:,} rows"))
    if "random_state" in done:
        rows.append(("seed", str(done["random_state"])))
        rows.append(("passes", f"{done['passes']}, {_how(done['n_buckets'])}"))
    return [*rows, ("time", format_seconds(done["seconds"]))]


def _how(n_buckets: int) -> str:
    return f"through {n_buckets:,} buckets on disk" if n_buckets else "in memory"


_OF_A_CORESET = {
    "kind": "{}",
    "size": "{:,} rows",
    "n_rows": "for {:,}",
    "source": "of {}",
    "total_weight": "that weigh {:,.6g}",
    "seed": "seed {}",
}
"""Metadata of a coreset, and their format."""


@click.command("info", cls=SectionedCommand)
@click.argument("source", metavar="SOURCE_OR_MODEL", shell_complete=complete_path)
@takes_source("scale")
@takes_console  # metadata only: there is no progress to show
def info(source: str, opening: dict[str, Any], console: Console) -> None:
    """Describe a dataset or a model from its metadata."""
    from daskcluster.models.fitted import is_model, load_document

    options = opening["storage_options"]
    if opening["array"] is None and is_model(source, storage_options=options):
        from daskcluster.reports.pages import rows_of_model

        model = load_document(source, options)
        record = {"kind": "model", "model": model.kind, "n_clusters": model.n_clusters}
        record |= {"n_features": model.n_features, **model.facts(), **model.body()}
        console.emit(record, [("model", model.kind), *rows_of_model(model)])
        return
    from daskcluster.data.info import describe, list_arrays
    from daskcluster.errors import InvalidDataError
    from daskcluster.host import format_bytes
    from daskcluster.jobs.run import open_metadata

    try:
        facts = describe(open_metadata(source, opening))
    except InvalidDataError:
        arrays = None if opening["array"] else list_arrays(source, storage_options=options)
        if arrays is None:
            raise
        console.emit({"kind": "group", "arrays": arrays}, list(arrays.items()))
        return

    def text(name: str, value: Any) -> str:
        if name.startswith("bytes"):
            return format_bytes(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            names = name in ("codecs", "columns", "feature_columns")
            return (", " if names else " x ").join(map(str, value))
        return f"{value:,}" if isinstance(value, int) else str(value)

    rows = [
        (name.replace("_", " "), text(name, value))
        for name, value in facts.items()
        if value is not None and name != "coreset"
    ]
    rows += _rows_of_coreset(facts.get("coreset", {}))
    console.emit({"kind": "dataset", **facts}, rows)


def _rows_of_coreset(account: Any, indent: str = "") -> list[tuple[str, str]]:
    """Return lines on the origin of a coreset and its parts from its metadata, which are not checked."""
    if not account or not isinstance(account, Mapping):
        return []
    shown = []
    for name, text in _OF_A_CORESET.items():
        value = account.get(name)
        if isinstance(value, (int, float)) or (isinstance(value, str) and ":" not in text):
            shown.append(text.format(value))
    rows = [(f"{indent}coreset", ", ".join(shown))]
    parts = account.get("parts")
    for part in parts if isinstance(parts, list) else ():
        rows += _rows_of_coreset(part, f"{indent}  ")
    return rows
