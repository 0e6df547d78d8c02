"""Records of jobs as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.host import format_bytes
from daskcluster.models.balance import Balance
from daskcluster.reports.tables import Rows, format_seconds, rows_of_record


def lines_of_coreset(record: Mapping[str, Any]) -> Rows:
    """Return the record of a coreset as lines of text."""
    rows = [
        ("output", record["output"]),
        ("rows", f"{record['size']:,} of {record['n_rows']:,} x {record['n_features']:,}"),
        ("weight", f"{record['coreset_weight']:,.6g} for {record['total_weight']:,.6g}"),
        ("seed", f"{record['seed']}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]
    for cost in (record["quality"] or {"costs": []})["costs"]:
        text = f"{cost['estimated']:.5g} estimated, {cost['true']:.5g} true"
        rows.append((f"cost of {cost['name']}", f"{text}, off by {cost['relative_error']:+.2%}"))
    return rows


def lines_of_sample(record: Mapping[str, Any]) -> Rows:
    """Return the record of a sample as lines of text."""
    levels = " in ".join(f"{size:,}" for size in record["levels"])
    balances = zip(record["before"], record["after"], strict=True)
    return [
        ("output", record["output"]),
        *([("written", record["rows"])] if record["rows"] else []),
        ("rows", f"{record['size']:,} of {record['n_rows']:,} x {record['n_features']:,}"),
        ("chosen", record["how"]),
        ("levels", f"{levels} clusters"),
        *(
            (name, str(Balance(**balance)))
            for level, both in enumerate(balances, 1)
            for name, balance in zip((f"level {level}", "  sample"), both, strict=True)
        ),
        ("seed", f"{record['seed']}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]


def lines_of_partitions(record: Mapping[str, Any]) -> Rows:
    """Return the record of partitions as lines of text."""
    return [
        ("output", record["output"]),
        *([("centroids", record["centroids"])] if record["centroids"] else []),
        ("rows", f"{record['n_rows']:,} x {record['n_features']:,}"),
        ("partitions", f"{record['n_partitions']:,}, the largest of {record['largest']:,} rows"),
        ("sizes", f"variation {record['variation']:.3g}"),
        ("  largest", f"{record['largest_over_mean']:.3g} times the mean"),
        ("copies", f"{record['n_copies']:,}"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]


def lines_of_duplicates(record: Mapping[str, Any]) -> Rows:
    """Return the record of a search for near-duplicates as lines of text."""
    removed = record["n_rows"] - record["n_kept"]
    return [
        ("output", record["output"]),
        ("rows", f"{record['n_rows']:,} x {record['n_features']:,}"),
        ("kept", f"{record['n_kept']:,}; {removed:,} are near-duplicates"),
        ("groups", f"{record['n_groups']:,} of two rows or more"),
        ("copies", f"{record['n_copies']:,} rows equal an earlier one"),
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]


def lines_of_score(record: Mapping[str, Any]) -> Rows:
    """Return a score as lines of text, with the measured values."""
    measured = [
        (name.replace("-", " "), f"{value:.6g}")
        for name, value in (record["metrics"] or {}).items()
    ]
    return [*rows_of_record(record), *measured]
