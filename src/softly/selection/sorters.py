"""Sorters by name, for what only needs the k largest."""

from __future__ import annotations

from softly.selection import networks
from softly.selection.operators import TopKNetwork
from softly.sorting.functional import get_sorter
from softly.sorting.sorter import Sorter


def get_selector(sorter: str | Sorter, function: str) -> Sorter:
    """The sorter of a name, or the sorter itself: a network's name is that of a `TopKNetwork`, which does no more
    than it has to.
    """
    if isinstance(sorter, str) and sorter in networks.names():
        return TopKNetwork(sorter)
    try:
        return get_sorter(sorter, None, None, function)
    except ValueError as error:
        raise ValueError(str(error).replace("choose from ", "choose from splitter, ")) from None
