#!/bin/sh
# Lets the kernel of this machine run programs for arm64, as root, until its next start.
#
#   deploy/docker/emulate.sh
#
# Installing Debian's package qemu-user-static does it where systemd runs; this is for containers and
# virtual machines without. The interpreter is opened now, so it need not be in the roots it serves.
set -eu

folder=/proc/sys/fs/binfmt_misc
rule=/usr/lib/binfmt.d/qemu-aarch64.conf
[ "$(uname -m)" != aarch64 ] || exit 0
[ ! -e "$folder/qemu-aarch64" ] || exit 0
fail() { echo "error: $1" >&2; exit 2; }
[ -e "$rule" ] || fail "qemu-user-static is missing: apt-get install qemu-user-static"
[ -e "$folder/register" ] || mount -t binfmt_misc none "$folder" 2>/dev/null ||
    fail "this kernel has no binfmt_misc, by which programs for other processors are run"
cat "$rule" >"$folder/register" || fail "the kernel does not take $rule"
