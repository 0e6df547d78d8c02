"""Merging of neighbours, as a counter carries: when it happens follows from the leaves' numbers.

Leaves that are made together, wherever that is, can therefore be merged there too: whoever appends them to
a tree finds the merges done. Each is made of the same nodes with the same draws as it would be in the
tree, so it does not show who made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daskcluster.methods.streaming.tree.node import LeafSettings, Node, merged

FAN_IN = 4
"""Neighbours that are merged into one."""

MOST_LEVELS = 10
"""The highest node takes what would be above it, so the tree has a bounded size whatever comes."""

Carried = Sequence[Node]
"""What a leaf was merged into with those before it, one node for each level that it completed."""


def carry(nodes: list[Node], settings: LeafSettings, ready: Carried = ()) -> None:
    """Merge the last nodes as long as there are enough of one level.

    Parameters
    ----------
    nodes : list of Node
        IN/OUT. Oldest first; levels fall.
    settings : LeafSettings
    ready : sequence of Node
        Merges that were made elsewhere: each is taken where it is due, others are made.

    Notes
    -----
    Cost: two looks at the rows of `FAN_IN` nodes for each merge that is not ready.
    """
    while (last := _together(nodes, settings)) is not None:
        node = next((one for one in ready if _is_of(one, last)), None) or _united(last, settings)
        nodes[-FAN_IN:] = [node]


def carried_ahead(leaves: Sequence[Node], settings: LeafSettings) -> list[Carried]:
    """Return the merges that consecutive leaves lead to in their tree, of those that need no others.

    Parameters
    ----------
    leaves : sequence of Node
    settings : LeafSettings

    Returns
    -------
    list of sequences of Node
        For each leaf.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.methods.streaming.tree.node import leaf
    >>> from daskcluster.methods.streaming.tree.stream_rows import StreamRows
    >>> settings = LeafSettings(size=5, leaf_rows=10, seed=0, dtype="float64")
    >>> rows = StreamRows(np.random.default_rng(0).normal(size=(10, 2)))
    >>> leaves = [leaf(rows, number, settings) for number in range(3, 9)]
    >>> [[(node.first, node.stop) for node in each] for each in carried_ahead(leaves, settings)]
    [[], [], [], [], [(4, 8)], []]
    """
    if settings.keeps_all:
        return [() for _ in leaves]
    found, nodes = list[Carried](), list[Node]()
    for leaf in leaves:
        nodes.append(leaf)
        own = list[Node]()
        while (last := _together(nodes, settings)) is not None and _is_aligned(last):
            own.append(_united(last, settings))
            nodes[-FAN_IN:] = own[-1:]
        found.append(own)
    return found


def _together(nodes: Sequence[Node], settings: LeafSettings) -> Sequence[Node] | None:
    """Return the last nodes, if they are due to be merged."""
    last = nodes[-FAN_IN:]
    if len(last) < FAN_IN or last[0].level > last[-1].level:
        return None
    span = max(node.newest for node in last) - min(node.oldest for node in last)
    return last if span <= settings.forgetting.most_span else None


def _is_aligned(nodes: Sequence[Node]) -> bool:
    """Whether a tree that forgot nothing since its first leaf would merge just these nodes."""
    level = nodes[0].level
    return level == nodes[-1].level and nodes[0].first % FAN_IN ** (level + 1) == 0


def _united(nodes: Sequence[Node], settings: LeafSettings) -> Node:
    node = merged(nodes, settings)
    return replace(node, level=min(node.level, MOST_LEVELS))


def _is_of(node: Node, parts: Sequence[Node]) -> bool:
    """Whether `node` is the merge of `parts`: of the same leaves, none of which is missing."""
    edges = [parts[0].first, *(part.stop for part in parts)]
    starts = [part.first for part in parts]
    return (
        (node.first, node.stop) == (edges[0], edges[-1])
        and starts == edges[:-1]
        and all(part.level == node.level - 1 for part in parts)
    )
