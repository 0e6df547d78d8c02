"""Tables of a version: Delta, Iceberg and Lance, each opened by its own library.

The libraries of Delta and Iceberg say which Parquet files make up a version of a table, and our reader of
Parquet reads these, so workers need no such library. Lance reads its own files.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any
from urllib.parse import unquote

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.parquet import open_parquet
from daskcluster.data.partitions import cut_rows
from daskcluster.data.row_files import (
    Constant,
    FilesDataset,
    RowFile,
    natural_order,
    replaced,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import TableFormat, TableVersion, open_tables
from daskcluster.errors import DaskClusterError, DatasetNotFoundError, InvalidDataError
from daskcluster.extras import import_extra, import_pyarrow
from daskcluster.storage.change_guard import ChangeGuard
from daskcluster.storage.files import StoredFile, list_names, match_files, open_file
from daskcluster.storage.location import Location, explain, locate
from daskcluster.storage.process_local import open_once

_OPENERS = {
    "_delta_log": "daskcluster.data.table_formats:open_delta",
    "_versions": "daskcluster.data.table_formats:open_lance",
    "metadata": "daskcluster.data.table_formats:open_iceberg",
    ".hoodie": "daskcluster.data.table_formats:open_hudi",
}
"""What opens a folder that has a folder of this name."""


def opener_of(location: Location) -> Callable[[Location, RowsSpec], RowDataset] | None:
    """Return what opens the table at a folder; None if it is no table of a known format.

    Raises
    ------
    InvalidDataError
        The folder is a part of a table, and may hold files that its version does not have.
    """
    mark = _mark_in(location)
    head, _, name = location.url.rpartition("/")
    while (
        mark is None and ("=" in name or name == "data") and head.strip("/") and head[-2:] != ":/"
    ):
        if (found := _mark_in(replace(location, url=head))) is not None:
            raise InvalidDataError(
                f"{location.url!r} is a part of the table at {head!r} (which has {found}), whose version "
                "may lack some of its files; open the table, or give a list of files."
            )
        head, _, name = head.rpartition("/")
    return None if mark is None else resolve_name(_OPENERS[mark])


def _mark_in(location: Location) -> str | None:
    names = _names_at(location)
    found = next((mark for mark in _OPENERS if mark in names), None)
    if found == "metadata" and not _metadata_files(location):
        return None
    return found


def _names_at(location: Location) -> Collection[str]:
    try:
        return list_names(location)
    except DaskClusterError:  # e.g. a web server without listings; what opens the source says more
        return ()


def _metadata_files(location: Location) -> list[str]:
    return [
        name for name in _names_at(location.child("metadata")) if name.endswith(".metadata.json")
    ]


@contextmanager
def _explained(location: Location, kind: str) -> Iterator[None]:
    try:
        yield
    except DaskClusterError:
        raise
    except Exception as error:  # classes of the libraries, of which one has no common base
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise explain(error, location, f"{kind} table") from error
        text = str(explain(ValueError(str(error)), location, f"{kind} table"))
        raise DatasetNotFoundError(f"{text} {kind} reads its own metadata.") from error


def store_options(location: Location) -> dict[str, str]:
    """Return options of a location by the names that the Rust library object_store has, of Delta and Lance.

    Examples
    --------
    >>> place = locate("s3://bucket/table", {"anon": True, "endpoint_url": "http://127.0.0.1:9000"})
    >>> store_options(place)["aws_endpoint"], store_options(place)["allow_http"]
    ('http://127.0.0.1:9000', 'true')
    """
    given = location.storage_options()
    if location.scheme not in ("s3", "s3a"):
        return {name: value for name, value in given.items() if isinstance(value, str)}
    client = {**given, **(given.get("client_kwargs") or {})}
    endpoint = client.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL")
    found = {
        "aws_access_key_id": client.get("key") or client.get("aws_access_key_id"),
        "aws_secret_access_key": client.get("secret") or client.get("aws_secret_access_key"),
        "aws_session_token": client.get("token") or client.get("aws_session_token"),
        "aws_region": client.get("region_name"),
        "aws_endpoint": endpoint,
        "allow_http": "true" if (endpoint or "").startswith("http:") else None,
        "aws_skip_signature": "true" if client.get("anon") else None,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


# -- Delta and Iceberg: Parquet files ----------------------------------------------------------------


def _open_version(
    location: Location,
    stored: Mapping[str, StoredFile],
    version: TableVersion,
    kind: str,
    spec: RowsSpec,
) -> RowDataset:
    if missing := sorted(version.constants.keys() - stored.keys()):
        raise DatasetNotFoundError(
            f"The {kind} table at {location.url!r} lacks {len(missing)} of its files, e.g. {missing[0]!r}; "
            "restore them, or write the table again."
        )
    names = sorted(version.constants, key=natural_order)
    return open_parquet(location, [stored[name] for name in names], spec, version)


def _stored_name(location: Location, path: str, stored: Mapping[str, StoredFile]) -> str:
    """Return the name of a file of a table, whose path may be written as in a URL."""
    name = _name_below(location, path)
    return name if name in stored else unquote(name)


_MOST_DELETED = 1_000_000
"""Rows that are deleted but stored: each takes 8 bytes of what workers are sent."""


def _deleted(location: Location, rows: Mapping[str, np.ndarray], remedy: str) -> dict[str, bytes]:
    """Return `RowFile.deleted` of files."""
    count = sum(map(len, rows.values()))
    if count > _MOST_DELETED:
        raise InvalidDataError(
            f"The table at {location.url!r} has {count} rows that are deleted but stored, and at most "
            f"{_MOST_DELETED} are left out in reading; rewrite its files, e.g. with {remedy}."
        )
    return {name: np.unique(numbers).astype(np.int64).tobytes() for name, numbers in rows.items()}


def _files_below(location: Location) -> dict[str, StoredFile]:
    return {file.name: file for file in match_files(location)[1]}


def _name_below(location: Location, path: str) -> str:
    """Return the name of a file of a table, relative to the table's location."""
    is_url = "://" in path or path.startswith("/")
    place = locate(path) if is_url else location.child(path)
    if not location.holds(place):
        raise InvalidDataError(
            f"The table at {location.url!r} has a file elsewhere, {path!r}, as shallow clones and tables "
            "that were moved have; copy the table with its library, and open the copy."
        )
    return place.resolved().removeprefix(f"{location.resolved()}/")


