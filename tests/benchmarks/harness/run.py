"""A run of ``compare``: measure missing cells, save each at once, and write the page."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daskcluster.errors import DaskClusterError, InvalidParameterError
from tests.benchmarks.harness.catalogue import COMPARISONS, comparison
from tests.benchmarks.harness.cells import Cell, Comparison, Figures, Records
from tests.benchmarks.harness.machine import cpu_name, facts
from tests.benchmarks.harness.mask import is_masked
from tests.benchmarks.harness.page import Run, write_section
from tests.benchmarks.harness.parts import Part
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results
from tests.benchmarks.harness.targets import note_targets, section_of_targets


class BenchmarkError(DaskClusterError, RuntimeError):
    """Some cells of a comparison failed; the results of the others are saved."""


@dataclass(frozen=True)
class Choice:
    """The cells of one comparison whose names contain a text; all by default."""

    name: str
    text: str = ""

    @classmethod
    def of(cls, word: str) -> Choice:
        """Parse ``NAME`` or ``NAME/TEXT``.

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
                f"comparison {name!r} should be one of {', '.join(COMPARISONS)}; pass NAME, or NAME/TEXT "
                "for the cells whose names contain TEXT."
            )
        return cls(name, text)

    def takes(self, cell: Cell) -> bool:
        """Return whether the cell is chosen."""
        return self.text in cell.name


@dataclass
class Bench:
    """One run of the command.

    Parameters
    ----------
    settings : Settings
    output : Path
        Folder for the page ``benchmarks.md``, the plots and the results. With ``quick`` all of them get
        other names, without AVX-512 plots and results, so that such figures never mix with the others.
    again : bool
        Measure all cells again, also those with a saved result.

    Attributes
    ----------
    measured, kept : int
        Number of cells that were measured, and that had a saved result.
    failed : list of str
        Names of cells that raised an error.
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
    def _quick(self) -> str:
        return "-quick" if self.settings.quick else ""

    @property
    def _suffix(self) -> str:
        return ("-avx2" if is_masked() else "") + self._quick

    @property
    def page(self) -> Path:
        """Path of the Markdown page."""
        return self.output / f"benchmarks{self._quick}.md"

    @property
    def tables(self) -> Path:
        """Folder of the tables."""
        return self.output / "results" / f"tables{self._suffix}"

    @cached_property
    def results(self) -> Results:
        """The saved results."""
        return Results(self.output / "results" / f"bench{self._suffix}")

    def check(self, choices: Sequence[Choice]) -> None:
        """Raise for choices that match no cell, before anything is measured.

        Raises
        ------
        InvalidParameterError
        """
        for choice in choices:
            names = [cell.name for cell in comparison(choice.name).cells(self.settings)]
            if not any(choice.text in name for name in names):
                raise InvalidParameterError(
                    f"no cell of {choice.name} contains {choice.text!r}; its cells are: {'; '.join(names)}."
                )

    def run(self, choices: Sequence[Choice]) -> Iterable[str]:
        """Measure, and yield the section of each comparison when it is done, then the summary.

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
                f"{len(self.failed)} cells failed: {'; '.join(self.failed)}. All other results are saved; "
                "run the same command to try these again."
            )

    def render(self, choices: Sequence[Choice]) -> Iterable[str]:
        """Yield the sections made from saved results, without measuring."""
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
                    self.settings.tell(
                        f"  {cell.name}: saved on {record['where']['date']}, not measured again"
                    )
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
            # A broken peer must not stop the other cells.
            self.failed.append(f"{name}: {cell.name}")
            say(f"  {cell.name}: failed\n{traceback.format_exc()}")
            return
        seconds = time.perf_counter() - began
        self.settings.tell(f"  {cell.name}: {seconds:.1f} s")
        record = {"figures": figures, "seconds": seconds, "stamp": stamp, "where": where}
        self.results.put(name, cell.name, {**record, "command": self.command(name)})
        self.measured += 1

    def _stamp(self) -> dict[str, Any]:
        """Return the settings that saved figures must match to be reused."""
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
        """Return the command that repeats a comparison, without paths of this machine."""
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
        # Saved cells of data sets that are missing now stay on the page.
        names = [
            each for each in (*wanted, *(key for key in kept if key not in wanted)) if each in kept
        ]
        if not names:
            return
        records: Records = {each: kept[each]["figures"] for each in names}
        by_date = sorted(names, key=lambda each: str(kept[each]["where"]["date"]))
        made, last = {each: kept[each] for each in by_date}, kept[by_date[-1]]
        whole = set(wanted) <= set(names) or not (self.tables / name).exists()
        settings = self._settings_of(last)
        # A partial run must not overwrite the plots of the section on the page.
        parts = module.show(records, settings if whole else replace(settings, images=None))
        run = _run(name, made, parts)
        if whole:
            run.write_tables(self.tables)
            if not is_masked():  # whose figures have a column of the summary
                run.write_section(self.page, self.tables)
        else:
            missing = "; ".join(each for each in wanted if each not in kept)
            self.settings.tell(
                f"{name}: its tables and its section are not replaced until these are measured: {missing}"
            )
        note_targets(self.results, name, module.TARGETS, records, last)
        yield run.markdown()

    def _settings_of(self, record: Figures) -> Settings:
        """Return the settings of a record, for the titles of its tables."""
        stamp = record["stamp"]
        return replace(self.settings, threads=stamp["threads"], repeats=stamp["repeats"])

    def _show_targets(self) -> str:
        folder = self.output / "results"
        text = section_of_targets(
            Results(folder / f"bench{self._quick}"), Results(folder / f"bench-avx2{self._quick}")
        )
        write_section(self.page, "targets", text)
        return text


def _run(name: str, cells: Mapping[str, Figures], parts: Sequence[Part]) -> Run:
    """Return the run that made the cells; the latest record comes last."""
    records = list(cells.values())
    last, dates = records[-1], list(dict.fromkeys(one["where"]["date"] for one in records))
    where = {**last["where"], "load": max(one["where"]["load"] for one in records)}
    where["date"] = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    remarks = [f"{len(records)} cells."]
    for cpu in dict.fromkeys(one["where"]["cpu"] for one in records):
        if cpu != where["cpu"]:
            elsewhere = [one for one, record in cells.items() if record["where"]["cpu"] == cpu]
            remarks.append(f"Measured on {cpu}: {'; '.join(elsewhere)}.")
    seconds = sum(one["seconds"] for one in records)
    return Run(name, COMPARISONS[name].what, last["command"], seconds, where, parts, remarks)
