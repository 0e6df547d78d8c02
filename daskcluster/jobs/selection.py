"""Choose the number of clusters: fits of several numbers on one sample, compared by a criterion."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.data.features import is_partial
from daskcluster.data.recipes import for_metric
from daskcluster.data.spec import AS_THEY_ARE
from daskcluster.elementary import exp, log
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.estimators.checkpoints import StoredWork, unfit
from daskcluster.estimators.opening import open_stored
from daskcluster.events import Callback, FitsMade, Notice, publish
from daskcluster.extras import import_extra
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.jobs.run import JobCounters, Run
from daskcluster.methods.coreset.quality import true_costs
from daskcluster.models.record import SweepRecord
from daskcluster.randomness import Key, as_seed
from daskcluster.reports.pages import Rows, blank, format_seconds, right_aligned
from daskcluster.storage.checkpoint import CheckpointFolder, noting_stored_state
from daskcluster.storage.document import document_of, state_of
from daskcluster.storage.files import remove_folder, write_file
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class KCandidate:
    """One number of clusters, with the best of its fits on the coreset.

    Attributes
    ----------
    k : int
    inertia : float or None
        Estimated weighted sum of squared distances of all rows; None for mixtures.
    spread : float
        Excess of the worst seed over the best, as a share of the best.
    silhouette : float or None
        Simplified silhouette on the coreset; None for one cluster and for mixtures.
    log_likelihood, bic : float or None
        Mean log-density of the coreset's rows, and the BIC with the coreset's effective number of rows;
        None for k-means.
    true_inertia : float or None
        The inertia of all rows, if measured.
    """

    k: int
    inertia: float | None = None
    spread: float = 0.0
    silhouette: float | None = None
    log_likelihood: float | None = None
    bic: float | None = None
    true_inertia: float | None = None

    @property
    def error(self) -> float | None:
        """(estimated - true) / true inertia; None if not measured."""
        if self.inertia is None or not self.true_inertia:
            return None
        return self.inertia / self.true_inertia - 1.0


_COLUMNS = {
    "k": "{:d}",
    "inertia": "{:.5g}",
    "spread": "{:.1%}",
    "silhouette": "{:.3f}",
    "log_likelihood": "{:.5g}",
    "bic": "{:.6g}",
    "true_inertia": "{:.5g}",
    "error": "{:+.2%}",
}


@dataclass(frozen=True)
class KSelection:
    """Fits for several numbers of clusters, and the best one; printed as a table.

    Attributes
    ----------
    best_k : int
    criterion : str
        Criterion of `best_k`.
    candidates : tuple of KCandidate
        Ascending in k.
    notes : tuple of str
        Reservations about `best_k`: a range that is too small, no clear knee, a misleading coreset.
    centres : dict of int to ndarray
        The best centres (k, d) of every k, as a first guess for a fit on all rows.
    coreset_size, n_seeds, n_rows, n_features, passes, bytes_read : int
    seconds : float

    Notes
    -----
    Cost: memory for the best centres of every k; methods use no rows.
    """

    best_k: int
    criterion: str
    candidates: tuple[KCandidate, ...]
    notes: tuple[str, ...] = ()
    centres: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    coreset_size: int = 0
    n_seeds: int = 1
    n_rows: int = 0
    n_features: int = 0
    passes: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    @property
    def best(self) -> KCandidate:
        """The candidate of `best_k`."""
        return next(each for each in self.candidates if each.k == self.best_k)

    def table(self) -> list[dict[str, Any]]:
        """Return one dict per k, e.g. for ``pandas.DataFrame``; unknown values are left out."""
        rows = [{**asdict(each), "error": each.error} for each in self.candidates]
        known = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
        return [{name: row[name] for name in known} for row in rows]

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the centres as plain JSON values."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "centres"}
        return {**plain, "candidates": self.table(), "notes": list(self.notes)}

    def __str__(self) -> str:
        head, *rows = texts_of(self.table())
        lines = [["", *head], *(["*" if row[0] == str(self.best_k) else "", *row] for row in rows)]
        best = f"best k={self.best_k} by {self.criterion}"
        return "\n".join([*right_aligned(lines, " "), best, *self.notes])

    def plot(self, axes: Any = None) -> Any:
        """Draw the curves: inertia with its knee and silhouette, or BIC. Needs matplotlib.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        MissingExtraError
            matplotlib is not installed.
        """
        _require_plots()
        axes = blank((6.4, 4.0), layout="constrained").subplots() if axes is None else axes
        ks, name = [each.k for each in self.candidates], "inertia"
        if self.criterion == "bic":
            name = "bic"
        values = [getattr(each, name) for each in self.candidates]
        axes.plot(ks, values, "o-", ms=3, color="#1f6feb", label=f"{name} on the coreset")
        true = [(each.k, each.true_inertia) for each in self.candidates if each.true_inertia]
        if true:
            axes.plot(*zip(*true, strict=True), "s", mfc="none", color="#b35900", label="all rows")
        if name == "inertia":
            axes.set_xscale("log")
            axes.set_yscale("log")
        ticks = ks[:: -(-len(ks) // 8)]
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.axvline(self.best_k, color="#8a929c", ls=":", label=f"k = {self.best_k}")
        axes.set_xlabel("clusters")
        axes.set_ylabel(name)
        known = [
            (each.k, each.silhouette) for each in self.candidates if each.silhouette is not None
        ]
        if known:
            other = axes.twinx()
            other.plot(*zip(*known, strict=True), "-", lw=1, color="#3d8f5f")
            other.set_ylabel("simplified silhouette", color="#3d8f5f")
        axes.legend(loc="best", fontsize="small")
        return axes


def texts_of(table: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the lines of a table as texts: column names, and rows.

    Examples
    --------
    >>> texts_of([{"k": 2, "true_inertia": None}, {"k": 3, "true_inertia": 1.25}])
    [['k', 'true inertia'], ['2', ''], ['3', '1.25']]
    """
    head = list(table[0])
    cells = [
        ["" if row[name] is None else _COLUMNS[name].format(row[name]) for name in head]
        for row in table
    ]
    return [[name.replace("_", " ") for name in head], *cells]


