"""Blocks of an output under way that an earlier, interrupted writer has finished."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from daskcluster.data.writer import StagedArray
from daskcluster.errors import OutputExistsError
from daskcluster.storage.files import list_files
from daskcluster.storage.staging import Staging
from daskcluster.typing import Range

_READERS = 8


def finished_blocks(arrays: Sequence[StagedArray]) -> frozenset[int]:
    """Return the numbers of the blocks that all arrays have, and that can be read back.

    Notes
    -----
    Cost: one listing of each array, and a read of what is there. Disks that lost their power can have
    files without content; object stores have whole objects.
    """
    found = frozenset.intersection(*(_listed(array) for array in arrays))
    for array in arrays:
        if array.work.is_local:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="daskcluster-blocks") as pool:
                sound = pool.map(lambda block, array=array: _is_sound(array, block), sorted(found))
                found = frozenset(
                    block for block, good in zip(sorted(found), sound, strict=True) if good
                )
    return found


def covers(blocks: frozenset[int], block_rows: int, span: Range) -> bool:
    """Return True if all rows of a range lie in these blocks.

    Examples
    --------
    >>> covers(frozenset({0, 1}), 4, (0, 8)), covers(frozenset({0, 1}), 4, (4, 9))
    (True, False)
    """
    start, stop = span
    return all(block in blocks for block in range(start // block_rows, -(-stop // block_rows)))


def check_whole(staging: Staging, arrays: Sequence[StagedArray]) -> None:
    """Refuse to publish an output of which blocks are missing.

    Raises
    ------
    OutputExistsError
    """
    for array in arrays:
        n_rows = array.open().shape[0]
        missing = set(range(-(-n_rows // array.block_rows))) - _listed(array)
        if missing:
            raise OutputExistsError(
                f"{len(missing)} blocks of the unfinished output {staging.target.url!r} were taken away "
                "while it was being written, most likely by another process that went on with it; run only "
                "one at a time, and this one again with resume."
            )


def _listed(array: StagedArray) -> frozenset[int]:
    files = list_files(array.work.child(f"{array.name}/c"))
    blocks = [file.name.split("/")[0] for file in files if file.size > 0]
    return frozenset(int(block) for block in blocks if block.isdecimal())


def _is_sound(array: StagedArray, block: int) -> bool:
    start = block * array.block_rows
    try:
        array.open()[start : start + array.block_rows]
    except Exception:  # whatever a codec says of bytes that are none of its own
        return False
    return True
