#!/usr/bin/env bash
# libFuzzer over every reader of tests/fuzz, with AddressSanitizer and UndefinedBehaviorSanitizer. What it
# keeps (build/fuzz/corpus) is where the next run begins; what breaks a reader is in build/fuzz/found.
#   tests/fuzz.sh [SECONDS=600 for each reader] [READER ...]     JOBS=1 (so many readers at a time)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
[ $# -eq 0 ] || shift
cmake/install-packages.sh fuzz
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_readers
program=$PWD/build/fuzz/tests/fuzz_readers
corpus=$PWD/build/fuzz/corpus found=$PWD/build/fuzz/found
mkdir -p "$corpus" "$found"
if [ $# -gt 0 ]; then
  readers=("$@")
else
  mapfile -t readers < <(FUZZ_TARGET='' "$program" 2>&1 | sed -n 's/^  //p')
fi

fuzz_one() {
  local reader=$1
  mkdir -p "$corpus/$reader"
  FUZZ_TARGET=$reader FUZZ_SEEDS=$corpus/$reader "$program" >/dev/null
  local code=0
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 FUZZ_TARGET=$reader "$program" \
    "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
    "-artifact_prefix=$found/$reader-" "$corpus/$reader" >"$found/$reader.log" 2>&1 || code=$?
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found/$reader.log")
  printf '%-24s %12s inputs  %s\n' "$reader" "${runs:-?}" "$([ $code = 0 ] && echo fine || echo "BROKEN: $found/$reader.log")"
  return $code
}
export -f fuzz_one
export program corpus found seconds
printf '%s\n' "${readers[@]}" | xargs -P "${JOBS:-1}" -I{} bash -c 'fuzz_one {}'