def range_notes(ks: Sequence[int], best: int, criterion: str, *, clear: bool = True) -> list[str]:
    """Return notes for a best k at an end of the range, or for no clear knee.

    Examples
    --------
    >>> range_notes([2, 3, 4], 4, "silhouette")
    ['silhouette is best at k=4, the largest that was tried; the range may be too small: raise k_max.']
    """
    if not clear:
        return [
            f"no knee is clear between k={ks[0]} and k={ks[-1]}: no number of clusters stands out, or it "
            "lies outside; raise k_max, or use criterion='silhouette'."
        ]
    # A knee needs a point on each side.
    first, last = (ks[1], ks[-2]) if criterion == "knee" and len(ks) > 2 else (ks[0], ks[-1])
    ends = (
        (best >= last, ks[-1], "largest", "raise k_max"),
        (best <= first and ks[0] > 1, ks[0], "smallest", "lower k_min"),
    )
    for is_there, end, name, remedy in ends:
        if is_there:
            what = f"the {name} that was tried" if best == end else f"next to the {name} tried"
            text = f"{criterion} is best at k={best}, {what}; the range may be too small: {remedy}."
            return [text]
    return []


SUFFIXES = (".json", ".png", ".svg")
CRITERIA = ("knee", "silhouette", "bic")
MOST_TRIED = 32
"""Most numbers of clusters tried in a range, before the best ones are refined."""
_REFINED = 8
_FINE = 0.05
"""Numbers between the neighbours of the best one are tried until they differ by less than this share."""
_LEAST_CORESET, _PER_CLUSTER = 10_000, 100
_SHARES = 4
"""Tasks per thread of a cluster. More tasks balance the load better, but each one transfers the coreset."""
_MISLEADING = 0.1


