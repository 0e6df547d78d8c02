"""A report as Markdown: its tables; charts are described, and drawn by other formats."""

from __future__ import annotations

from collections.abc import Sequence

from daskcluster.reports.contents import Report, Table


def as_markdown(report: Report) -> str:
    """Return the text."""
    lines = [f"# {_safe(report.title)}", ""]
    for section in report.sections():
        tables = [part for part in section.parts if isinstance(part, Table)]
        if tables:
            lines += [f"## {_safe(section.title)}", ""]
        for table in tables:
            lines += [*_table(table), ""]
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    header = table.header or ("", "")
    lines = [_line(header), _line(["---"] * len(header)), *(_line(row) for row in table.rows)]
    return [*lines, "", table.note] if table.note else lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) for cell in cells) + " |"


def _safe(text: str) -> str:
    for sign in ("\\", "|", "<", "`", "*", "_", "[", "]"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
