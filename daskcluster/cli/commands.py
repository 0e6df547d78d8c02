"""Commands that are no jobs: ``daskcluster convert``, ``shuffle``, ``info``, ``report`` and ``demo``."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, replace
from typing import Any

import click

from daskcluster.cli.console import Console, EngineOptions
from daskcluster.cli.options import (
    INPUT,
    OUTPUT,
    SIZE,
    SectionedCommand,
    complete_path,
    declared_option,
    option,
    overwrite_option,
    takes_console,
    takes_engine,
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
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted conversion after its last whole chunk, and keep what is finished if this "
    "one is interrupted.",
)
@takes_console
def convert(
    source: str, output: str, console: Console, opening: dict[str, Any], **options: Any
) -> None:
    """Convert the rows of SOURCE to a Zarr array with suitable chunks, in bounded memory.

    SOURCE is anything that fit takes: .npy, .npz, .parquet, .arrow, .feather, .orc, .jsonl, .csv, .tsv,
    .h5 and .h5ad files, a folder or a pattern of them, or Zarr. Sparse rows (scipy's .npz, CSR in Zarr)
    stay sparse.
    """
    from daskcluster.data.convert import convert
    from daskcluster.reports.pages import rows_of_record

    with console.watching() as callbacks:
        done = convert(source, output, callbacks=callbacks, **options, **opening)
    console.emit(asdict(done), rows_of_record(asdict(done)))


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
    type=SIZE,
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
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted shuffle of the same arguments, and keep what is finished if this one is "
    "interrupted. Needs --random-state.",
)
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
    from daskcluster.reports.pages import rows_of_record

    given = {**options, **opening}
    if not dry_run:
        with console.watching() as callbacks:
            done = shuffle(source, output, callbacks=callbacks, random_state=random_state, **given)
        console.emit(asdict(done), rows_of_record(asdict(done)))
        return
    plan = prepare(source, output, **given)[1]
    how = f"through {plan.n_buckets:,} buckets on disk" if plan.n_buckets else "in memory"
    rows = [
        ("rows", f"{plan.n_rows:,} x {plan.n_features:,} {plan.dtype}"),
        ("passes", f"{plan.passes}, {how}"),
        ("read", format_bytes(plan.bytes_read)),
        ("written", f"{format_bytes(plan.bytes_written)} before compression"),
    ]
    if plan.scratch is not None:
        free, needed = format_bytes(plan.scratch_free or 0), format_bytes(plan.bytes_scratch)
        rows.append(("scratch", f"{needed}, {free} free in {plan.scratch}"))
    memory = f"{format_bytes(plan.memory)} of {format_bytes(plan.memory_limit)}"
    console.emit({"dry_run": True, **plan.facts()}, [*rows, ("memory", memory)])


@click.command("info", cls=SectionedCommand)
@click.argument("source", metavar="SOURCE_OR_MODEL", shell_complete=complete_path)
@takes_source("scale")
@takes_console  # metadata only: there is no progress to show
def info(source: str, opening: dict[str, Any], console: Console) -> None:
    """Describe a dataset or a model from its metadata."""
    from daskcluster.models.fitted import is_model, load_document
    from daskcluster.reports.pages import rows_of_model, rows_of_record

    options = opening["storage_options"]
    if opening["array"] is None and is_model(source, storage_options=options):
        model = load_document(source, options)
        record = {"kind": "model", "model": model.kind, "n_clusters": model.n_clusters}
        record |= {"n_features": model.n_features, **model.facts(), **model.body()}
        console.emit(record, [("model", model.kind), *rows_of_model(model)])
        return
    from daskcluster.data.info import arrays_at, describe
    from daskcluster.errors import InvalidDataError
    from daskcluster.jobs.run import open_metadata

    try:
        facts = describe(open_metadata(source, opening))
    except InvalidDataError:
        arrays = None if opening["array"] else arrays_at(source, storage_options=options)
        if arrays is None:
            raise
        console.emit({"kind": "group", "arrays": arrays}, list(arrays.items()))
        return

    rows = rows_of_record(facts)
    if account := facts.get("coreset"):  # metadata, which are not checked
        rows.append(("coreset", json.dumps(account)))
    console.emit({"kind": "dataset", **facts}, rows)


_FEATURES, _GROUPS, _SPREAD = 16, 20, 1.5
"""Rows of the demo: its groups overlap a little, so that the fit is not trivial."""


@click.command("report", cls=SectionedCommand)
@click.argument("model", shell_complete=complete_path)
@option(
    "--data",
    section=INPUT,
    metavar="SOURCE",
    help="Also evaluate the model on these rows, in one pass, and show example rows of its clusters.",
)
@takes_source("scale")
@option(
    "--output",
    section=OUTPUT,
    required=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File to write: .html (page), .png (charts), .md (tables) or .json (numbers).",
)
@overwrite_option
@takes_engine
@takes_console
def report(
    model: str,
    data: str | None,
    output: str,
    overwrite: bool,
    opening: dict[str, Any],
    engine_options: EngineOptions,
    console: Console,
) -> None:
    """Write a self-contained report on MODEL: convergence, cost, clusters."""
    from daskcluster.reports.pages import check_output

    check_output(output, overwrite=overwrite)
    from daskcluster.data.spec import RowsSpec
    from daskcluster.estimators.opening import open_stored, prepared
    from daskcluster.jobs import examine
    from daskcluster.models.fitted import load_document
    from daskcluster.reports.contents import MOST_EXAMPLES, Report

    found = load_document(model, opening["storage_options"])
    clusters = None
    if data is not None:
        spec = RowsSpec.among(opening, found.feature_names)
        where = {"weights": opening["weights"], "storage_options": opening["storage_options"]}
        with engine_options.open() as engine, console.watching() as callbacks:
            hearing: dict[str, Any] = {"engine": engine, "callbacks": callbacks}
            dataset = prepared(*open_stored(data, spec, **where, **hearing), **hearing)
            clusters = examine(found, dataset, shown=MOST_EXAMPLES, **hearing)
        clusters = replace(clusters, title=f"Clusters in {data}")
    Report(found, title=model, data=clusters).save(output, overwrite=overwrite)
    console.emit({"output": output, "model": model}, [("report", output)])


@click.command("demo")
@click.option("--rows", "n_rows", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Processes of the local Dask cluster; 0: threads of this process.",
)
@click.option(
    "--output",
    default="daskcluster-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder for all outputs.",
)
@click.option("--overwrite", is_flag=True, help="Replace the outputs of an earlier demo.")
@takes_console
def demo(n_rows: int, workers: int, output: str, overwrite: bool, console: Console) -> None:
    """Generate a Zarr dataset, cluster it on a local Dask cluster, and write model, labels and a report."""
    from daskcluster import jobs
    from daskcluster.data.generate import generate
    from daskcluster.data.writer import good_chunk_rows
    from daskcluster.engine.local import default_threads
    from daskcluster.models.fitted import load_document
    from daskcluster.reports.contents import MOST_EXAMPLES, Report
    from daskcluster.reports.pages import check_output, format_seconds, rows_of_record

    say = (lambda text: None) if console.as_json else click.echo
    names = ("rows.zarr", "model.zarr", "labels.zarr", "report.html")
    rows, model, labels, page = (os.path.join(output, name) for name in names)
    os.makedirs(output or ".", exist_ok=True)
    jobs.check_outputs({"rows": rows, "model": model, "labels": labels}, {}, None, overwrite)
    check_output(page, overwrite=overwrite)
    with console.watching() as callbacks:
        say(f"1. {n_rows:,} rows of {_FEATURES} features, {_GROUPS} groups -> {rows}")
        # In 8 MB chunks, small data would have too few chunks for several workers.
        chunk_rows = min(good_chunk_rows(4 * _FEATURES, n_rows), max(1024, -(-n_rows // 16)))
        generate(
            rows,
            n_rows=n_rows,
            n_features=_FEATURES,
            n_clusters=_GROUPS,
            chunk_rows=chunk_rows,
            spread=_SPREAD,
            n_threads=default_threads(),
            overwrite=overwrite,
            callbacks=callbacks,
        )
        where = f"a Dask cluster of {workers} processes" if workers else "threads of this process"
        say(f"2. k-means on {where} -> {model}, {labels}")
        with EngineOptions(workers=workers or None).open() as engine:
            record = jobs.fit(
                rows,
                n_clusters=_GROUPS,
                model=model,
                labels=labels,
                random_state=0,
                overwrite=overwrite,
                engine=engine,
                callbacks=callbacks,
            ).as_dict()
        say(f"3. The report -> {page}\n")
        facts = [("data", rows), ("labels", labels), ("time", format_seconds(record["seconds"]))]
        fitted = load_document(model)
        clusters = jobs.examine(fitted, rows, shown=MOST_EXAMPLES, callbacks=callbacks)
        found = Report(fitted, title="daskcluster demo", data=clusters, facts=facts)
        found.save(page, overwrite=overwrite)
    console.emit({**record, "report": page, "source": rows}, rows_of_record(record))
    rows, model, more = map(shlex.quote, (rows, model, os.path.join(output, "more.zarr")))
    say(
        "\nNext:\n"
        f"  daskcluster info {rows}\n"
        f"  daskcluster info {model}\n"
        f"  daskcluster fit {rows} --n-clusters {2 * _GROUPS} --model {more}\n"
        f"  daskcluster score {model} {rows}"
    )
