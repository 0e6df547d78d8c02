"""Zarr stores at a location, and the names of their metadata files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from daskcluster.storage.location import Location, explain, locate

METADATA = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr array or group."""
HEAD = METADATA[0]
"""The metadata file that this package writes."""
MODEL_FORMAT = "daskcluster-model"
"""Identifies a saved model in its metadata."""
PARTIAL_MARK = "daskcluster.partial"
"""Object that marks a partial output in a store without rename."""


def group_document(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, bytes]:
    """Return the metadata of a Zarr v3 group by its path, for `Staging.commit`."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    return {f"{prefix}{HEAD}": json.dumps(group).encode()}


def open_store(location: Location, *, read_only: bool = True) -> Any:
    """Return the Zarr store at a location."""
    from zarr.storage import FsspecStore, LocalStore

    from daskcluster.storage.azure import SCHEMES, BlobStore

    if location.is_local:
        return LocalStore(location.url, read_only=read_only)
    kind = BlobStore if location.scheme in SCHEMES else FsspecStore
    try:
        return kind.from_url(
            location.url, storage_options=location.storage_options(), read_only=read_only
        )
    except (ImportError, ValueError, TypeError) as error:
        raise explain(error, location) from error


def location_of(array: Any) -> Location | None:
    """Return where an opened array or group is; None in a store that no URL names."""
    from zarr.storage import FsspecStore, LocalStore

    from daskcluster.storage.azure import BlobStore

    store = array.store
    if isinstance(store, LocalStore):
        location = locate(str(store.root))
    elif type(store) in (FsspecStore, BlobStore):
        fs, path = store.fs, store.path
        fs = getattr(fs, "sync_fs", fs)  # a wrapper around a file system without async calls
        options = {k: v for k, v in fs.storage_options.items() if k != "asynchronous"}
        location = locate(fs.unstrip_protocol(path), options)
    else:
        return None
    return location.child(array.path) if array.path else location
