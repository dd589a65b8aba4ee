#!/bin/sh
# Runs a program of an unpacked root with that root's loader and libraries, in this machine's file
# system, so that paths and sockets mean the same: run-in-root.sh FOLDER PROGRAM [ARGUMENT]...
root=$1
program=$2
shift 2
exec "$root/usr/lib64/ld-linux-x86-64.so.2" \
    --library-path "$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/x86_64-linux-gnu/pulseaudio" \
    "$root/usr/bin/$program" "$@"
