"""Reports on fitted estimators, and what a notebook shows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from daskcluster.estimators.examples import MOST_RANKED

if TYPE_CHECKING:
    from daskcluster.reports.contents import Report


class ReportMixin(BaseEstimator):
    """Estimators with ``to_model`` that report on what they learnt."""

    def to_model(self) -> Any:
        """Return the fitted model, without the data."""
        raise NotImplementedError

    def report(
        self, X: Any = None, sample_weight: Any = None, *, image_shape: Any = None
    ) -> Report:
        """Return a report: in a notebook a page, with ``report(X).save("report.html")`` a file.

        Without rows, it shows what the fit knows: what sets each cluster apart, sizes, centres and
        convergence. With rows, usually those of the fit, it also shows how well the clusters are separated,
        how stable they are over seeds, and example rows.

        Parameters
        ----------
        X : anything `fit` takes, optional
        sample_weight : array-like of shape (n,), optional
        image_shape : tuple of int, optional
            ``(height, width)`` or ``(height, width, channels)`` of rows that are pictures.

        Returns
        -------
        Report
            Its ``save(path)`` writes .html, .png, .md or .json.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            The estimator is not fitted.
        InvalidParameterError
            Rows are not of the shape `image_shape`.

        Notes
        -----
        Cost: one pass over `X`, with k + 1 distances per row; then a few seconds in this process for a
        sample of at most 10,000 rows. No pass without `X`. Charts need matplotlib.
        """
        from daskcluster.reports.charts import check_shape
        from daskcluster.reports.contents import MOST_EXAMPLES, Report

        check_is_fitted(self)
        model, data = self.to_model(), None
        shape = None if image_shape is None else check_shape(image_shape, model.n_features)
        if X is not None:
            dataset = self.known_rows(X, sample_weight)
            found = self.examine(dataset, MOST_EXAMPLES, MOST_RANKED)
            data = found.clusters("Clusters in these rows", dataset.n_rows)
        return Report(model, type(self).__name__, data=data, image_shape=shape)

    @property
    def _repr_html_(self) -> Any:
        """What a notebook shows: a report once fitted, before that scikit-learn's diagram."""
        diagram = super()._repr_html_  # raises if scikit-learn is set to display text
        try:
            return self.report()._repr_html_
        except NotFittedError:
            return diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_()
        return bundle
