"""Comparisons from cells to the page: measured where nothing is kept, kept at once, shown at the end."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daskcluster.errors import DaskClusterError, InvalidParameterError
from tests.benchmarks.harness.catalogue import COMPARISONS, comparison
from tests.benchmarks.harness.cells import Cell, Comparison, Figures, Records
from tests.benchmarks.harness.machine import cpu_name, facts, lines_of
from tests.benchmarks.harness.mask import is_masked
from tests.benchmarks.harness.page import has_section, write_section
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results
from tests.benchmarks.harness.targets import note_targets, section_of_targets


class BenchmarkError(DaskClusterError, RuntimeError):
    """Some cells of a comparison could not be measured; the others were, and are kept."""


@dataclass(frozen=True)
class Choice:
    """Cells of one comparison: all, or those whose names contain a text."""

    name: str
    text: str = ""

    @classmethod
    def of(cls, word: str) -> Choice:
        """Return the choice that ``NAME`` or ``NAME/TEXT`` stands for.

        Raises
        ------
        InvalidParameterError

        Examples
        --------
        >>> Choice.of("lloyd/400,000")
        Choice(name='lloyd', text='400,000')
        """
        name, _, text = word.partition("/")
        if name not in COMPARISONS:
            raise InvalidParameterError(
                f"comparison {name!r} should be one of {', '.join(COMPARISONS)}; give NAME, or NAME/TEXT "
                "for the cells whose names contain TEXT."
            )
        return cls(name, text)

    def takes(self, cell: Cell) -> bool:
        """Return whether the cell is one of them."""
        return self.text in cell.name


@dataclass
class Bench:
    """One run of the command.

    Parameters
    ----------
    settings : Settings
    output : Path
        Folder of the page ``benchmarks.md``, of plots and of results; with ``quick``, and without
        AVX-512, all of them have other names, so that such figures never stand among the others.
    again : bool
        Measure cells that are kept, too.

    Attributes
    ----------
    measured, kept : int
        Cells.
    failed : list of str
        Names of cells that raised.
    """

    settings: Settings
    output: Path
    again: bool = False
    measured: int = 0
    kept: int = 0
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = replace(self.settings, images=self.output / f"images{self._suffix}")

    @property
    def _suffix(self) -> str:
        return ("-avx2" if is_masked() else "") + ("-quick" if self.settings.quick else "")

    @property
    def page(self) -> Path:
        """The Markdown page."""
        return self.output / f"benchmarks{self._suffix}.md"

    @cached_property
    def results(self) -> Results:
        """Where figures are kept."""
        return Results(self.output / "results" / f"bench{self._suffix}")

    def check(self, choices: Sequence[Choice]) -> None:
        """Refuse choices without any cell, before hours are spent on others.

        Raises
        ------
        InvalidParameterError
        """
        for choice in choices:
            names = [cell.name for cell in comparison(choice.name).cells(self.settings)]
            if not any(choice.text in name for name in names):
                raise InvalidParameterError(
                    f"no cell of {choice.name} contains {choice.text!r}; there are: {'; '.join(names)}."
                )

    def run(self, choices: Sequence[Choice]) -> Iterable[str]:
        """Measure, and yield the section of each comparison as it is done, and that of the targets.

        Raises
        ------
        BenchmarkError
            At the end, if cells failed.
        """
        for choice in choices:
            module = comparison(choice.name)
            self.settings.tell(f"{choice.name}: takes {COMPARISONS[choice.name].takes}")
            self._measure(module, choice)
            yield from self._show(module, choice.name)
        yield self._show_targets()
        if self.failed:
            raise BenchmarkError(
                f"{len(self.failed)} cells failed: {'; '.join(self.failed)}. What was measured is kept; "
                "the same command tries these again."
            )

    def render(self, choices: Sequence[Choice]) -> Iterable[str]:
        """Yield the sections from what is kept, without measuring."""
        for choice in choices:
            yield from self._show(comparison(choice.name), choice.name)
        yield self._show_targets()

    # -- cells ------------------------------------------------------------------------------------

    def _measure(self, module: Comparison, choice: Choice) -> None:
        kept, stamp = self.results.read(choice.name), self._stamp()
        try:
            for cell in filter(choice.takes, module.cells(self.settings)):
                record = kept.get(cell.name)
                if record is not None and record["stamp"] == stamp and not self.again:
                    self.settings.tell(f"  {cell.name}: kept, of {record['where']['date']}")
                    self.kept += 1
                else:
                    self._keep(choice.name, cell, stamp)
        finally:
            self._clean(module)

    def _keep(self, name: str, cell: Cell, stamp: dict[str, Any]) -> None:
        where, began = facts(), time.perf_counter()
        try:
            figures = cell.measure()
        except Exception:
            # Hours of other cells must not be lost for one: a peer may be broken.
            self.failed.append(f"{name}: {cell.name}")
            say(f"  {cell.name}: failed\n{traceback.format_exc()}")
            return
        seconds = time.perf_counter() - began
        self.settings.tell(f"  {cell.name}: {seconds:.1f} s")
        record = {"figures": figures, "seconds": seconds, "stamp": stamp, "where": where}
        self.results.put(name, cell.name, {**record, "command": self.command(name)})
        self.measured += 1

    def _stamp(self) -> dict[str, Any]:
        """Return what figures depend on next to their cell; others are measured again."""
        settings = self.settings
        data = settings.data is not None and (settings.data / "mnist.npz").exists()
        return {
            "quick": settings.quick,
            "threads": settings.threads,
            "repeats": settings.repeats,
            "peers": list(settings.peers),
            "data": data,
            "cpu": cpu_name(),
        }

    def _clean(self, module: Comparison) -> None:
        if not self.settings.keep:
            for name in module.SCRATCH:
                with suppress(OSError):
                    shutil.rmtree(self.settings.folder(name))

    def command(self, name: str) -> str:
        """Return the command that measures a comparison again; paths of this machine are left out."""
        settings = self.settings
        words = [
            "python -m tests.benchmarks compare",
            *(["--without-avx512"] if is_masked() else []),
            "--only",
            name,
        ]
        words += ["--quick"] if settings.quick else []
        words += ["--data DIR"] if settings.data is not None else []
        words += [f"--peer {peer}" for peer in settings.peers]
        words += [f"--seeds {settings.seeds}"] if name == "nested" else []
        return " ".join([*words, f"--threads {settings.threads} --repeats {settings.repeats}"])

    # -- the page ---------------------------------------------------------------------------------

    def _show(self, module: Comparison, name: str) -> Iterable[str]:
        kept = self.results.read(name)
        wanted = [cell.name for cell in module.cells(self.settings)]
        # Cells of other settings, such as of sets that are not at hand now, stay on the page.
        names = [
            each for each in (*wanted, *(key for key in kept if key not in wanted)) if each in kept
        ]
        if not names:
            return
        records: Records = {each: kept[each]["figures"] for each in names}
        made = sorted((kept[each] for each in names), key=lambda one: str(one["where"]["date"]))
        whole = set(wanted) <= set(names) or not has_section(self.page, name)
        settings = self._settings_of(made[-1])
        # The plots on the page belong to the section that is there.
        parts = module.show(records, settings if whole else replace(settings, images=None))
        lines = [f"## {name}", "", *_origin(made), ""]
        text = "\n".join(lines) + "\n" + "\n".join(part.markdown() for part in parts)
        if whole:
            write_section(self.page, name, text)
        else:
            missing = "; ".join(each for each in wanted if each not in kept)
            self.settings.tell(
                f"{name}: its section stays as it is on the page until these are measured: {missing}"
            )
        note_targets(self.results, name, module.TARGETS, records, made[-1])
        yield text

    def _settings_of(self, record: Figures) -> Settings:
        """Return the settings that a record was made with, for the titles of its tables."""
        stamp = record["stamp"]
        return replace(self.settings, threads=stamp["threads"], repeats=stamp["repeats"])

    def _show_targets(self) -> str:
        text = section_of_targets(self.results)
        write_section(self.page, "targets", text)
        return text


def _origin(records: Sequence[Figures]) -> list[str]:
    """Return lines that say by what, when and where cells were measured, given the latest last."""
    last, dates = records[-1], list(dict.fromkeys(one["where"]["date"] for one in records))
    where = {**last["where"], "load": max(one["where"]["load"] for one in records)}
    where["date"] = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    seconds = sum(one["seconds"] for one in records)
    made = f"Made by `{last['command']}`, {len(records)} cells in {seconds:.0f} s."
    return [made, "", *(f"- {line}" for line in lines_of(where))]
