"""Checks of a job's outputs before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.data.label_files import GRID_KINDS, is_file_output
from daskcluster.data.sources import is_list_of_files
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.grids import is_raster
from daskcluster.models.persist import check_free
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.staging import refuse_overlaps

_MAP = "map"
"""Among kinds: an output may be a GeoTIFF."""
_GROUPS = {"posteriors": ("group",)}


def check_outputs(
    outputs: Mapping[str, str | None],
    inputs: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    overwrite: bool,
    *,
    kinds: tuple[str, ...] = ("array",),
) -> None:
    """Raise if an output exists, or would replace an input or another output.

    Parameters
    ----------
    outputs : mapping of str to URL or None
        URLs by name: ``"model"``, ``"posteriors"`` (a Zarr group), ``"centroids"`` (a file), or any other
        name for a Zarr array or a file of labels. None is an output that is not requested.
    inputs : mapping of str to object
        Inputs by name; those that are URLs are compared with the outputs.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    overwrite : bool
        Existing outputs will be replaced.
    kinds : tuple of {"array", "group"}
        Kinds of Zarr node that an output other than a model may replace.

    Raises
    ------
    OutputExistsError, InvalidParameterError

    Notes
    -----
    Cost: a few requests to the store for each output; no rows are read.
    """
    places = {
        name: locate(url, storage_options) for name, url in outputs.items() if url is not None
    }
    read = [
        (name, locate(each, storage_options))
        for name, value in inputs.items()
        for each in (value if is_list_of_files(value) else [value])
        if isinstance(each, str) or hasattr(each, "__fspath__")
    ]
    for name, place in places.items():
        for other, input_place in read:
            if place.holds(input_place):
                raise InvalidParameterError(
                    f"{name}={place.url!r} would replace the {other} {input_place.url!r}; write to "
                    "another URL."
                )
    refuse_overlaps(places)
    for name, place in places.items():
        options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
        if name == "model":
            check_free(place.url, **options)
        elif name == "centroids":
            check_output_free(place.url, kinds=("file",), **options)
        else:
            is_file = is_file_output(place.url, maps=_MAP in kinds)
            kind = ("file",) if is_file else _GROUPS.get(name, kinds)
            check_output_free(place.url, kinds=kind, **options)


def kinds_of_labels(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what labels may replace, by the arguments of a job: of a grid, or with distances, groups."""
    is_grid = bool(given.get("grid")) or is_raster(given["source"])
    return (*(GRID_KINDS if is_grid or given.get("distances") else ("array",)), _MAP)


def check_labels(url: str) -> None:
    """Refuse endings of files that labels are not written to."""
    is_file_output(url, maps=True)
