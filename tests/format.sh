#!/usr/bin/env bash
# Fails when a source file is not as .clang-format has it. With `fix`, formats them all instead.
# Versions of clang-format differ: this is Debian 12's.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake/install-packages.sh format
options=(--dry-run -Werror)
if [ "${1:-}" = fix ]; then options=(-i); fi
git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 clang-format-14 "${options[@]}"
