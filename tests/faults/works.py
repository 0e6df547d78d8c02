"""The other commands of the trials: drawing a coreset and labelling rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import zarr

import daskcluster as dc
from tests.faults.fits import FITS, Fit, Work, digest_of, is_whole, place_words, write_rows

_MANY_ROWS = 400_000
_MANY_CLUSTERS = 400


def _many(data: Path) -> str:
    """Return the path of rows on which a single pass is long enough to be hit."""
    folder = data / "many"
    if not folder.exists():
        folder.mkdir()
        write_rows(folder, _MANY_ROWS)
    return str(folder / "rows.zarr")


@dataclass(frozen=True)
class Draw(Work):
    """``daskcluster coreset``: two passes, with a commit before, between and after them."""

    def arguments(self, scheduler: str, *, resume: bool = False, timeout: float) -> list[str]:
        words = ["coreset", _many(self.data), "--size", "20000", "--random-state", "5"]
        words += ["--output", str(self._output), *place_words(scheduler, timeout)]
        return [*words, "--checkpoint", str(self.checkpoint), *(["--resume"] if resume else [])]

    @property
    def _output(self) -> Path:
        return self.folder / "c.zarr"

    def digest(self) -> str:
        return digest_of({name: values[:] for name, values in sorted(self._arrays().items())})

    def half_written(self) -> str:
        if not (self._output / "zarr.json").exists():
            return ""
        return "" if all(map(is_whole, self._arrays().values())) else "coreset"

    def _arrays(self) -> dict[str, zarr.Array]:
        return dict(zarr.open_group(self._output, mode="r").arrays())


@dataclass(frozen=True)
class Labelling(Work):
    """``daskcluster predict``: it resumes after the finished chunks of labels."""

    def arguments(self, scheduler: str, *, resume: bool = False, timeout: float) -> list[str]:
        words = ["predict", self._model(), _many(self.data), "--output", str(self._output)]
        return [
            *words,
            *place_words(scheduler, timeout),
            "--resume",
        ]  # on a first run, it keeps the finished chunks

    @property
    def _output(self) -> Path:
        return self.folder / "l.zarr"

    def _model(self) -> str:
        model = self.data / f"centres-{_MANY_CLUSTERS}.zarr"
        if not model.exists():
            rows = zarr.open_array(_many(self.data), mode="r")[: 2 * _MANY_CLUSTERS]
            centres = rows[:_MANY_CLUSTERS]
            fitted = dc.KMeans(_MANY_CLUSTERS, init=centres, max_iter=1, engine="local").fit(rows)
            fitted.save(str(model))
        return str(model)

    @property
    def kept_at(self) -> str:
        """The path that an error must name once something is committed."""
        return str(self._output)

    def has_committed(self) -> bool:
        return any(self.folder.glob("l.zarr.partial-*/c/*"))

    def digest(self) -> str:
        return digest_of({"labels": zarr.open_array(self._output, mode="r")[:]})

    def half_written(self) -> str:
        if not self._output.exists():
            return ""
        return "" if is_whole(zarr.open_array(self._output, mode="r")) else "labels"


COMMANDS: Mapping[str, type[Work]] = MappingProxyType(
    {"coreset command": Draw, "predict command": Labelling}
)


WORKS = (*FITS, *COMMANDS)


def work(name: str, data: Path, folder: Path) -> Work:
    """Return the command of that name, or the fit of the algorithm, with its folder."""
    return COMMANDS.get(name, Fit)(name, data, folder)
