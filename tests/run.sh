#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests. With a preset's name, that preset's: release
# (default), debug (sanitizers), cuda, or emulated (CUDA's kernels on the CPU: only the tests that run
# them). What follows the name goes to CMake.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
unset OPENBLAS_CORETYPE  # of which programs would warn
cmake/install-packages.sh test
cmake --preset "$preset" "${@:2}"
sleep 2  # ccache keeps no precompiled header that was written in the second of its compilation
cmake --build --preset "$preset"
# Each test sets the number of threads it needs; several tests side by side fill the cores.
ctest --preset "$preset" -j "$(nproc)"