@varies_with(order=DRAWN)
def select_k(
    X: Any,
    k_min: int = 2,
    k_max: int = 32,
    *,
    ks: Iterable[int] | None = None,
    criterion: str = "knee",
    n_seeds: int = 3,
    coreset_size: int | str = "auto",
    check: int = 3,
    init: str = "auto",
    max_iter: int = 100,
    tol: float = 1e-4,
    metric: str = "euclidean",
    covariance_type: str = "diag",
    sample_weight: Any = None,
    random_state: Any = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Any = None,
    resume: bool = False,
) -> KSelection:
    """Fit several numbers of clusters and return the best one.

    All fits run on one coreset. The best one and its neighbours are then measured on all rows.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    k_min : int, default 2
        The smallest number to try.
    k_max : int, default 32
        The largest one. A range of at most 32 numbers is tried as a whole. Of a longer range, at most 32
        with about equal ratios come first, then eight at a time around the best one, until its neighbours
        differ by 1 or by 5 %.
    ks : iterable of int, optional
        Numbers to try, instead of the range; no others are tried.
    criterion : {"knee", "silhouette", "bic"}, default "knee"
        ``"knee"``: the point of the curve of log inertia against log k that is farthest below the chord
        between its ends (Satopaa et al. 2011). ``"silhouette"``: the largest simplified silhouette.
        ``"bic"``: the least Bayesian information criterion of a Gaussian mixture.
    n_seeds : int, default 3
        Number of fits per k; the best one counts.
    coreset_size : int or "auto", default "auto"
        Rows of the coreset. ``"auto"``: 100 rows for each of `k_max` clusters, at least 10,000.
    check : int, default 3
        Number of candidates to measure on all rows: the best k and the nearest ones. 0: none. Mixtures are
        not measured.
    init, max_iter, tol, metric
        Parameters of the fits, see `daskcluster.KMeans`; mixtures have no `metric`.
    covariance_type : {"diag", "spherical", "isotropic", "tied", "full"}, default "diag"
        Covariance of mixtures.
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState or Generator, optional
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Draws the coreset, runs the fits in parallel, and measures the candidates.
    callbacks : sequence of callables, default ()
        Called with the events of passes and of the fits (`daskcluster.events.FitsMade`).
    checkpoint : str or path, optional
        Folder or URL under which the coreset, every finished fit with its measures, the state of fits that
        run (every half a minute) and the totals of long passes are saved. Workers that cannot write there
        run fits that keep no state of their own.
    resume : bool, default False
        Resume from what is saved under `checkpoint`, to the same bits: no finished fit is repeated.

    Returns
    -------
    KSelection
        ``best_k``, ``table()``, ``notes``, ``centres``, ``plot()``, ``as_dict()``; printed as a table.

    Raises
    ------
    CheckpointError
        What is saved under `checkpoint` is of other rows or arguments, or damaged.
    InvalidParameterError
        Invalid range or criterion, or more clusters than rows.

    Notes
    -----
    Cost: two passes for the coreset and one for all checks together. The fits take no pass: each runs on
    the m = `coreset_size` rows of the coreset, in one thread. A checkpoint takes the bytes of the coreset,
    and 2 k d numbers for every fit.

    Fits have a lower inertia on their coreset than on all rows, and more so for large k. `check` measures
    the difference, and a note reports it if it exceeds a tenth. BIC counts the coreset's effective number
    of rows, not the number of rows that it represents.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2)) + 30 * rng.permutation(np.arange(4000) % 5)[:, None]
    >>> found = dc.select_k(X, 1, 12, random_state=0, n_seeds=2)
    >>> found.best_k, found.notes
    (5, ())
    """
    counters = JobCounters()
    dataset, _ = open_stored(X, AS_THEY_ARE, weights=sample_weight)
    tried = _tried(ks, k_min, k_max, dataset.n_rows)
    if criterion not in CRITERIA:
        raise InvalidParameterError(
            f"criterion={criterion!r} should be one of {', '.join(CRITERIA)}."
        )
    if n_seeds < 1 or check < 0:
        raise InvalidParameterError(
            f"n_seeds={n_seeds} should be >= 1 and check={check} should be >= 0."
        )
    if coreset_size != "auto" and not (isinstance(coreset_size, int) and coreset_size >= 1):
        raise InvalidParameterError(
            f"coreset_size={coreset_size!r} should be 'auto' or a whole number >= 1."
        )
    chosen, seed = choose_engine(engine, dataset), as_seed(random_state)
    size = max(_LEAST_CORESET, _PER_CLUSTER * tried[-1])
    size = size if coreset_size == "auto" else int(coreset_size)
    if size < tried[-1]:
        raise InvalidParameterError(
            f"coreset_size={size} should be >= k_max={tried[-1]}; 100 rows per cluster are a good start."
        )
    settings: dict[str, Any] = {"init": init, "max_iter": max_iter, "tol": tol}
    mixture = criterion == "bic"
    settings |= {"covariance_type": covariance_type} if mixture else {"metric": metric}
    facts: dict[str, Any] = {"k_min": int(k_min), "k_max": int(k_max)}
    facts = facts if ks is None else {"ks": str(tried)}
    facts |= {"criterion": criterion, "n_seeds": n_seeds, "coreset_size": size, "check": check}
    facts |= {**settings, "metric": metric, "random_state": random_state}
    heard: tuple[Callback, ...] = (*callbacks, counters)
    with StoredWork.begin(
        checkpoint, "sweep", facts, dataset, seed=seed, resume=resume, callbacks=callbacks
    ) as stored:
        seed = seed if stored is None else stored.seed
        rows = for_metric(dataset, metric)
        few = _drawn(rows, size, seed, stored, chosen, counters, callbacks)
        kept = None if stored is None else KeptFits.of(stored.folder, few, chosen, callbacks)
        fit = partial(fit_shares, few, _fit_mixture if mixture else _fit_kmeans, settings)
        fits: dict[int, KFit] = {}
        more = tried
        while more:
            attempts = [
                (k, number, Key(seed, f"k={k}", number).derived_seed() % 2**31)
                for k in more
                for number in range(n_seeds)
            ]
            fits |= best_fits(_made(attempts, fit, chosen, kept, heard))
            tried = sorted(fits)
            candidates = [fits[k].candidate for k in tried]
            best, notes = _decide(candidates, criterion)
            more = [] if ks is not None else around(tried, best)
        near = sorted(tried, key=lambda k: (abs(tried.index(k) - tried.index(best)), k))[:check]
        if near and not mixture:
            found = [fits[k].on_scale for k in near]
            with chosen.place(rows, callbacks=heard) as placement:
                placement.totals = None if stored is None else stored.totals()
                centres = [each.astype(compute_dtype(rows.dtype)) for each in found]
                costs = dict(
                    zip(near, true_costs(ScaledPlacement(placement), centres), strict=True)
                )
            candidates = [replace(each, true_inertia=costs.get(each.k)) for each in candidates]
    counts = counters.common(dataset)
    counts.pop("versions")
    return KSelection(
        best,
        criterion,
        tuple(candidates),
        (*notes, *_misleading(candidates)),
        {k: fit.centres for k, fit in fits.items()},
        few.n_rows,
        n_seeds,
        **counts,
    )


