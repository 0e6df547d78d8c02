#!/bin/sh
# Lets this machine's kernel run arm64 programs until the next reboot. Run it as root.
#
#   deploy/docker/emulate.sh
#
# With systemd, installing Debian's package qemu-user-static is enough. This script is for containers and
# virtual machines without systemd. The interpreter is opened now, so the root file systems need no copy of it.
set -eu

folder=/proc/sys/fs/binfmt_misc
rule=/usr/lib/binfmt.d/qemu-aarch64.conf
[ "$(uname -m)" != aarch64 ] || exit 0
[ ! -e "$folder/qemu-aarch64" ] || exit 0
fail() { echo "error: $1" >&2; exit 2; }
[ -e "$rule" ] || fail "qemu-user-static is missing: apt-get install qemu-user-static"
[ -e "$folder/register" ] || mount -t binfmt_misc none "$folder" 2>/dev/null ||
    fail "this kernel has no binfmt_misc, which is needed to run programs for other processors"
cat "$rule" >"$folder/register" || fail "the kernel rejected $rule"
