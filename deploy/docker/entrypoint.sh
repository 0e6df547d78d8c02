#!/bin/sh
# Roles of the image: scheduler, worker, or any command of `daskcluster`.
#
#   scheduler [OPTIONS]   a Dask scheduler on port 8786, its dashboard on 8787
#   worker [OPTIONS]      a Dask worker of the scheduler at $DASK_SCHEDULER_ADDRESS, its dashboard on 8788
#   COMMAND [OPTIONS]     daskcluster COMMAND, e.g. fit, predict, jobs
#
# OPTIONS are those of `dask scheduler` and `dask worker`; they override the ones set here.
set -eu

taken=
take() {
    # Copy the image's kernels for this CPU to the cache volume; numba finds them by the CPU's name.
    [ "${DASKCLUSTER_WARM_UP:-1}" = 1 ] || return 0
    [ -z "${NUMBA_CPU_NAME:-}" ] || return 0
    taken=$(daskcluster warm-up --take "${DASKCLUSTER_KERNELS:-/opt/daskcluster/kernels}") ||
        echo "warning: the image's kernels could not be copied; the first fit compiles its own" >&2
    eval "$taken"
}

warm() {
    # If the image has none for this CPU, compile them into the cache volume before the first task needs them.
    [ "${DASKCLUSTER_WARM_UP:-1}" = 1 ] || return 0
    [ -z "$taken" ] || return 0
    python3 -c 'from daskcluster.kernels.warm_up import warm_up; warm_up()' ||
        echo "warning: kernels could not be compiled beforehand; the first fit compiles them" >&2
}

[ $# -gt 0 ] || set -- --help
case "$1" in
scheduler)
    shift
    exec dask scheduler --port 8786 --dashboard-address :8787 --preload daskcluster.dashboard "$@"
    ;;
worker)
    shift
    if [ -z "${DASK_SCHEDULER_ADDRESS:-}" ]; then
        echo "error: set DASK_SCHEDULER_ADDRESS, e.g. tcp://scheduler:8786" >&2
        exit 2
    fi
    take
    warm
    exec dask worker --dashboard-address :8788 --local-directory "${DASK_TEMPORARY_DIRECTORY:-/tmp}" \
        --death-timeout 300 "$@"
    ;;
fit | coreset | sample | dedup | partition | predict | score | sweep | stream | demo)
    take
    exec daskcluster "$@"
    ;;
dask | python3 | sh | /*)
    exec "$@"
    ;;
*)
    exec daskcluster "$@"
    ;;
esac