def _drawn(
    rows: Dataset,
    size: int,
    seed: int,
    stored: StoredWork | None,
    engine: Engine,
    counters: JobCounters,
    callbacks: Sequence[Callback],
) -> Dataset:
    """Return the coreset, drawn anew or by an earlier run."""
    from daskcluster.methods.coreset.estimator import LightweightCoreset

    coreset = LightweightCoreset(
        size,
        random_state=Key(seed, "coreset of a selection").derived_seed(),
        engine=engine,
        callbacks=(*callbacks, counters),
        checkpoint=None if stored is None else stored.folder.attachment("coreset"),
    )
    drawn = coreset.draw(rows, resume=stored is not None and stored.resumes)
    counters.at_least(drawn.passes_, drawn.bytes_read_)
    return drawn.coreset_


def _made(
    attempts: Sequence[Try],
    fit: Callable[..., list[KFit]],
    engine: Engine,
    kept: KeptFits | None,
    callbacks: Sequence[Callback],
) -> list[KFit]:
    """Return the fits of all attempts: those of an earlier run, and the others, which are made."""
    ended = [] if kept is None else kept.finished(attempts)
    known = {(each.candidate.k, each.number) for each in ended}
    left = [each for each in attempts if each[:2] not in known]
    if ended:
        publish(callbacks, FitsMade(len(ended), len(attempts)))
    # Local threads share the coreset, so one task per fit costs no transfer.
    n_shares = len(left) if engine.name == "local" else _SHARES * engine.n_threads
    theirs = kept if kept is not None and kept.in_tasks else None
    tasks = [partial(fit, share, kept=theirs) for share in dealt(left, n_shares)]
    with closing(engine.run_ahead(tasks)) as made:
        for few_fits in made:
            if kept is not None and theirs is None:
                for each in few_fits:
                    kept.keep(each)
            ended += few_fits
            publish(callbacks, FitsMade(len(ended), len(attempts)))
    return ended


