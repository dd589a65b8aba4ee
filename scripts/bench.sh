#!/bin/sh
# Runs the benchmarks of a finished build tree: bench.sh BUILD [ARGS of swnic-guest bench].
# Debian's QEMU, where it is installed, is measured in turns with ours.  The exit status is not
# 0 when a part failed.
set -u
build=$1
shift
status=0
"$build/tests/bench/bench-timer" || status=$?
set -- -e "$build/swnic-system-x86_64" "$@"
if command -v qemu-system-x86_64 >/dev/null; then
    set -- "$@" -e qemu-system-x86_64
fi
"$build/swnic-guest" bench "$@" || status=$?
exit "$status"
