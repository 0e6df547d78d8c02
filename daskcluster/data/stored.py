"""Rows that stay where they are stored: read by whoever opens their recipe."""

from __future__ import annotations

from typing import Any

from daskcluster.data.dataset import RowDataset
from daskcluster.data.recipes import HeldRecipe, StoredRecipe, reopen
from daskcluster.typing import Reach, Recipe


class StoredDataset(RowDataset):
    """Base of datasets in a store; the recipe of one without a URL is found in this process alone."""

    _recipe: StoredRecipe | HeldRecipe

    @property
    def source(self) -> str:
        return self._recipe.source

    @property
    def own_reach(self) -> Reach:
        return self._recipe.reach

    def own_recipe(self) -> Recipe:
        return self._recipe

    def __reduce__(self) -> tuple[Any, ...]:
        # Never what was opened: its store would carry the credentials along.
        return (reopen, (self.recipe(),))