_DELTA_FEATURES = {
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""What readers of a table must know, and this one does."""


def open_delta(given: Any, spec: RowsSpec) -> RowDataset:
    """Open the latest version of a Delta table, or the version of a ``deltalake.DeltaTable``.

    Raises
    ------
    DatasetNotFoundError, InvalidParameterError, MissingExtraError
    InvalidDataError
        The table has renamed columns, or other features that are not known.
    """
    library = import_extra("deltalake", "delta", "Delta tables need deltalake")
    pa = import_pyarrow()
    is_url = isinstance(given, Location)
    location = given if is_url else locate(given.table_uri)
    with _explained(location, "Delta"):
        table = given
        if is_url:
            options = store_options(location)
            table = library.DeltaTable(location.url, storage_options=options)
        protocol = table.protocol()
        unknown = set(protocol.reader_features or ()) - _DELTA_FEATURES
        mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        vectors = pa.table(table.deletion_vectors())
        actions = pa.table(table.get_add_actions())
        schema = pa.schema(table.schema())
    if unknown or mapping != "none":
        shown = ", ".join(sorted(unknown or {"columnMapping"}))
        raise InvalidDataError(
            f"The Delta table at {location.url!r} has features that are not read: {shown}. Copy it to a "
            "table without them, or to Parquet."
        )
    values: list[dict[str, Any]] = [{}] * actions.num_rows
    if "partition" in actions.column_names:
        values = actions.column("partition").to_pylist()
    stored = _files_below(location)
    constants = {}
    for path, own in zip(actions.column("path").to_pylist(), values, strict=True):
        name = _stored_name(location, path, stored)
        constants[name] = tuple(
            Constant(column, schema.field(column).type, value) for column, value in own.items()
        )
    deleted = {}
    for path, keeps in zip(*(vectors.column(at).to_pylist() for at in (0, 1)), strict=True):
        rows = np.flatnonzero(~np.asarray(keeps, bool))
        deleted[_stored_name(location, path, stored)] = rows
    version = TableVersion(
        schema,
        constants,
        lambda schema, name: schema.names,
        deleted=_deleted(location, deleted, "REORG TABLE ... APPLY (PURGE)"),
    )
    return _open_version(location, stored, version, "Delta", spec)


def open_iceberg(given: Any, spec: RowsSpec) -> RowDataset:
    """Open an Iceberg table: a ``pyiceberg.table.Table``, the URL of its metadata, or its folder.

    A folder needs ``metadata/version-hint.text``, since the last file of metadata there need not be the
    table's current one.

    Raises
    ------
    DatasetNotFoundError, InvalidParameterError, MissingExtraError
    InvalidDataError
        The table has deletes by values, files of other formats than Parquet, or columns that were renamed
        after files were written.
    """
    library = import_extra("pyiceberg.table", "iceberg", "Iceberg tables need pyiceberg")
    if isinstance(given, Location):
        location = replace(given, url=re.sub(r"/metadata/[^/]*$", "", given.url))
        hint = given.url == location.url and "version-hint.text" not in _names_at(
            given.child("metadata")
        )
        if hint:
            raise InvalidDataError(
                f"The Iceberg table at {given.url!r} has no metadata/version-hint.text, so its current "
                "version is known to its catalog alone; pass the table that pyiceberg loads from it, or "
                f"the URL of a file of metadata, e.g. {given.url}/metadata/{max(_metadata_files(given))}"
            )
        with _explained(location, "Iceberg"):
            table = library.StaticTable.from_metadata(given.url, _iceberg_options(location))
    else:
        table = given
        url = re.sub(r"/metadata/[^/]*$", "", table.metadata_location)
        location = locate(url, _fsspec_options(table.io.properties))
    with _explained(location, "Iceberg"):
        schema, tasks = table.schema(), list(table.scan().plan_files())
        specs = table.specs()
    version = _IcebergFiles(location, spec, schema.fields, tasks, specs).version(schema.as_arrow())
    return _open_version(location, _files_below(location), version, "Iceberg", spec)


class _IcebergFiles:
    """Which columns the Parquet files of an Iceberg table store, by the numbers of its fields.

    Parameters
    ----------
    location : Location
    spec : RowsSpec
    fields : sequence of pyiceberg.types.NestedField
    tasks : sequence of pyiceberg.table.FileScanTask
    specs : mapping of int to pyiceberg.partitioning.PartitionSpec

    References
    ----------
    Iceberg table specification, "Column projection".
    """

    _SIMPLE = ("boolean", "int", "long", "float", "double", "string")

    def __init__(
        self, location: Location, spec: RowsSpec, fields: Any, tasks: Any, specs: Any
    ) -> None:
        self.location, self.spec = location, spec
        self.fields = {each.field_id: each for each in fields}
        self.constants: dict[str, tuple[Constant, ...]] = {}
        self.unknown: dict[str, set[int]] = {}
        self.deleted: dict[str, np.ndarray] = {}
        for task in tasks:
            file = task.file
            for each in (file, *task.delete_files):
                if each.file_format.name != "PARQUET":
                    raise InvalidDataError(
                        f"{each.file_path!r} of the Iceberg table at {location.url!r} is no Parquet file "
                        f"({each.file_format.name}), and is not read in place; rewrite it, e.g. with "
                        "rewrite_data_files of Spark, or pass table.scan().to_arrow()."
                    )
            name = _name_below(location, file.file_path)
            if task.delete_files:
                found = [_positions(location, each, file.file_path) for each in task.delete_files]
                self.deleted[name] = np.concatenate(found)
            constants, self.unknown[name] = [], set()
            for at, part in enumerate(specs[file.spec_id].fields):
                column = self.fields.get(part.source_id)
                if column is None or str(part.transform) != "identity":
                    continue
                if str(column.field_type) in self._SIMPLE:
                    constants.append((column, file.partition[at]))
                else:
                    self.unknown[name].add(part.source_id)
            self.constants[name] = tuple(
                Constant(column.name, _arrow_type(column), value) for column, value in constants
            )

    def version(self, schema: Any) -> TableVersion:
        """Return the version with the table's columns as an Arrow schema."""
        defaults = {each.name: each.initial_default for each in self.fields.values()}
        deleted = _deleted(self.location, self.deleted, "rewrite_data_files of Spark")
        return TableVersion(schema, self.constants, self.columns_of, defaults, deleted)

    def columns_of(self, stored: Any, name: str) -> list[str]:
        """Return which columns of the table a file stores; see `TableVersion`."""
        numbers = {_field_id(each): each.name for each in stored}
        has_numbers = any(number is not None for number in numbers)
        known = {each.name for each in self.constants[name]}
        held = []
        for number, column in self.fields.items():
            by_name = column.name if column.name in stored.names else None
            own = numbers.get(number) if has_numbers else by_name
            if own == column.name:
                held.append(own)
            elif column.name not in known and self._is_read(column.name):
                is_unknown = number in self.unknown[name] or not has_numbers
                if own is not None or is_unknown:
                    said = "is not stored" if own is None else f"is called {own!r}"
                    raise InvalidDataError(
                        f"Column {column.name!r} {said} in {name!r} of the Iceberg table at "
                        f"{self.location.url!r}; rewrite the file, e.g. with rewrite_data_files of Spark, "
                        "or choose other columns with columns=[...] (--columns)."
                    )
        return held

    def _is_read(self, name: str) -> bool:
        spec = self.spec
        if name in (spec.id_column, spec.weights):
            return True
        return name in spec.features if spec.features else name not in spec.drop


def _positions(location: Location, file: Any, path: str) -> np.ndarray:
    """Return the rows of a data file that a file of position deletes names."""
    from pyarrow import compute, parquet

    if file.content.name != "POSITION_DELETES":
        raise InvalidDataError(
            f"{file.file_path!r} of the Iceberg table at {location.url!r} deletes rows by their values; "
            "rewrite the files of the table, e.g. with rewrite_data_files of Spark."
        )
    place = location.child(_name_below(location, file.file_path))
    found = []
    with open_file(place) as source:
        for batch in parquet.ParquetFile(source).iter_batches(columns=["file_path", "pos"]):
            own = batch.filter(compute.equal(batch.column("file_path"), path))
            found.append(own.column("pos").to_numpy())
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _field_id(field: Any) -> int | None:
    found = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if found is None else int(found)


def _arrow_type(column: Any) -> Any:
    name = {"boolean": "bool", "int": "int32", "long": "int64"}.get(str(column.field_type))
    return import_pyarrow().type_for_alias(name or str(column.field_type))


_ICEBERG_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "s3.anonymous": "aws_skip_signature",
}


