"""What a report tells of a model, as a page and as figures."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import fsspec
import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import InvalidParameterError, OutputExistsError
from daskcluster.models.fitted import load_document
from daskcluster.reports import pages as drawing
from daskcluster.reports import pages as html
from daskcluster.reports.charts import Chart, plane
from daskcluster.reports.contents import MOST_CLUSTERS, Clusters, Report, Table
from daskcluster.reports.pages import as_html, as_markdown, as_png, as_svg
from tests.reports.models import make_model


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return a report in which all sections have something to say."""
    rng = np.random.default_rng(0)
    patterns = rng.uniform(0, 16, (5, 24))
    rows = (patterns[rng.integers(0, 5, 600)] + rng.normal(size=(600, 24))).astype(np.float32)
    url = str(tmp_path_factory.mktemp("report") / "model")
    dc.KMeans(5, random_state=0, tol=0, engine="local").fit(rows).save(url)
    model, dataset = load_document(url), dc.open_dataset(rows)
    clusters = jobs.examine(model, dataset, shown=5, most=3)
    return Report(model, "<b>&", data=clusters, facts=[("a<", ">b")])


def charts_of(report: Report) -> list[Chart]:
    return [part for one in report.sections() for part in one.parts if isinstance(part, Chart)]


def test_a_page_is_whole_and_escaped(report: Report) -> None:
    page = as_html(report)
    assert page.startswith("<!doctype html>")
    assert "<title>&lt;b&gt;&amp;</title>" in page
    assert "a&lt;" in page
    assert "max_time" in page
    pictures = re.findall(r'src(?:set)?="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(pictures) == 2 * len(charts_of(report)) == 10  # for wide and narrow screens
    for picture in pictures:
        assert ET.fromstring(base64.b64decode(picture)).tag.endswith("svg")
    rest = re.sub(r'src(set)?="data:[^"]+"', "", page)
    assert not re.search(r"https?:|<script|<link|url\(", rest)
    for section in report.sections():
        assert section.parts


def test_figures_as_json(report: Report) -> None:
    found = json.loads(json.dumps(report.as_dict()))
    assert len(found["history"]) == report.model.n_iter
    ranked = found["clusters"]["Clusters in these rows"]["nearest"]
    assert len(ranked["row"]) == 15
    assert found["summary"]["a<"] == ">b"


def test_many_clusters_and_no_history() -> None:
    k = MOST_CLUSTERS + 50
    data = Clusters(np.ones(k, int), np.ones(k), np.ones(k), "elsewhere", [("rows", "7")])
    page = as_html(Report(make_model(k, history=[], parameters={}), title="m", data=data))
    assert page.count("50 smaller clusters are not listed") == 2
    assert "Convergence" not in page
    assert "Parameters" not in page


def test_histories_of_all_kinds_are_drawn() -> None:
    both = {"batch_size": 5, "validation": 2.0}
    for history in (
        [{"iteration": 1, "inertia": 3.0, "seconds": 0.0}],
        [{"iteration": 1, "free_energy": -3.0, "inertia": 1.0, "seconds": 1.0}],
        [{"iteration": i, "inertia": 1.0 / i, "seconds": 1.0, **both} for i in (1, 2)],
        [{"iteration": 1, "inertia": float("inf"), "seconds": 1.0, "n_touched": 4}],
    ):
        sections = Report(make_model(3, history=history), title="m").sections()
        (parts,) = (section.parts for section in sections if section.title == "Convergence")
        charts = [part for part in parts if isinstance(part, Chart)]
        assert charts
        assert all("<svg" in as_svg(chart, "m") for chart in charts)


def test_one_empty_cluster_is_no_reason_to_fail() -> None:
    model = make_model(1, sizes=np.zeros(1, int), costs=np.zeros(1), history=[])
    assert "Clusters in the fit" in as_html(Report(model, title="m"))


def test_without_matplotlib_tables_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report(make_model(3), title="m")
    for module in (drawing, html):
        monkeypatch.setattr(module, "can_draw", lambda: False)
    page = as_html(report)
    assert "[plots]" in page
    assert "<img" not in page
    assert "<table" in page


def test_all_charts_in_one_picture(report: Report) -> None:
    png = as_png(report)
    assert png.startswith(b"\x89PNG")


def test_markdown_has_the_tables(report: Report) -> None:
    text = as_markdown(report)
    assert text.startswith("# \\<b>&")
    assert "| a\\< | >b |" in text
    assert "| cluster | rows | weight | share | mean squared distance |" in text


# -- centres in the plane ----------------------------------------------------


@pytest.mark.parametrize(("k", "d"), [(3, 40), (40, 3), (5, 2)])
def test_the_plane_is_that_of_principal_components(k: int, d: int) -> None:
    rng = np.random.default_rng(k)
    centres, weights = rng.normal(size=(k, d)), rng.uniform(1, 5, k)
    points, shares = plane(centres, weights)
    middle = np.average(centres, axis=0, weights=weights)
    scaled = (centres - middle) * np.sqrt(weights / weights.sum())[:, None]
    _, singular, axes = np.linalg.svd(scaled, full_matrices=False)
    assert np.allclose(np.abs(points), np.abs((centres - middle) @ axes[:2].T))
    assert np.allclose(shares, singular[:2] ** 2 / (singular**2).sum())
    again, _ = plane(centres, np.zeros(k))
    assert np.allclose(again.mean(axis=0), 0)


def test_tables_have_as_many_cells_as_headers(report: Report) -> None:
    for section in report.sections():
        for part in section.parts:
            if isinstance(part, Table):
                assert all(len(row) == len(part.header or ("", "")) for row in part.rows)


def test_a_report_goes_to_a_url_once(report: Report) -> None:
    url = "memory://reports/page.json"
    report.save(url)
    with pytest.raises(OutputExistsError, match="exists already"):
        report.save(url)
    report.save(url, overwrite=True)
    with fsspec.open(url) as file:
        assert json.load(file)["title"] == report.title


def test_clusters_are_distinguished_by_the_names_of_features() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 600, p=[0.5, 0.3, 0.2])
    means = np.array([[0.0, 0, 5], [9, 0, 5], [0, 4, 5]])
    rows = means[labels] + rng.normal(size=(600, 3)) * [1, 1, 1e-9]
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=["age", "<b>income", "height"])
    model = dc.KMeans(3, random_state=0, init=means).fit(frame).to_model()
    report = Report(model, "people")
    first = report.sections()[0]
    assert first.title == "What sets the clusters apart"
    table = first.parts[0]
    assert isinstance(table, Table)
    words = {int(row[0]): (row[2], row[3]) for row in table.rows}
    for cluster, name, value in ((1, "age", 9.0), (2, "<b>income", 4.0)):
        feature, centre, deviations = words[cluster][1].split(",")[0].split()
        assert feature == name
        assert float(centre) == pytest.approx(value, abs=0.3)  # in the units of the data
        assert deviations.startswith("(+")
    assert words[0][0].startswith(("4", "5"))
    assert words[0][1].startswith(("age ", "<b>income "))
    assert "(-" in words[0][1]
    page = as_html(report)
    assert "&lt;b&gt;income" in page
    assert "<b>income" not in page
    assert page.index("What sets the clusters apart") < page.index("<details>")
    assert page.index("<details>") < page.index('id="s4">Convergence')
    assert page.count("what sets it apart") == 1


