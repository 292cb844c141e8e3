"""Sorters by name, for what only needs the k largest."""

from __future__ import annotations

from softly.selection import networks
from softly.selection.operators import TopKNetwork
from softly.sorting.functional import get_sorter
from softly.sorting.sorter import Sorter


def get_selector(sorter: str | Sorter, function: str, *, steepness: float | None = None) -> Sorter:
    """The sorter of a name, at this steepness or its own default, or the sorter itself: a network's name is that of a
    `TopKNetwork`, which does no more than it has to.
    """
    if isinstance(sorter, str) and sorter in networks.names():
        return TopKNetwork(sorter) if steepness is None else TopKNetwork(sorter, steepness=steepness)
    try:
        return get_sorter(sorter, steepness if isinstance(sorter, str) else None, None, function)
    except ValueError as error:
        raise ValueError(str(error).replace("choose from ", "choose from splitter, ")) from None
