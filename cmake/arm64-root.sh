#!/usr/bin/env bash
# Debian's libraries for ARM64 in a folder of their own, for cmake/arm64.cmake. The packages of this machine stay
# as they are. Does nothing when they are there.
#   cmake/arm64-root.sh [FOLDER]      build/arm64-root
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(realpath -m "${1:-build/arm64-root}")
# The libraries among the packages of cmake/install-packages.sh, and the compiler's.
mapfile -t packages < <(cmake/install-packages.sh names test |
  grep -E '^(lib|nlohmann)' | grep -v '^libopenmpi')
packages+=(libc6-dev libstdc++-12-dev)
[ ! -e "$root/complete" ] || [ "$(cat "$root/complete")" != "${packages[*]}" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$root" "$work"/{state/lists/partial,cache/archives/partial}
touch "$work/state/status"
apt=(apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work/state"
  -o Dir::State::status="$work/state/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" install --download-only --no-install-recommends "${packages[@]}"
for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
# What the package's own script would link.
ln -sf openblas-pthread/libopenblas.so.0 "$root/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
echo "${packages[*]}" >"$root/complete"
