"""Centres as rows are compared with them, where a fit was made on a scale of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import undone


class OnScale:
    """Centres on the scale of the fit, of which an attribute has those in the units of the data.

    That attribute is a plain one, as scikit-learn's are: wrappers copy what they find in ``vars()``.
    Setting either of the two sets both.

    Parameters
    ----------
    shown : str
        Name of the attribute with the units of the data. Its owner has ``scaling_``, set before either.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        centres = getattr(owner, self._shown)
        if owner.scaling_ is None:
            return centres
        shown, scaled = vars(owner).get("_scaled", (None, None))
        # Undone and applied again they would be rounded twice.
        return scaled if shown is centres else np.asarray(owner.scaling_.apply(centres))

    def __set__(self, owner: Any, centres: np.ndarray) -> None:
        shown = undone(owner.scaling_, centres)
        setattr(owner, self._shown, shown)
        if owner.scaling_ is not None:
            vars(owner)["_scaled"] = shown, centres
