"""Engines and callbacks are somebody's objects: shared by copies and clones, left out of pickles."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from daskcluster.parameters.checks import check_value
from daskcluster.parameters.parameter import Parameter

BY_REFERENCE = ("engine", "callbacks")
"""Parameters that are no plain values."""


class SharesEngine(BaseEstimator):
    """Base of estimators that have an ``engine``, and perhaps ``callbacks``.

    A class declares its parameters as ``_parameters``, in the order of its constructor.
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = ()

    def check_parameters(self) -> None:
        """Refuse parameters that `fit` would refuse, whatever the rows.

        Raises
        ------
        InvalidParameterError, WrongTypeError
        """
        for parameter in self._parameters:
            check_value(type(self).__name__, parameter, getattr(self, parameter.name))

    def __sklearn_clone__(self) -> Self:
        values = self.get_params(deep=False)
        kept = {name: values.pop(name) for name in BY_REFERENCE if name in values}
        return type(self)(**copy.deepcopy(values), **kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = self.__class__.__new__(self.__class__)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            setattr(twin, name, value if name in BY_REFERENCE else copy.deepcopy(value, memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state["engine"] = None
        if "callbacks" in state:
            state["callbacks"] = ()
        return state
