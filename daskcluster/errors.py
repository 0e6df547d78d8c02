"""Errors: each says what was expected, what was found and what to do.

Every class also inherits the builtin that a caller would catch, so that code written for
scikit-learn or for plain Python keeps working.
"""

from __future__ import annotations


class DaskClusterError(Exception):
    """Base of every error that daskcluster raises on purpose."""


class InvalidParameterError(DaskClusterError, ValueError):
    """A parameter has a value that the rule in the message does not allow."""


class InvalidDataError(DaskClusterError, ValueError):
    """The rows cannot be clustered as they are: wrong shape, dtype, NaN or infinity."""


class WrongTypeError(InvalidParameterError, TypeError):
    """An argument is of a type that has no meaning here; a ValueError as well, as in scikit-learn."""


class DatasetNotFoundError(DaskClusterError, FileNotFoundError):
    """There is no readable dataset under the given URL."""


class OutputExistsError(DaskClusterError, FileExistsError):
    """The output is already there and overwriting was not asked for."""


class MemoryLimitError(DaskClusterError, MemoryError):
    """The work does not fit the stated memory; the message has projected, allowed and remedy."""


class DiskSpaceError(DaskClusterError, OSError):
    """A disk is full or too small; the message has its path, free space and remedy."""


class DataNotReachableError(DaskClusterError, ValueError):
    """The workers cannot read the dataset from where they are."""


class SchedulerUnreachableError(DaskClusterError, ConnectionError):
    """No Dask scheduler answered in time."""


class ModelFormatError(DaskClusterError, ValueError):
    """A saved model is damaged, of an unknown format version, or no model at all."""


class CheckpointError(DaskClusterError, ValueError):
    """Cannot resume: the checkpoints belong to another fit, or all are damaged."""


class ModelNotFoundError(ModelFormatError, FileNotFoundError):
    """There is no readable model under the given URL."""


class EngineError(DaskClusterError, RuntimeError):
    """The engine cannot run the work here; the message says where it can."""


class MissingExtraError(DaskClusterError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class LeaseError(DaskClusterError, RuntimeError):
    """Another job, or another run of the same job, writes the output."""


class JobCancelledError(DaskClusterError, RuntimeError):
    """The job was asked to stop and did; its checkpoint stays."""


class JobNotFoundError(DaskClusterError, LookupError):
    """The scheduler knows no job of that name."""


_FROM_OUTSIDE = (EngineError, MemoryError, OSError, KeyboardInterrupt, SystemExit)


def comes_from_outside(error: BaseException) -> bool:
    """Return True for errors that end valid work, so that the same call may resume later.

    Examples
    --------
    >>> comes_from_outside(SchedulerUnreachableError()), comes_from_outside(InvalidDataError())
    (True, False)
    """
    return isinstance(error, _FROM_OUTSIDE) and not isinstance(error, FileExistsError)