# -- reports of estimators, and in notebooks -----------------------------------------------------------


def test_estimators_report_with_and_without_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.integers(0, 3, (400, 1)) * 9 + rng.normal(size=(400, 4))).astype(np.float32)
    for model in (
        dc.KMeans(3, random_state=0),
        dc.VariationalGaussianMixture(3, random_state=0),
        dc.KernelKMeans(3, random_state=0),
    ):
        with pytest.raises(NotFittedError):
            model.report()
        model.fit(rows)
        alone, whole = model.report(), model.report(rows)
        assert alone.data is None
        titles = [section.title for section in whole.sections()]
        assert ("How well the clusters are separated" in titles) == (
            not isinstance(model, dc.KernelKMeans)
        )
        path = str(tmp_path / f"{type(model).__name__}.json")
        whole.save(path)
        assert "Clusters in these rows" in Path(path).read_text()
    whole.save(path, overwrite=True)
    page = whole._repr_html_()
    assert "Clusters in these rows" in page
    assert "<body" not in page
    assert 'id="s' not in page  # several outputs of a notebook would share them
    path = str(tmp_path / "report.html")  # once: drawing its charts takes seconds
    whole.save(path)
    with pytest.raises(OutputExistsError, match="overwrite=True"):
        whole.save(path)
    assert "Clusters in these rows" in Path(path).read_text()
    with pytest.raises(InvalidParameterError, match=r"\.html, \.png, \.md, \.json"):
        whole.save(str(tmp_path / "report.doc"))


def test_notebooks_show_a_report_once_fitted() -> None:
    model = dc.KMeans(2, random_state=0)
    assert "sk-top-container" in model._repr_mimebundle_()["text/html"]
    model.fit([[0.0, 1.0], [5.0, 5.0], [6.0, 5.0]])
    shown = model._repr_mimebundle_()
    assert shown["text/plain"] == repr(model)
    assert "What sets the clusters apart" in shown["text/html"]
    assert "What sets the clusters apart" in model._repr_html_()
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")


def test_figures_of_separation_are_in_the_json(report: Report) -> None:
    found = report.as_dict()
    assert len(found["separation"]["silhouettes"]) == 5
    assert found["separation"]["silhouette"] > 0.5
    assert "All 5 clusters are well separated." in as_html(report)
