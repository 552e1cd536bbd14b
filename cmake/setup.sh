#!/bin/sh
# Installs the Debian packages that building weft needs and that are missing; says nothing where all are there.
# usage: cmake/setup.sh [PACKAGE...]    (further packages: what CI needs beyond a build)
set -eu
packages="build-essential cmake ninja-build pkg-config git ca-certificates
          libjansson-dev libhwloc-dev libxxhash-dev libpcre2-dev libutf8proc-dev libscotch-dev coinor-libcbc-dev libgtest-dev
          python3-venv $*"
if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: no dpkg here; weft needs CMake >= 3.25, Ninja, a C11 and C++17 compiler, GoogleTest, and the headers of"
    echo "setup: jansson, hwloc, xxHash, PCRE2 and utf8proc. Going on: CMake says what is missing (docs/dependencies.md)."
    exit 0
fi
missing=""
for package in $packages; do
    case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
    *" installed") ;;
    *) missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

sudo=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "setup: as root, please: apt-get install$missing" >&2; exit 3; }
    sudo="sudo "
fi
install="apt-get install -y --no-install-recommends$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing what is missing:"
echo "+ ${sudo}apt-get update && $sudo$install"
# shellcheck disable=SC2086
if ! { ${sudo}apt-get update && ${sudo}env DEBIAN_FRONTEND=noninteractive $install; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "setup: that failed (above)" >&2
    exit 3
fi