def _iceberg_options(location: Location) -> dict[str, str]:
    found = store_options(location)
    names = _ICEBERG_OPTIONS.items()
    return {own: found[theirs] for own, theirs in names if theirs in found}


def _fsspec_options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of s3fs that a catalog of Iceberg gave with a table."""
    found = {
        "key": properties.get("s3.access-key-id"),
        "secret": properties.get("s3.secret-access-key"),
        "token": properties.get("s3.session-token"),
        "endpoint_url": properties.get("s3.endpoint"),
    }
    return {name: value for name, value in found.items() if value}


# -- Lance -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanceFormat(TableFormat):
    """The columns of one version of a Lance dataset, which never changes; see `FilesRecipe`."""

    kind = "Lance"

    @property
    def dataset(self) -> Any:
        return LanceDataset

    def cuts(self, file: RowFile) -> np.ndarray:
        """Return where partitions within the fragments of the dataset may begin."""
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        starts = zip(file.edges, file.blocks, strict=False)
        edges = [start + cut_rows(n_rows, row_bytes) for start, n_rows in starts if n_rows]
        return np.unique(np.concatenate(edges))

    def tables(
        self, place: Location, file: RowFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        number, digest = file.version.split()

        def same() -> Any:
            found = _opened_lance(place, int(number))
            # A dataset that was removed and written anew may have a version of the same number.
            if _lance_digest(found) != digest:
                raise replaced(place)
            return found

        fragments = open_once((place, file.version), same).get_fragments()
        starts = file.edges.tolist()
        for at, fragment in enumerate(fragments):
            begin, end = max(first, starts[at]), min(last, starts[at + 1])
            if begin < end:
                batches = fragment.to_batches(
                    columns=list(names),
                    offset=begin - starts[at],
                    limit=end - begin,
                    batch_readahead=1,
                )
                for batch in batches:
                    yield begin, import_pyarrow().Table.from_batches([batch])
                    begin += batch.num_rows


class LanceDataset(FilesDataset):
    """Rows of a Lance dataset; chunks end where its fragments do."""

    def change_guard(self) -> ChangeGuard | None:
        """Return None: a version does not change."""
        return None


def _lance_digest(source: Any) -> str:
    """Return a digest of the files of a version, whose names are random."""
    files = [str(each.path) for part in source.get_fragments() for each in part.data_files()]
    return hashlib.sha256(" ".join(files).encode()).hexdigest()[:16]


def _opened_lance(location: Location, version: int | None = None) -> Any:
    library = import_extra("lance", "lance", "Lance datasets need pylance")
    with _explained(location, "Lance"):
        options = store_options(location) or None
        return library.dataset(location.url, version=version, storage_options=options)


def open_lance(given: Any, spec: RowsSpec) -> RowDataset:
    """Open the latest version of a Lance dataset, or the version of a ``lance.LanceDataset``.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: no pass, except over columns of integers, which are searched for nulls, and over weights.
    """
    is_url = isinstance(given, Location)
    source = _opened_lance(given) if is_url else given
    location = given if is_url else locate(source.uri)
    lengths = tuple(fragment.count_rows() for fragment in source.get_fragments())
    file = RowFile("", 0, f"{source.version} {_lance_digest(source)}", lengths)

    def batches(number: int, names: Sequence[str]) -> Iterator[Any]:
        yield from source.to_batches(columns=list(names), batch_readahead=1)

    version = TableVersion(source.schema, {"": ()}, lambda stored, name: stored.names)
    return open_tables(
        location, [file], spec, [source.schema], batches, LanceFormat, version=version
    )


def open_hudi(location: Location, spec: RowsSpec) -> RowDataset:
    """Refuse a Hudi table, whose folder has files of several versions.

    Raises
    ------
    InvalidDataError
    """
    raise InvalidDataError(
        f"{location.url!r} is a Hudi table, whose files alone do not say which rows it has; read it by its "
        "own library, and pass the Arrow table, or write Parquet files."
    )
