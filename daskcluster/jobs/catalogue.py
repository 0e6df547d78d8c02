"""The declarations of the jobs of this package, and of those that other packages have registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.jobs.spec import JOBS, Flag, JobSpec, Output
from daskcluster.methods import catalogue
from daskcluster.methods.coreset import parameters as coreset
from daskcluster.methods.duplicates import parameters as duplicates
from daskcluster.methods.mixture.parameters import COVARIANCE_TYPE
from daskcluster.methods.partition import parameters as partition
from daskcluster.methods.streaming.parameters import STREAMING
from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import MEASURES
from daskcluster.parameters.parameter import Parameter

_RESUME_ID = "Seed; the same seed draws the same rows. Default: a fresh one."
_LABELS = (
    ".parquet, .csv (both with ids), .npy, or .tif (GeoTIFF of a map) by its ending, else Zarr."
)
_DISTANCES = "Also write Euclidean distances"
_OF_LABELS = f"{_DISTANCES} to the centres, with --labels."
_NEAREST = "Write that many nearest centres of every row, nearest first."
_LEVEL = "For a model of several levels: write the clusters of this one, from 1."
_SAMPLED = "Rows sampled for the silhouette; all rows if there are fewer."
_WEIGHTED = "Write --rows with the weights of the sample."
_QUALITY = "Also compare estimated with true costs of K centres, in one more pass."
_SCRATCH = "Local folder for temporary files. Default: the system's."
_RESULT = "URL of the result: .parquet or .csv (both with ids) by its ending, else Zarr."
_SAME_TABLE = "Seed; the same seed gives the same table. Default: a fresh one."
_SEEDS = "Fits per number; the best one counts."
_SIZE_OF_SWEEP = "Rows of the coreset that is fitted. Default: 100 per cluster, at least 10,000."
_CHECKED = "How many of the results to measure on all rows, in one pass."
_DURATION = "daskcluster.cli.options:DURATION"
_ORDER = "Order of objects that are present at the same time."
_SETTLE = (
    "Read an object once it has not changed for this time.  [default: 0 with --once, else 10s]"
)
_ONCE = "Poll the source once.  [default without --every]"
_EVERY = "Poll the source at this interval: 30s, 5m."
_PORT = "Serve Prometheus metrics and /health at this port (0: any free port)."
_STALL_AFTER = (
    "/health returns 503 after this time without work, not counting the wait between polls.  "
    "[default: 30m]"
)


def _under(section: str, *parameters: Parameter) -> tuple[Flag, ...]:
    """Return flags that stand under a heading of the help."""
    return tuple(Flag(**{**vars(each), "section": section}) for each in parameters)


for _spec in (
    JobSpec(
        name="fit",
        function="daskcluster.jobs.fitting:fit",
        help="Cluster the rows of SOURCE and save the model.\n\n"
        "SOURCE is the path or URL of a Zarr array, of .npy, .npz, .parquet, .arrow, .feather, .orc, "
        ".csv, .tsv, .jsonl, .h5, .h5ad (AnnData) or .tif (GeoTIFF) files, of a folder or a pattern of "
        "such files, or of a Delta, Iceberg or Lance table.",
        algorithms=catalogue.ALGORITHMS,
        parameters=_under("Output", Parameter("distances", bool, False, _OF_LABELS)),
        outputs=(
            Output(name="model", help="Where to save the model.", what="save the model at"),
            Output(
                name="labels",
                help=f"Also write the label of every row: {_LABELS}",
                check="daskcluster.jobs.run:check_labels",
            ),
        ),
        kinds="daskcluster.jobs.run:kinds_of_labels",
        resumes="Resume from the state at --checkpoint, if there is one.",
        needs=(
            ("resume", "checkpoint", "the URL of the state to resume from"),
            ("distances", "labels", "to which they are added"),
        ),
        plan="daskcluster.jobs.fitting:plan_fit",
    ),
    JobSpec(
        name="coreset",
        function="daskcluster.jobs.fitting:build_coreset",
        help="Draw a lightweight coreset of SOURCE: a small weighted sample of its rows, in two passes.\n\n"
        "Any command takes OUTPUT in place of SOURCE, and finds the weights by itself.",
        without=("scale",),
        parameters=(
            coreset.SIZE,
            shared.RANDOM_STATE.varied(help=_RESUME_ID),
            Flag("quality", int, None, _QUALITY, ge=1, metavar="K"),
        ),
        outputs=(
            Output(
                name="output",
                help="Where to write the coreset, as Zarr.",
                what="write the coreset to",
            ),
        ),
        kinds=("group",),
        keeps="Save progress here; continue with --resume.",
        plan="daskcluster.jobs.fitting:plan_coreset",
        lines="daskcluster.jobs.fitting:lines_of_coreset",
    ),
    JobSpec(
        name="sample",
        function="daskcluster.jobs.predicting:sample",
        help="Draw rows of SOURCE as evenly as possible from the clusters of MODEL, in two passes.\n\n"
        "The clusters of the top level share --size evenly, then the clusters within each, down to rows. "
        "The output has the ids of the rows, or their numbers. Models of fit --algorithm hierarchical with "
        "--n-levels 2 or 3 give the most even samples.",
        arguments=("model", "source"),
        without=("weights", "scale"),
        parameters=(
            shared.SAMPLE_SIZE,
            Flag(
                "how",
                str,
                "random",
                "Which rows of a cluster: at random, nearest or farthest to its centre, or with the "
                "largest scores, from a column or array NAME or a URL.",
                metavar="random|nearest|farthest|NAME|URL",
            ),
            shared.RANDOM_STATE.varied(help=_RESUME_ID),
            Flag("weighted", bool, False, _WEIGHTED, section="Output"),
        ),
        reads=(("how", "scores"),),
        outputs=(
            Output(
                name="output",
                help="URL of the ids: .parquet, .csv (with clusters and weights) or .npy by its ending, "
                "else Zarr.",
                what="write the ids to",
            ),
            Output(
                name="rows",
                help="Also write the rows to this URL: .parquet (with ids) by its ending, else Zarr.",
                check="daskcluster.jobs.predicting:check_rows",
            ),
        ),
        kinds=("array", "group"),
        needs=(("weighted", "rows", "the URL of the rows to write"),),
        plan="daskcluster.jobs.predicting:plan_sample",
        lines="daskcluster.jobs.predicting:lines_of_sample",
    ),
    JobSpec(
        name="dedup",
        function="daskcluster.jobs.fitting:dedup",
        help="Find near-duplicates among the rows of SOURCE, and write which rows to keep.\n\n"
        "The output has, for every row, the first row of its group, whether it is kept, and its cosine "
        "similarity (or Euclidean distance) to the kept row. All pairs beyond the threshold are found.",
        without=("weights", "scale"),
        parameters=(
            duplicates.THRESHOLD,
            duplicates.METRIC,
            Flag("keep", str, "first", duplicates.KEEP.help, metavar="RULE|NAME|URL"),
            duplicates.GROUPS,
            duplicates.RANDOM_STATE,
            Flag("scratch", str, None, _SCRATCH, section="Output", metavar="DIR"),
        ),
        reads=(("keep", "keep"),),
        outputs=(
            Output(name="output", help=_RESULT, what="write the result to"),
            Output(
                name="report",
                help="Also write a report on the groups to this file: .html, .png, .md or .json.",
                metavar="FILE",
                check="daskcluster.reports.pages:check_format",
            ),
        ),
        kinds=("group",),
        keeps="Folder for sorted rows and finished pairs; continue with --resume. A cluster on several "
        "hosts needs one.",
        plan="daskcluster.jobs.fitting:plan_dedup",
    ),
    JobSpec(
        name="partition",
        function="daskcluster.jobs.fitting:partition",
        help="Divide the rows of SOURCE into partitions of an index, of nearly equal sizes.\n\n"
        "The output has the partition of every row. No partition has more rows than --max-size.",
        without=("weights", "scale"),
        parameters=partition.PARTITION,
        outputs=(
            Output(name="output", help=_RESULT, what="write the result to"),
            Output(
                name="centroids",
                help="Also write the centres, by its ending: .npy, .faiss (an empty IVF index) or .parquet "
                "(id, parent, vector).",
            ),
        ),
        kinds=("group", "file"),
        keeps="Folder for the trained centres; continue with --resume.",
        plan="daskcluster.methods.partition.partitioning:plan_partitions",
    ),
    JobSpec(
        name="predict",
        function="daskcluster.jobs.predicting:predict",
        help="Write the label of every row of SOURCE under MODEL, in one pass.\n\n"
        "A GeoTIFF, --nodata and --missing drop take one more pass, which finds what is missing.\n\n"
        "The output is a 1-D int32 Zarr array, or a file with the ids of the rows. With --distances it is "
        "a Zarr group of the arrays label and distance, or a file with both columns. Labels of a raster "
        "are a map.\n\n"
        "With --posteriors, a second pass writes a Zarr group with the arrays components (int32) and "
        "probabilities (float32): for every row its most probable components, largest first.",
        arguments=("model", "source"),
        without=("weights", "scale"),
        parameters=_under(
            "Output",
            Parameter("n_nearest", int, None, _NEAREST, ge=1),
            Parameter("distances", bool, False, f"{_DISTANCES}."),
            Parameter("level", int, 1, _LEVEL, ge=1),
        ),
        outputs=(
            Output(
                name="output",
                help=f"URL of the labels: {_LABELS}",
                what="write the labels to",
                check="daskcluster.jobs.run:check_labels",
            ),
            Output(
                name="posteriors",
                help="For a mixture: also write the posteriors of every row to this Zarr group.",
            ),
        ),
        kinds="daskcluster.jobs.run:kinds_of_labels",
        resumes="Resume an interrupted call; an interrupted run keeps finished chunks for the next one.",
    ),
    JobSpec(
        name="score",
        function="daskcluster.jobs.predicting:score",
        help="Compute the inertia of MODEL on SOURCE: the sum of squared distances to its centres, in one "
        "pass.\n\nWith --metrics, also how compact and how far apart the clusters are that MODEL makes of "
        "these rows.",
        arguments=("model", "source"),
        without=("scale",),
        parameters=_under(
            "Measures",
            Flag(
                "metrics",
                tuple,
                (),
                "Also measure MODEL's clustering of these rows: all, or a comma-separated list of: "
                + "; ".join(f"{name}: {about}" for name, about in MEASURES.items())
                + ".",
                choices=tuple(MEASURES),
                word="all",
                metavar="NAMES",
            ),
            Parameter("sample_size", int, 10_000, _SAMPLED, ge=3),
            shared.RANDOM_STATE.varied(help="Seed of the sample for the silhouette."),
        ),
        keeps="Save totals of long passes here; continue with --resume.",
        lines="daskcluster.jobs.predicting:lines_of_score",
    ),
    JobSpec(
        name="sweep",
        function="daskcluster.jobs.selection:sweep",
        extends="daskcluster.jobs.selection:select_k",
        help="Fit several numbers of clusters to SOURCE and report the best one.\n\n"
        "All fits are made on one small weighted sample, which takes two passes over the rows.",
        parameters=_under(
            "Candidates",
            Flag(
                "numbers",
                str,
                "2:32",
                "Numbers of clusters: FIRST:LAST, FIRST:LAST:STEP, or 4,8,16. A range of more than 32 is "
                "refined.",
                flags=("-k", "--k"),
                type="daskcluster.cli.options:NUMBERS_OF_CLUSTERS",
                is_local=True,
            ),
            Parameter(
                "criterion",
                str,
                "knee",
                "Criterion of the best number; bic fits Gaussian mixtures.",
                choices=("knee", "silhouette", "bic"),
            ),
            Flag("n_seeds", int, 3, _SEEDS, ge=1, flags=("--seeds",)),
            coreset.CORESET_SIZE.varied(default=None, help=_SIZE_OF_SWEEP),
            Parameter("check", int, 3, _CHECKED, ge=0),
            shared.INIT.varied(other="", help="How the first centres of a fit are chosen."),
            shared.METRIC,
            COVARIANCE_TYPE.varied(default="diag", help="Covariance of the mixtures of bic."),
            shared.RANDOM_STATE.varied(help=_SAME_TABLE),
        ),
        outputs=(
            Output(
                name="output",
                help="Also write the table (.json) or the curves (.png, .svg) to this file or URL.",
                metavar="FILE",
                check="daskcluster.jobs.selection:check_table",
            ),
        ),
        kinds=("file",),
        keeps="Save the sample and finished fits here; continue with --resume.",
        lines="daskcluster.jobs.selection:lines_of_sweep",
        task="daskcluster.cli.job_commands:SweepTask",
    ),
    JobSpec(
        name="stream",
        function="daskcluster.jobs.fitting:stream",
        extends="daskcluster.jobs.fitting:open_stream",
        help="Keep a model of SOURCE up to date: read every row once, optionally forget old ones.\n\n"
        "SOURCE is a Zarr array that grows, a folder or prefix to which Zarr arrays, groups and Parquet "
        "files are added, or a pattern of their names. The last line of stdout is one JSON object, with "
        '"rows_seen" and "model_version".',
        without=("flatten", "grid", "scale"),
        parameters=(
            *_under(
                "Clustering",
                Flag("n_clusters", int, None, shared.N_CLUSTERS.help, flags=("--n-clusters", "-k")),
                *(each for each in STREAMING[1:] if each.is_plain),
            ),
            *_under(
                "Input",
                Parameter("order", str, "name", _ORDER, choices=("name", "time")),
                Flag("settle", float, None, _SETTLE, type=_DURATION),
                Parameter("allow_missing", bool, False, "Read missing chunks as the fill value."),
            ),
            *_under(
                "Loop",
                Flag("once", bool, False, _ONCE, is_local=True),
                Flag("every", float, None, _EVERY, type=_DURATION),
                Flag("metrics_port", int, None, _PORT, ge=0, le=65535, is_local=True),
                Flag("metrics_address", str, "127.0.0.1", "Address to listen on.", is_local=True),
                Flag("stall_after", float, None, _STALL_AFTER, type=_DURATION, is_local=True),
            ),
        ),
        outputs=(
            Output(
                name="state",
                help="URL of the state of the stream.  [required]",
                what="keep the state of the stream at",
            ),
            Output(
                name="labels",
                help="Also write the labels of new rows: one growing array, or one array per object.",
            ),
        ),
        replaces=False,
        task="daskcluster.cli.job_commands:StreamTask",
    ),
):
    JOBS.setdefault(_spec.name, _spec)  # a preloaded module may have declared another one


def declared_jobs() -> Mapping[str, JobSpec]:
    """Return all jobs, those of this package and of preloaded ones, by the names of their commands."""
    return JOBS


def spec_of(function_name: str) -> JobSpec | None:
    """Return the declaration of the job that a function is."""
    found = (spec for spec in declared_jobs().values() if spec.function_name == function_name)
    return next(found, None)


def output_name(job: str) -> str:
    """Return the name of the argument that is the main output of a job."""
    spec = spec_of(job)
    return spec.outputs[0].name if spec is not None and spec.outputs else "output"


def output_of(job: str, arguments: Mapping[str, Any]) -> str:
    """Return the URL of the main output of a job; empty if there is none."""
    return str(arguments.get(output_name(job)) or "")
