"""Zarr stores in Azure Blob Storage, which does not serve suffix ranges."""

from __future__ import annotations

from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.storage import FsspecStore

SCHEMES = ("abfs", "abfss", "az", "adl")


class BlobStore(FsspecStore):
    """A store that turns suffix requests, as for the index of a shard, into ranges with a start.

    Notes
    -----
    Cost: one more request per opened shard, for its size.
    """

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if isinstance(byte_range, SuffixByteRequest):
            try:
                size = await self.getsize(key)
            except FileNotFoundError:
                return None
            byte_range = RangeByteRequest(max(0, size - byte_range.suffix), size)
        return await super().get(key, prototype, byte_range)
