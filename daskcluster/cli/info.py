"""``daskcluster info``."""

from __future__ import annotations

from typing import Any

import click

from daskcluster.cli.options import (
    array_option,
    flatten_option,
    output_options,
    storage_option,
    weights_option,
)
from daskcluster.cli.output import emit


@click.command("info")
@click.argument("source", metavar="SOURCE_OR_MODEL")
@array_option
@weights_option
@flatten_option
@storage_option
@output_options
def command(
    source: str,
    array: str | None,
    weights: str | None,
    flatten: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
    progress: bool | None,  # metadata only: there is nothing to show
) -> None:
    """Describe a data set or a model, from metadata alone."""
    from daskcluster.models.persist import is_model

    if array is None and is_model(source, storage_options=storage_options):
        _tell_model(source, storage_options, as_json)
        return
    from daskcluster.data.info import describe, list_arrays
    from daskcluster.data.open import open_dataset
    from daskcluster.errors import InvalidDataError

    try:
        dataset = open_dataset(
            source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
        )
    except InvalidDataError:
        arrays = None if array else list_arrays(source, storage_options=storage_options)
        if arrays is None:
            raise
        emit({"kind": "group", "arrays": arrays}, list(arrays.items()), as_json=as_json)
        return
    facts = describe(dataset)
    emit({"kind": "dataset", **facts}, _rows_of_facts(facts), as_json=as_json)


def _tell_model(url: str, storage_options: dict[str, Any] | None, as_json: bool) -> None:
    from daskcluster.models.persist import load_document
    from daskcluster.reports.tables import rows_of_model

    model = load_document(url, storage_options)
    record = {
        "kind": "model",
        "model": model.kind,
        "n_clusters": model.n_clusters,
        "n_features": model.n_features,
        "dtype": str(model.centres.dtype),
        **model.body(),
    }
    emit(record, [("model", model.kind), *rows_of_model(model)], as_json=as_json)


def _rows_of_facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes

    def text(name: str, value: Any) -> str:
        if name.startswith("bytes"):
            return format_bytes(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return " x ".join(map(str, value)) if name != "codecs" else ", ".join(map(str, value))
        return f"{value:,}" if isinstance(value, int) else str(value)

    return [
        (name.replace("_", " "), text(name, value))
        for name, value in facts.items()
        if value is not None
    ]
