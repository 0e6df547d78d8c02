#!/bin/sh
# The package on 64-bit ARM, which qemu emulates: builds the image for arm64, and in it runs the command line, a fit
# with the kernels that the image brings, and the fits of tests/digests, whose results should have the bits that
# x86 gave.
#
#   tests/arm/run.sh [FITS]     FITS: a part of the names of fits; all by default
#
# It needs root, and Debian's packages buildah, debootstrap and qemu-user-static; it takes about 6 GB and an
# hour or more the first time, less with the kernels of a run before. What it makes stays in $DASKCLUSTER_ARM_STORE
# (default: daskcluster-arm below the folder for temporary files), and a run continues where the last one ended.
set -eu

cd "$(dirname "$0")/../.."
store=${DASKCLUSTER_ARM_STORE:-${TMPDIR:-/tmp}/daskcluster-arm}
left_out() { echo "left out: $1"; exit 0; }
[ "$(id -u)" = 0 ] || left_out "a root file system for another processor is made by root only"
for tool in buildah debootstrap qemu-aarch64-static; do
    command -v "$tool" >/dev/null || left_out "$tool is not installed"
done
deploy/docker/emulate.sh || left_out "programs for arm64 do not run here"

echo "In $store, of which $(df -Pm "$(dirname "$store")" | awk 'NR == 2 { print $4 }') MB are free: an image for arm64, with its kernels"
mkdir -p "$store/volumes/data"
nice deploy/docker/build-offline.sh "$store" s3 arm64
inside() { nice deploy/docker/run-offline.sh "$store" "$store/volumes" "$@"; }

inside --version
# shellcheck disable=SC2016
inside sh -euc '
    export NUMBA_CACHE_DIR="$(mktemp -d)"
    taken=$(daskcluster warm-up --take /opt/daskcluster/kernels)
    eval "$taken"
    exec python3 -c "
import os
import numpy as np
import daskcluster as dc
from daskcluster.kernels.jit import compilations
rows = np.random.default_rng(0).random((20_000, 16), dtype=np.float32)
dc.KMeans(50, random_state=0).fit(rows)
loaded, compiled = compilations()
print(loaded, \"kernels for\", os.environ[\"NUMBA_CPU_NAME\"], \"loaded,\", compiled, \"compiled\")
assert loaded > 10 and compiled == 0"'
rm -rf "$store/volumes/data/tree"
mkdir "$store/volumes/data/tree"
cp -R daskcluster tests "$store/volumes/data/tree"
# shellcheck disable=SC2016
inside sh -euc '
    cd /data/tree
    export PYTHONPATH=/data/tree
    python3 -c "
import platform
from daskcluster.kernels.jit import tile_name
print(platform.machine(), tile_name())
assert (platform.machine(), tile_name()) == (\"aarch64\", \"neon\")"
    exec python3 -m tests.digests "$@"' digests ${1:+--only "$1"}