# -- before the fits -------------------------------------------------------------------------------------


def _tried(ks: Iterable[int] | None, k_min: int, k_max: int, n_rows: int) -> list[int]:
    """Return the numbers of clusters to try, ascending."""
    if ks is not None:
        tried = sorted({int(k) for k in ks})
    elif not 1 <= k_min <= k_max:
        raise InvalidParameterError(
            f"k_min={k_min} and k_max={k_max} should be 1 <= k_min <= k_max."
        )
    else:
        tried = spaced(int(k_min), int(k_max))
    if not tried or tried[0] < 1:
        raise InvalidParameterError(f"ks={tried} should be whole numbers >= 1, at least one.")
    if tried[-1] > n_rows:
        raise InvalidParameterError(
            f"n_samples={n_rows} should be >= k_max={tried[-1]}; lower k_max or add rows."
        )
    return tried


def spaced(k_min: int, k_max: int, most: int = MOST_TRIED) -> list[int]:
    """Return all numbers of a range, or at most `most` of them with about equal ratios.

    Examples
    --------
    >>> spaced(2, 6), spaced(1, 1000, 7)
    ([2, 3, 4, 5, 6], [1, 3, 10, 32, 100, 316, 1000])
    """
    if k_max - k_min < most:
        return list(range(k_min, k_max + 1))
    shares = np.arange(most) / max(1, most - 1)
    steps = exp(log(k_min) + shares * (log(k_max) - log(k_min)))
    return sorted({round(k) for k in steps.tolist()})


def around(tried: Sequence[int], best: int, most: int = _REFINED) -> list[int]:
    """Return up to `most` numbers between the neighbours of the best one; none if those are near it.

    Parameters
    ----------
    tried : sequence of int
        Ascending.
    best : int
        One of them.

    Examples
    --------
    >>> around([1, 10, 100], 10, most=4), around([9, 10, 12], 10), around([99, 100, 102], 100)
    ([3, 6, 16, 40], [11], [])
    """
    place = tried.index(best)
    low, high = tried[max(0, place - 1)], tried[min(len(tried) - 1, place + 1)]
    if high - low <= _FINE * best:
        return []
    return [k for k in spaced(low, high, most + 2) if k not in tried]


# -- after them --------------------------------------------------------------------------------------------


def _decide(candidates: Sequence[KCandidate], criterion: str) -> tuple[int, list[str]]:
    """Return the best k, and notes about the range."""
    ks = [each.k for each in candidates]
    clear = True
    if criterion == "knee":
        index, height = find_knee(np.array(ks), np.array([each.inertia for each in candidates]))
        best, clear = ks[index], height >= LEAST_HEIGHT
    else:
        # The least BIC, or the largest silhouette; no value counts as the worst.
        sign = 1.0 if criterion == "bic" else -1.0
        values = {each.k: getattr(each, criterion) for each in candidates}
        best = min(ks, key=lambda k: (np.inf if values[k] is None else sign * values[k], k))
    return best, range_notes(ks, best, criterion, clear=clear)


def _misleading(candidates: Sequence[KCandidate]) -> list[str]:
    errors = [(each.k, each.error) for each in candidates if each.error is not None]
    bad = [(k, error) for k, error in errors if abs(error) > _MISLEADING]
    if not bad:
        return []
    k, error = max(bad, key=lambda pair: abs(pair[1]))
    return [
        f"the coreset is too small: at k={k} it estimates an inertia that is off by {error:+.0%}; raise "
        "coreset_size."
    ]


Try = tuple[int, int, int]
"""A number of clusters, the index of a start, and its seed, which does not depend on other starts."""
Fit = Callable[..., "KFit"]


@dataclass(frozen=True)
class KFit:
    """The result of one fit on the coreset.

    Attributes
    ----------
    candidate : KCandidate
        The number of clusters, and what is known of it.
    number : int
        The index of the start.
    centres : ndarray of shape (k, d)
        In the units of the data.
    on_scale : ndarray of shape (k, d)
        The centres on the scale of the fit; the same array where features are not scaled.
    cost : float
        The value that the best start minimises: inertia, or minus the mean log-likelihood.
    """

    candidate: KCandidate
    number: int
    centres: np.ndarray
    on_scale: np.ndarray
    cost: float


