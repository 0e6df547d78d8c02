#!/bin/sh
# Runs a role of an image exported by build-offline.sh, as the image's user, on a read-only root.
#
#   deploy/docker/run-offline.sh STORE VOLUMES ROLE [OPTIONS]
#
# VOLUMES is a folder for what the role writes: its subfolders cache, scratch and data become the volumes
# /cache, /scratch and /data of the image. /tmp is in memory. The network is the host's.
# The environment is the image's, plus the variables named in $PASS, e.g. PASS="AWS_ACCESS_KEY_ID".
set -eu

root=$1/root
volumes=$2
shift 2
mkdir -p "$volumes/cache" "$volumes/scratch" "$volumes/data"
chown 10001:10001 "$volumes/cache" "$volumes/scratch" "$volumes/data"
environment=$(python3 -c 'import json, shlex, sys
print(" ".join(map(shlex.quote, json.load(open(sys.argv[1]))["OCIv1"]["config"]["Env"])))' "$root/../config.json")
for name in ${PASS:-}; do
    eval "value=\${$name-}"
    # shellcheck disable=SC2154
    environment="$environment $(python3 -c 'import shlex, sys; print(shlex.quote(sys.argv[1]))' "$name=$value")"
done
# shellcheck disable=SC2016
exec unshare --mount --propagation private sh -euc '
    root=$1 volumes=$2 environment=$3
    shift 3
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    for volume in cache scratch data; do mount --bind "$volumes/$volume" "$root/$volume"; done
    for file in resolv.conf hosts; do
        [ -e "$root/etc/$file" ] && mount --bind "/etc/$file" "$root/etc/$file"
    done
    mount -o remount,bind,ro "$root"
    eval "set -- /usr/bin/env -i $environment \"\$@\""
    exec chroot --userspec=10001:10001 "$root" "$@"
' run "$root" "$volumes" "$environment" /opt/daskcluster/libexec/entrypoint.sh "$@"
