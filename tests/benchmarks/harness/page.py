"""What a benchmark leaves: tables as CSV files, a line in ``runs.csv``, and a section of a page."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.machine import lines_of
from tests.benchmarks.harness.parts import Part, Table, sentence

RUNS, NOTES = "runs.csv", "notes.csv"


@dataclass(frozen=True)
class Run:
    """The outcome of one benchmark, and how it was made.

    Attributes
    ----------
    name, about : str
        Its name, and a phrase that says what it measures.
    command : str
        The command that repeats it.
    seconds : float
        How long it took.
    where : dict
        `facts` of the machine.
    parts : sequence of Part
    remarks : sequence of str
        What else was special.
    """

    name: str
    about: str
    command: str
    seconds: float
    where: dict[str, Any]
    parts: Sequence[Part]
    remarks: Sequence[str] = ()

    def markdown(self) -> str:
        """Return everything as text, for a terminal."""
        made = f"Command: `{self.command}` ({self.seconds:.0f} s)."
        lines = [*lines_of(self.where), *self.remarks]
        lines = [*self._head(), made, "", *(f"- {line}" for line in lines), ""]
        return "\n".join(lines) + "\n" + "\n".join(part.markdown() for part in self.parts)

    def write_tables(self, folder: Path) -> None:
        """Replace the tables of this benchmark below `folder`, and its line in ``runs.csv``."""
        mine = folder / self.name
        shutil.rmtree(mine, ignore_errors=True)
        mine.mkdir(parents=True)
        for part in self.parts:
            if isinstance(part, Table):
                part.save(mine)
        if notes := self._notes():
            with (mine / NOTES).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([("table", "note"), *notes])
        path, runs = folder / RUNS, {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                runs = {line["name"]: line for line in csv.DictReader(file)}
        runs[self.name] = line = self._line()
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            writer.writeheader()
            writer.writerows(runs.values())

    def write_section(self, page: Path, folder: Path) -> None:
        """Write the section of the page, which leads to the tables in `folder`."""
        at = Path(os.path.relpath(folder / self.name, page.parent)).as_posix()
        parts = [
            part.link(at) if isinstance(part, Table) else f"\n{part.markdown()}\n"
            for part in self.parts
        ]
        made = f"{self._head()[2]} {self.where['date']}, {self.where['cpu']}."
        if self._notes():
            made += f" [What the columns mean]({at}/{NOTES})."
        text = "\n".join([f"## {self.name}", "", made, "", "".join(parts)])
        write_section(page, self.name, re.sub(r"\n{3,}", "\n\n", text))

    def _notes(self) -> list[tuple[str, str]]:
        tables = [part for part in self.parts if isinstance(part, Table)]
        return [(table.stem, note) for table in tables for note in table.notes]

    def _head(self) -> list[str]:
        return [f"## {self.name}", "", sentence(self.about), ""]

    def _line(self) -> dict[str, Any]:
        where = self.where
        return {
            "name": self.name,
            "command": self.command,
            "seconds": f"{self.seconds:.0f}",
            "date": where["date"],
            "processor": where["cpu"],
            "cores": where["cores"],
            "memory, GiB": where["memory_gib"],
            "load before": where["load"],
            "system": where["system"],
            "versions": ", ".join(f"{name} {one}" for name, one in where["versions"].items()),
            "remarks": " ".join(self.remarks),
        }


def write_section(path: Path, name: str, text: str) -> None:
    """Write a section into a Markdown file; it replaces the section of the same name.

    The rest of the file does not change. A new section is added at the end.
    """
    section = f"{_begin(name)}\n{text.strip()}\n{_end(name)}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    pattern = _pattern(name)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")


def _begin(name: str) -> str:
    return f"<!-- benchmark: {name} -->"


def _end(name: str) -> str:
    return f"<!-- end: {name} -->"


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(_begin(name))}(.*?){re.escape(_end(name))}", re.DOTALL)
