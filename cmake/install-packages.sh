#!/usr/bin/env bash
# Installs the Debian packages that are named and not there yet. Does nothing, and needs no rights, when
# all are.
#   cmake/install-packages.sh build|test|quickstart|dictionary|format|lint|fuzz|ci|arm64|archive
#   cmake/install-packages.sh names LIST     only prints their names
set -euo pipefail

build="g++ cmake ninja-build pkg-config libopenblas0-pthread libhwy-dev librandom123-dev
  libyaml-cpp-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev libicu-dev libonig-dev
  zlib1g-dev libzstd-dev liblzma-dev libbz2-dev libxxhash-dev libpng-dev
  libjpeg62-turbo-dev libjs-dygraphs libcpp-httplib-dev"
names=
[ "${1:-}" != names ] || { names=1; shift; }
case "${1:-}" in
  build) packages=$build ;;
  test) packages="$build libgtest-dev libgmock-dev libbenchmark-dev libvalijson-dev libopenmpi-dev openmpi-bin" ;;
  quickstart) packages="$build trans-de-en" ;;
  dictionary) packages="trans-de-en" ;;
  format) packages="clang-format-14" ;;
  lint) packages="$build clang-tidy-16" ;;
  fuzz) packages="$build libgtest-dev libgmock-dev libbenchmark-dev clang-19 libclang-rt-19-dev" ;;
  arm64) packages="cmake ninja-build pkg-config g++-aarch64-linux-gnu qemu-user-static" ;;
  archive) packages="patchelf binutils" ;;
  ci) packages="ccache chromium fish zsh groff-base" ;;
  *) echo "usage: $0 build|test|quickstart|dictionary|format|lint|fuzz|ci|arm64|archive, or names LIST" >&2; exit 2 ;;
esac

[ -z "$names" ] || { printf '%s\n' $packages; exit; }

missing=()
for package in $packages; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "These packages need root to install; run: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