@dataclass(frozen=True)
class KeptFits:
    """Where fits are kept when they are finished, and where they keep their state; sent to workers.

    Attributes
    ----------
    folder : CheckpointFolder
        Has a part for every finished fit, which is committed once.
    in_tasks : bool
        Whether tasks can write there; otherwise the driver keeps their fits.
    while_running : bool
        Whether fits keep their state while they run.
    """

    folder: CheckpointFolder
    in_tasks: bool
    while_running: bool

    @classmethod
    def of(
        cls, folder: CheckpointFolder, few: Dataset, engine: Engine, callbacks: Sequence[Callback]
    ) -> KeptFits:
        """Return where fits of a coreset are kept that run on an engine."""
        in_tasks = engine.can_read(folder)
        if not in_tasks:
            text = (
                f"workers cannot write to {folder.url!r}, so only finished fits are kept, as they are "
                "returned; give checkpoint= a bucket or a folder that workers share."
            )
            publish(callbacks, Notice(text))
        return cls(folder, in_tasks, while_running=in_tasks and not is_partial(few))

    def running(self, k: int, number: int) -> Location:
        """Return where a fit keeps its state."""
        return self.folder.attachment(f"{_RUNNING}{_name(k, number)}")

    def keep(self, fit: KFit) -> None:
        """Commit a finished fit; its state while it ran is removed."""
        k, number = fit.candidate.k, fit.number
        self.folder.part(_name(k, number)).commit(document_of(fit))
        if self.while_running:
            remove_folder(self.running(k, number))

    def finished(self, attempts: Sequence[Try]) -> list[KFit]:
        """Return the finished ones of some fits; what is left of their state is removed.

        Raises
        ------
        CheckpointError
            One is damaged.
        """
        names, found = set(self.folder.parts()), list[KFit]()
        for k, number, _ in attempts:
            name = _name(k, number)
            part = self.folder.part(name)
            document = part.latest() if name in names else None
            if document is None:
                continue
            if f"{_RUNNING}{name}" in names:
                remove_folder(self.running(k, number))
            try:
                shapes = dict.fromkeys(("centres", "on_scale"), (k, None))
                found.append(state_of(KFit, document, shapes))
            except ModelFormatError as error:
                raise unfit(part.url, error) from error
        return found


_RUNNING = "running-"


def _name(k: int, number: int) -> str:
    return f"fit-{k}-{number}"


def fit_shares(
    few: Dataset,
    fit: Fit,
    settings: Mapping[str, Any],
    attempts: Sequence[Try],
    kept: KeptFits | None = None,
) -> list[KFit]:
    """Run fits one after the other; each that is finished is kept."""
    engine, made = LocalEngine(n_threads=1), list[KFit]()
    for k, number, seed in attempts:
        keeping: dict[str, Any] = {}
        if kept is not None and kept.while_running:
            # Short fits only keep their beginning and their end.
            every = int(settings["max_iter"]) + 1
            keeping = {"checkpoint": kept.running(k, number), "checkpoint_every": every}
        made.append(fit(few, k, number, random_state=seed, engine=engine, **settings, **keeping))
        if kept is not None:
            kept.keep(made[-1])
    return made


def _fit_kmeans(few: Dataset, k: int, number: int, **settings: Any) -> KFit:
    from daskcluster.methods.kmeans.estimator import KMeans

    model = KMeans(k, n_init=1, **settings).fit(few, resume="checkpoint" in settings)
    silhouette = None
    if k > 1:
        _, distances = model.predict(few, n_nearest=2, return_distance=True)
        silhouette = simplified_silhouette(distances, few.weights)
    cost = float(model.inertia_)
    candidate = KCandidate(k, inertia=cost, silhouette=silhouette)
    return KFit(candidate, number, model.cluster_centers_, model.to_model().centres, cost)


def _fit_mixture(few: Dataset, k: int, number: int, **settings: Any) -> KFit:
    from daskcluster.methods.mixture.estimator import VariationalGaussianMixture

    model = VariationalGaussianMixture(k, **settings).fit(few, resume="checkpoint" in settings)
    mean = float(model.score(few))
    rows = effective_rows(few)
    bic = model.n_parameters() * float(log(rows)) - 2.0 * rows * mean
    candidate = KCandidate(k, log_likelihood=mean, bic=bic)
    return KFit(candidate, number, model.means_, model.to_model().centres, -mean)


