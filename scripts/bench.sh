#!/bin/sh
# Runs the benchmarks of a finished build tree: bench.sh BUILD [ARGS of swnic-guest bench].
set -eu
build=$1
shift
"$build/tests/bench/bench-timer"
