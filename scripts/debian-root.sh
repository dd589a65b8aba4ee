#!/bin/sh
# Unpacks Debian packages with what they depend on into a folder, for programs of another release:
#
#   debian-root.sh FOLDER SUITE PACKAGE...
#
# Nothing in the folder is configured or run by this script; root is not needed to use it.  A
# program of it runs by run-in-root.sh.  A folder that holds the same request is kept.
set -eu
folder=$1
suite=$2
shift 2

request="$suite $*"
if [ "$(cat "$folder/.request" 2>/dev/null)" = "$request" ]; then
    exit 0
fi

# The mirror that this machine's own packages come from; mmdebstrap's default otherwise.
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' |
    sed -n 's/^Debian|main|//p' | grep -v security | head -n 1)
include=$(echo "$*" | tr ' ' ',')
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mode=root
[ "$(id -u)" = 0 ] || mode=unshare
log=$folder.log
# A release that is not out yet may be past the date that its index says it is valid until.
mmdebstrap --quiet --variant=extract --mode=$mode --include="$include" \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
    "$suite" "$folder" ${mirror:+"deb $mirror $suite main"} >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    echo "debian-root.sh: could not unpack $suite into $folder (see $log)" >&2
    exit 1
}
# What the merged /usr of an installed system would have as links.
for link in bin sbin lib lib64; do
    [ -e "$folder/$link" ] || ln -s "usr/$link" "$folder/$link"
done
echo "$request" >"$folder/.request"
