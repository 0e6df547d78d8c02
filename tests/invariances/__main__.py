"""Print the table of invariances into the documentation: ``python -m tests.invariances``."""

from __future__ import annotations

from pathlib import Path

from tests.invariances.declarations import BEGIN, END, PAGE, table

if __name__ == "__main__":
    page = Path(__file__).parents[2] / PAGE
    head, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")
