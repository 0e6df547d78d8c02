#!/bin/sh
# Collects the wheels of daskcluster and of all it needs in deploy/docker/wheelhouse.
#
#   deploy/docker/wheelhouse.sh [EXTRAS]    default: s3,gcs,azure,parquet
#
# Wheels are for this machine's Python, which has to be the version of the image's (3.11).
set -eu

extras=${1:-s3,gcs,azure,parquet}
cd "$(dirname "$0")/../.."
rm -rf deploy/docker/wheelhouse
# prometheus-client: without it scheduler and workers serve no /metrics.
"${PYTHON:-python3}" -m pip wheel --quiet --wheel-dir deploy/docker/wheelhouse \
    ".[$extras]" prometheus-client
du -sh deploy/docker/wheelhouse