def simplified_silhouette(distances: np.ndarray, weights: Any) -> float:
    """Return the mean of (b - a) / b over the rows, weighted where they have weights.

    Parameters
    ----------
    distances : ndarray of shape (n, 2)
        Distances to the nearest (a) and the second nearest centre (b). The simplified silhouette has these
        in place of mean distances to rows (Hruschka, de Castro, Campello, 2004).
    weights : array-like of shape (n,), or None

    Examples
    --------
    >>> import numpy as np
    >>> simplified_silhouette(np.array([[1.0, 4.0], [2.0, 4.0]]), [3.0, 1.0])
    0.6875
    """
    wide = distances.astype(np.float64)
    nearest, second = wide[:, 0], wide[:, 1]
    values = np.where(second > 0.0, 1.0 - nearest / np.where(second > 0.0, second, 1.0), 0.0)
    return float(np.average(values, weights=None if weights is None else np.asarray(weights)))


def effective_rows(few: Dataset) -> float:
    """Return the effective number of rows of a weighted sample, (sum w)^2 / sum w^2 (Kish, 1965).

    A mixture overfits the few rows of a coreset. A criterion that counted all rows that the coreset
    represents would not penalise this enough, and would choose too many components.
    """
    if few.weights is None:
        return float(few.n_rows)
    weights = np.asarray(few.weights, np.float64)
    return float(weights.sum() ** 2 / (weights * weights).sum())


def dealt(attempts: Sequence[Try], shares: int) -> list[list[Try]]:
    """Distribute fits over tasks of about equal length, the largest k first.

    Examples
    --------
    >>> dealt([(2, 0, 7), (4, 0, 8), (8, 0, 9)], 2)
    [[(8, 0, 9), (2, 0, 7)], [(4, 0, 8)]]
    """
    ordered = sorted(attempts, reverse=True)
    return [ordered[first::shares] for first in range(min(shares, len(ordered)))]


def best_fits(fits: Sequence[KFit]) -> dict[int, KFit]:
    """Return the best start of every k, ascending, and by which share the worst start is worse."""
    found: dict[int, KFit] = {}
    for k in sorted({fit.candidate.k for fit in fits}):
        mine = [fit for fit in fits if fit.candidate.k == k]
        starts = sorted(mine, key=lambda fit: (fit.cost, fit.number))
        best, worst = starts[0], starts[-1]
        spread = (worst.cost - best.cost) / abs(best.cost) if best.cost else 0.0
        found[k] = replace(best, candidate=replace(best.candidate, spread=spread))
    return found


LEAST_HEIGHT = 0.05
"""Bends below this share of the total fall count as noise."""
_LEAST_COST = 1e-12


def find_knee(ks: np.ndarray, costs: np.ndarray) -> tuple[int, float]:
    """Return the index of the knee of `costs` against `ks`, the point that lies farthest below the chord.

    And its distance below the chord, as a share of the total fall: 0 for a straight line, negative if the
    whole curve is above its chord.

    Parameters
    ----------
    ks : ndarray of shape (m,)
        Numbers of clusters, ascending, at least 1.
    costs : ndarray of shape (m,)
        At least 0. Costs below 1e-12 times the first are raised to that value.

    Examples
    --------
    >>> import numpy as np
    >>> ks = np.arange(1, 9)
    >>> find_knee(ks, np.array([100, 60, 30, 5, 4.6, 4.3, 4.1, 4.0]))[0]
    3
    >>> abs(find_knee(ks, 7.0 / ks)[1]) < 1e-9
    True
    """
    if len(ks) < 3 or costs[0] <= 0.0:
        return 0, 0.0
    across = log(np.asarray(ks, np.float64))
    down = log(np.maximum(np.asarray(costs, np.float64) / costs[0], _LEAST_COST))
    fall = down[0] - down[-1]
    if fall <= 0.0:
        return 0, 0.0
    chord = 1.0 - (across - across[0]) / (across[-1] - across[0])
    height = chord - (down - down[-1]) / fall
    index = 1 + int(np.argmax(height[1:-1]))
    return index, float(height[index])


