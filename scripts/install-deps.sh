#!/bin/sh
# Installs the Debian packages that a job needs and the machine lacks.
#
#   install-deps.sh [--list-missing] GROUP...
#
# Groups: build (compile and run), linux (a real Linux guest), check (all that the tests use).
# As root or by sudo.
set -eu

build="gcc libc6-dev make meson ninja-build pkg-config python3 libglib2.0-dev libjson-c-dev
       libslirp-dev liburing-dev libseccomp-dev liblwip-dev systemtap-sdt-dev"
linux="mmdebstrap"
check="iproute2 procps util-linux iperf3 socat tcpdump qemu-system-x86 dpdk-dev"

list_only=false
if [ "${1-}" = --list-missing ]; then
    list_only=true
    shift
fi
wanted=
for group; do
    case $group in
    build) wanted="$wanted $build" ;;
    linux) wanted="$wanted $linux" ;;
    check) wanted="$wanted $build $linux $check" ;;
    *)
        echo "install-deps.sh: unknown group '$group' (build, linux, check)" >&2
        exit 1
        ;;
    esac
done

# An installed package, or for tools one that somebody put in the path some other way.
have() {
    case $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) in
    installed) return 0 ;;
    esac
    case $1 in
    gcc | make | meson | python3) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    *) return 1 ;;
    esac
}

missing=
for package in $wanted; do
    have "$package" || missing="$missing $package"
done
if $list_only; then
    echo $missing
    exit 0
fi
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps.sh: missing packages:$missing; run as root, or install sudo" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "Installing:$missing"
# shellcheck disable=SC2086
install="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends $missing"
$install >/dev/null 2>&1 || {
    $sudo apt-get -qq update
    $install >/dev/null
}
