"""``daskcluster info``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from daskcluster.cli.options import SectionedCommand, complete_path, takes_console, takes_source
from daskcluster.cli.output import Console

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
def command(source: str, opening: dict[str, Any], console: Console) -> None:
    """Describe a dataset or a model from its metadata."""
    from daskcluster.models.persist import is_model

    storage_options = opening["storage_options"]
    if opening["array"] is None and is_model(source, storage_options=storage_options):
        _tell_model(source, storage_options, console)
        return
    from daskcluster.data.info import describe, list_arrays
    from daskcluster.errors import InvalidDataError
    from daskcluster.jobs.opening import open_metadata

    try:
        dataset = open_metadata(source, opening)
    except InvalidDataError:
        arrays = None if opening["array"] else list_arrays(source, storage_options=storage_options)
        if arrays is None:
            raise
        console.emit({"kind": "group", "arrays": arrays}, list(arrays.items()))
        return
    facts = describe(dataset)
    console.emit({"kind": "dataset", **facts}, _rows_of_facts(facts))


def _tell_model(url: str, storage_options: dict[str, Any] | None, console: Console) -> None:
    from daskcluster.models.persist import load_document
    from daskcluster.reports.tables import rows_of_model

    model = load_document(url, storage_options)
    record = {
        "kind": "model",
        "model": model.kind,
        "n_clusters": model.n_clusters,
        "n_features": model.n_features,
        **model.facts(),
        **model.body(),
    }
    console.emit(record, [("model", model.kind), *rows_of_model(model)])


def _rows_of_facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from daskcluster.host import format_bytes

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
    return [*rows, *_rows_of_coreset(facts.get("coreset", {}))]


def _rows_of_coreset(account: Mapping[str, Any], indent: str = "") -> list[tuple[str, str]]:
    """Return lines on the origin of a coreset and its parts from its metadata, which are not checked."""
    if not account:
        return []
    shown = []
    for name, text in _OF_A_CORESET.items():
        value = account.get(name)
        if isinstance(value, (int, float)) or (isinstance(value, str) and ":" not in text):
            shown.append(text.format(value))
    rows = [(f"{indent}coreset", ", ".join(shown))]
    parts = account.get("parts")
    for part in parts if isinstance(parts, list) else ():
        rows += _rows_of_coreset(part, f"{indent}  ") if isinstance(part, Mapping) else []
    return rows
