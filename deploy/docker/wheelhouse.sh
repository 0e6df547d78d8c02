#!/bin/sh
# Collects the wheels of daskcluster and its dependencies in deploy/docker/wheelhouse.
#
#   deploy/docker/wheelhouse.sh [EXTRAS]         default: s3,gcs,azure,parquet
#   deploy/docker/wheelhouse.sh EXTRAS arm64     for 64-bit ARM, in deploy/docker/wheelhouse-arm64
#
# The wheels are for the image's Python, 3.11. For this machine's processor, run this with Python 3.11:
# PYTHON=python3.11 deploy/docker/wheelhouse.sh
set -eu

extras=${1:-s3,gcs,azure,parquet}
arch=${2:-}
cd "$(dirname "$0")/../.."
wheels=deploy/docker/wheelhouse${arch:+-$arch}
fail() { echo "error: $1" >&2; exit 2; }
[ -n "$arch" ] || "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "expected Python 3.11, which the image has, found $("${PYTHON:-python3}" -V); set PYTHON=python3.11"
rm -rf "$wheels"
pip() { "${PYTHON:-python3}" -m pip "$@"; }
# Scheduler and workers need prometheus-client to serve /metrics.
case $arch in
"") pip wheel --quiet --wheel-dir "$wheels" ".[$extras]" prometheus-client ;;
arm64)
    pip wheel --quiet --no-deps --wheel-dir "$wheels" .
    # Nothing can be built for arm64 here: each package must have a wheel.
    pip download --quiet --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        --dest "$wheels" "$(echo "$wheels"/daskcluster-*.whl)[$extras]" prometheus-client
    ;;
*) fail "unknown processor '$arch'; expected arm64, or nothing for this machine" ;;
esac
du -sh "$wheels"