@varies_with(order=DRAWN)
def sweep(
    source: Any,
    *,
    k_min: int = 2,
    k_max: int = 32,
    ks: Iterable[int] | None = None,
    output: str | None = None,
    random_state: int | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    scale: str | None = None,
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> SweepRecord:
    """Fit several numbers of clusters to `source` and return the best one.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    k_min, k_max, ks
        The numbers to try; see `daskcluster.select_k`.
    output : str, optional
        URL of a file to write: the table and the best number if it ends in ``.json``, the curves if it ends
        in ``.png`` or ``.svg`` (needs matplotlib).
    random_state : int, optional
    checkpoint : str, optional
        URL under which to save finished fits and the state of others; see `daskcluster.select_k`.
    resume : bool, default False
        Resume from what is saved under `checkpoint`.
    array, weights, storage_options, flatten, decode, columns, missing, scale, grid, overwrite, name, engine
    callbacks
        See `fit`. Without `output`, a restarted job resumes only with `checkpoint` and `resume`.
    **settings
        Further arguments of `daskcluster.select_k`: ``criterion``, ``n_seeds``, ``coreset_size``,
        ``check``, ``init``, ``max_iter``, ``tol``, ``metric``, ``covariance_type``.

    Returns
    -------
    SweepRecord

    Raises
    ------
    OutputExistsError
        The output exists; raised before any work.
    CheckpointError, InvalidParameterError, InvalidDataError
    JobCancelledError, LeaseError
        The job was cancelled (checked during passes and after fits), or another job or run writes the
        output.

    Notes
    -----
    Cost: that of `daskcluster.select_k`: three passes, and one more with `scale`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(4000, 2)) + 30 * rng.permutation(np.arange(4000) % 5)[:, None]
    >>> url = "memory://example/table.json"
    >>> record = sweep(rows, k_max=12, n_seeds=2, random_state=0, output=url, overwrite=True)
    >>> record.best_k, len(record.candidates)
    (5, 11)
    """
    asked = locals()
    tried = {"k_min": k_min, "k_max": k_max, "ks": None if ks is None else [int(k) for k in ks]}
    place = None if checkpoint is None else locate(checkpoint, storage_options)
    with Run("sweep", asked) as run, noting_stored_state(place, "the sweep"):
        if (before := run.begin(SweepRecord)) is not None:
            return before
        kind = str(output or ".json").lower().rpartition(".")[2]
        if kind != "json":
            _require_plots()
        dataset, chosen = run.open_rows()
        opened, n_bytes = run.counters.passes, run.counters.bytes_read
        found = select_k(
            dataset,
            **{**settings, **tried},
            random_state=random_state,
            engine=chosen,
            callbacks=run.callbacks,
            checkpoint=run.state_at(place),
            resume=resume or run.is_resumed,
        )
        run.counters.at_least(opened + found.passes, n_bytes + found.bytes_read)
        common = {**found.as_dict(), **run.counters.common(dataset)}
        record = SweepRecord(output=output, **common)
        if output is not None:
            run.begin_output()
            folder, _, file = run.outputs["output"].url.rpartition("/")
            content = json.dumps(record.as_dict(), allow_nan=False, indent=1).encode()
            if kind != "json":
                drawn = io.BytesIO()
                found.plot().figure.savefig(drawn, format=kind, dpi=150)
                content = drawn.getvalue()
            write_file(replace(run.outputs["output"], url=folder), file, content)
        return run.done(record)


def _require_plots() -> None:
    import_extra("matplotlib", "plots", "Plots need matplotlib")


def check_table(url: str) -> None:
    """Refuse endings of files that a sweep does not write."""
    if not str(url).lower().endswith(SUFFIXES):
        raise InvalidParameterError(
            f"output {str(url)!r} should end in one of {', '.join(SUFFIXES)}."
        )


def lines_of_sweep(record: Mapping[str, Any]) -> Rows:
    """Return the table of a sweep, the best number and its caveats as lines of text."""
    lines = right_aligned(texts_of(record["candidates"]))
    lines.append(f"best      k={record['best_k']} by {record['criterion']}")
    lines += [f"note      {note}" for note in record["notes"]]
    lines.append(f"passes    {record['passes']}, {format_seconds(record['seconds'])}")
    lines += [] if record["output"] is None else [f"written   {record['output']}"]
    return [(line, "") for line in lines]
