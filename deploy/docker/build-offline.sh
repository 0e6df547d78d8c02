#!/bin/sh
# Builds the image without Docker and without a registry of images, as root on Debian 12 or later.
#
#   deploy/docker/build-offline.sh STORE [EXTRAS]
#   deploy/docker/build-offline.sh STORE EXTRAS arm64    for 64-bit ARM, emulated by qemu-user-static
#
# debootstrap makes the base from the mirror that apt uses here; buildah makes the image without
# namespaces. Both stay in the folder STORE (about 4 GB; remove it afterwards). The root file system
# of the image is exported to STORE/root. The tag is the chart's appVersion.
set -eu

store=$(mkdir -p "$1" && cd "$1" && pwd)
extras=${2:-s3}
arch=${3:-}
cd "$(dirname "$0")/../.."
image=localhost/daskcluster:$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' deploy/helm/daskcluster/Chart.yaml)
for tool in buildah debootstrap; do
    command -v "$tool" >/dev/null || { echo "error: $tool is missing: apt-get install $tool" >&2; exit 2; }
done
[ -z "$arch" ] || deploy/docker/emulate.sh
wheels=deploy/docker/wheelhouse${arch:+-$arch}
mirror=${MIRROR:-$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb .*\(http[^ ]*\).*/\1/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)}

images() { buildah --root "$store/images" --runroot "$store/run" --storage-driver vfs "$@"; }

if ! images inspect --type image localhost/python-base:1 >/dev/null 2>&1; then
    # The base contains only Python and certificates.
    # shellcheck disable=SC2086
    debootstrap ${arch:+--arch=$arch} --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$store/base" "$mirror" >"$store/debootstrap.log"
    umount "$store/base/proc" "$store/base/sys" 2>/dev/null || true  # it may leave these mounted
    rm -rf "$store/base/var/cache/apt" "$store/base/var/lib/apt/lists" "$store/base/usr/share/doc" \
        "$store/base/usr/share/man" "$store/base/usr/share/locale"
    # shellcheck disable=SC2086
    container=$(images from ${arch:+--arch=$arch} scratch)
    images add "$container" "$store/base" / >/dev/null
    images commit --quiet --rm "$container" localhost/python-base:1 >/dev/null
    rm -rf "$store/base"
fi
if [ -d "$wheels" ]; then  # keep the libraries; rebuild the project, which may have changed
    rm -f "$wheels"/daskcluster-*.whl
    "${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
else
    deploy/docker/wheelhouse.sh "$extras" "$arch"
fi
# shellcheck disable=SC2086
images bud --quiet ${arch:+--arch=$arch} --isolation chroot --format docker \
    --build-arg BASE_IMAGE=localhost/python-base:1 --build-arg WHEELHOUSE="$wheels" \
    --file deploy/docker/Dockerfile --tag "$image" .
container=$(images from "$image")
rm -rf "$store/root"
cp -a "$(images mount "$container")" "$store/root"
images umount "$container" >/dev/null
images rm "$container" >/dev/null
images inspect --type image "$image" >"$store/config.json"
du -sm "$store/root" | cut -f1
