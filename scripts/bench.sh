#!/bin/sh
# Runs the benchmarks of a finished build tree: bench.sh BUILD [ARGS of swnic-guest bench].
# Debian's QEMU, where it is installed, is measured in turns with ours.
set -eu
build=$1
shift
"$build/tests/bench/bench-timer"
set -- -e "$build/swnic-system-x86_64" "$@"
if command -v qemu-system-x86_64 >/dev/null; then
    set -- "$@" -e qemu-system-x86_64
fi
exec "$build/swnic-guest" bench "$@"
