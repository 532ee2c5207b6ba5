#!/usr/bin/env bash
# Everything that needs a GPU, in one command.
#
#   tests/gpu.sh pack    builds for ARCHITECTURES (90-real; "native" is this machine's GPU) and packs binaries
#                        and libraries into build/gpu/bundle.tar.gz. They run in a checkout on a machine that
#                        has a GPU, its driver and CUDA's libraries, but none of the packages of the build
#   tests/gpu.sh [PART]...   runs that bundle, which it packs first where there is none, and prints a table:
#     tests        kernels against naive loops, gradients and training against the CPU: a process for each
#                  suite, $JOBS (4) at a time, each for $SUITE_SECONDS (60) at most
#     bench        training steps of GPT-2 and of a translation model
#     sanitize     the kernels under compute-sanitizer, twice for $SANITIZER_SECONDS (150) at most
#     shakespeare  only if asked for: nanoGPT's recipe for a GPU, on the text $SHAKESPEARE, which pack takes along
#
# A part ends after $TESTS_SECONDS (480), $BENCH_SECONDS (540) at most, and says what it did not reach.
set -uo pipefail
cd "$(dirname "$0")/.."
archive=build/gpu/bundle.tar.gz
unpacked=build/gpu_unpacked  # not beside the archive, which is carried to other machines

pack() {
  set -e
  local new=build/gpu_new built=build/cuda_pack text=${SHAKESPEARE:-}
  cmake/install-packages.sh test
  # Shared, so that the kernels are there once; for few GPUs, since the kernels are most of the archive.
  # Tests are not run here to list them: they look for their files where they are started.
  cmake --preset cuda -B $built -DBUILD_SHARED_LIBS=ON -DTAPESTRY_CUDA_ARCHITECTURES="${ARCHITECTURES:-90-real}" \
    -DTAPESTRY_TEST_FILES=. -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST
  cmake --build $built --target tapestry cuda_core_tests nn_tests apps_tests
  rm -rf $new build/gpu
  mkdir -p $new/{bin,lib,lib_gcc} build/gpu
  cp $built/apps/tapestry $built/tests/{cuda_core,nn,apps}_tests $new/bin
  # OpenBLAS is loaded at run time. What else Debian's packages provide; the driver, CUDA and the C library
  # are the other machine's own.
  cp -L "$(ldconfig -p | awk '/libopenblas\.so\.0/ {print $NF; exit}')" $new/lib/libopenblas.so.0
  ldd $new/bin/* $new/lib/* | awk '/=> \// {print $3}' | sort -u |
    grep -Ev '/(ld-linux|libc|libm|libmvec|libdl|libpthread|librt|libcuda|libcudart|libcublas|libcublasLt)[.-]' |
    while read -r library; do cp -L "$library" $new/lib; done
  mv $new/lib/lib{stdc++,gcc_s}.so.* $new/lib_gcc  # for machines whose own are older
  strip --strip-unneeded $new/bin/* $new/lib*/*
  if [ -f "$text" ]; then cp "$text" $new/shakespeare.txt; fi
  git describe --always --dirty >$new/version
  tar -C $new -czf $new.tar.gz .
  mv $new.tar.gz $archive
  rm -r $new
  du -h $archive
}

complain() { echo "tests/gpu.sh: $*" >&2; exit 3; }

if [ "${1:-}" = pack ]; then pack; exit; fi
for part in "${@:-tests}"; do
  [[ $part =~ ^(tests|bench|sanitize|shakespeare)$ ]] || complain "'$part' is no part; see the top of the script"
done
parts=" ${*:-tests bench sanitize} "

if [ ! -f $archive ]; then
  nvidia-smi -L >/dev/null 2>&1 || complain "no GPU answers here (nvidia-smi -L), nothing was built or run"
  ARCHITECTURES=${ARCHITECTURES:-native} tests/gpu.sh pack || exit 1
fi
if [ ! $unpacked/version -nt $archive ]; then
  rm -rf $unpacked && mkdir -p $unpacked && tar -C $unpacked -xzf $archive && touch $unpacked/version || exit 1
fi
bin=$PWD/$unpacked/bin lib=$PWD/$unpacked/lib
export PATH="$PATH:/usr/local/cuda/bin"
export LD_LIBRARY_PATH="$lib:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# CUDA's libraries may be there as part of a Python package alone.
for library in $(ldd "$bin"/* "$lib"/* 2>/dev/null | awk '/=> not found/ {print $1}' | sort -u); do
  found=$(find /usr/local /usr/lib /opt -name "$library" -not -path '*/stubs/*' -print -quit 2>/dev/null)
  echo "$library: ${found:-not found}"
  [ -z "$found" ] || LD_LIBRARY_PATH+=":$(dirname "$found")"
done
"$bin/tapestry" --version >/dev/null 2>&1 || LD_LIBRARY_PATH="${lib}_gcc:$LD_LIBRARY_PATH"
"$bin/tapestry" --version || exit 1
echo "built from $(cat $unpacked/version)"

# In place of what the tests were built with. Without a GPU they fail instead of being skipped.
export TAPESTRY_BINARY="$bin/tapestry" TAPESTRY_REQUIRE_GPU=1
# A test that calls no kernel asks for the GPU.
answer=$("$bin/cuda_core_tests" --gtest_filter='BroadcastPlanTest.*' --gtest_brief=1 2>&1) ||
  complain "$(grep -m1 'no GPU answers' <<<"$answer" || echo "$answer")"

table=() failed=0 part_end=$((EPOCHSECONDS + 3600))
row() { table+=("$1"); echo "$1"; }
ending() {  # of an exit code
  case $1 in 0) echo passed ;; 124 | 137) echo "out of time" ;; never) echo "not reached" ;; *) echo "FAILED ($1)" ;; esac
}
# Seconds that the part has left, LIMIT at most.
left() {
  local seconds=$((part_end - EPOCHSECONDS))
  echo $((seconds < $1 ? seconds : $1))
}
begin_part() { part_end=$((EPOCHSECONDS + $1)); }
# step NAME LIMIT COMMAND...: runs it and notes how it ended. What runs too long, is killed.
step() {
  local name=$1 started=$SECONDS seconds code=never
  seconds=$(left "$2"); shift 2
  echo "== $name"
  if [ "$seconds" -ge 5 ]; then timeout -k 10 "$seconds" "$@"; code=$?; fi
  [ $code = 0 ] || failed=1
  row "$(printf '%-44s %-12s %5d s' "$name" "$(ending $code)" $((SECONDS - started)))"
}
# run_suite LOGS END BINARY NUMBER: what becomes of a suite goes to LOGS/NUMBER.code.
run_suite() {
  local logs=$1 end=$2 binary=$3 number=$4 seconds code=never started=$EPOCHSECONDS
  seconds=$((end - EPOCHSECONDS))
  [ $seconds -le "${SUITE_SECONDS:-60}" ] || seconds=${SUITE_SECONDS:-60}
  if [ $seconds -ge 2 ]; then
    # A kernel that never ends, ends with its process.
    timeout -k 5 $seconds "$binary" --gtest_brief=1 --gtest_flagfile="$logs/$number.flags" \
      >"$logs/$number.log" 2>&1
    code=$?
  fi
  echo "$code $((EPOCHSECONDS - started))" >"$logs/$number.code"
}
export -f run_suite
# suites NAME BINARY FILTER: a process for each suite, so that one that crashes, or hangs, costs no
# other its result. A row for each one that did not pass, and one for all.
suites() {
  local name=$1 binary=$2 filter=$3 started=$SECONDS logs suite number=0 code seconds ended=passed
  local -A count=()
  echo "== $name"
  logs=$(mktemp -d)
  # Each line: a suite, and the filter that names its tests.
  if ! timeout 60 "$binary" --gtest_list_tests --gtest_filter="$filter" >"$logs/listed" ||
    ! awk -v logs="$logs" '
      /^[^ ]/ { suite = $1; file = logs "/" ++n ".flags"; print suite >logs "/suites"; separator = "--gtest_filter=" }
      /^ / { printf "%s%s%s", separator, suite, $1 >file; separator = ":" }
      END { exit n == 0 }' "$logs/listed"; then
    failed=1
    row "$(printf '%-44s FAILED: its tests cannot be listed' "$name")"
    return
  fi
  seq "$(wc -l <"$logs/suites")" |
    xargs -P "${JOBS:-4}" -I{} bash -c 'run_suite "$@"' _ "$logs" "$part_end" "$binary" {}
  while read -r suite; do
    number=$((number + 1))
    read -r code seconds <"$logs/$number.code" || { code=never seconds=0; }
    count[$code]=$((${count[$code]:-0} + 1))
    [ "$code" != 0 ] || continue
    ended=FAILED failed=1
    [ "$code" != never ] || continue
    # The first of its errors, and how it ended.
    echo "---- ${suite%.}"
    { grep -m1 -A8 ': Failure$' "$logs/$number.log"; echo ...; tail -4 "$logs/$number.log"; }
    row "$(printf '  %-42s %-12s %5d s  %s' "${suite%.}" "$(ending "$code")" "$seconds" \
      "$(sed -nE 's/^\[  FAILED  \] [^ ]*\.([^ ,]+).*/\1/p' "$logs/$number.log" | sort -u | head -3 | paste -sd' ')")"
  done <"$logs/suites"
  row "$(printf '%-44s %-12s %5d s  %d of %d suites passed%s' "$name" $ended $((SECONDS - started)) \
    "${count[0]:-0}" $number "${count[never]:+, ${count[never]} not reached}")"
  rm -r "$logs"
}
# bench NAME CONFIG OVERRIDES...: notes how fast a training step is.
bench() {
  local name=$1 figures; shift
  echo "== $name"
  if [ "$(left 120)" -lt 10 ]; then failed=1; row "$(printf '%-44s not reached' "$name")"; return; fi
  if figures=$(timeout -k 10 "$(left 120)" "$bin/tapestry" bench "$@" device=cuda); then
    echo "$figures"
    row "$(awk -v name="$name" '{ value[$1] = $2 } END {
      printf "%-44s %9.0f tokens/s %8.0f GFLOP/s, %.2f of the peak, %.1f GB", name, value["tokens_per_s"],
             value["gflops"], value["share_of_peak"], value["peak_memory_bytes"] / 1e9 }' <<<"$figures")"
  else
    failed=1
    row "$(printf '%-44s FAILED' "$name")"
  fi
}

if [[ $parts = *' tests '* ]]; then
  begin_part "${TESTS_SECONDS:-480}"
  # The host side of these may look at what a launch left behind.
  CUDA_LAUNCH_BLOCKING=1 suites "kernels against naive loops" "$bin/cuda_core_tests" '*'
  suites "gradient table against the CPU" "$bin/nn_tests" 'CudaParity*'
  suites "training against the CPU, resuming, moving" "$bin/apps_tests" '*Cuda*'
fi

if [[ $parts = *' bench '* ]]; then
  begin_part "${BENCH_SECONDS:-540}"
  gpt2=(configs/gpt2_124m.yaml model.max_position_embeddings=1024 data.block_size=1024)
  # The target has 8k tokens, and so has the source.
  translation=(configs/multi30k_small.yaml model.hidden_size=512 model.intermediate_size=2048
    model.num_attention_heads=8 model.encoder_layers=6 model.decoder_layers=6 --shape 256x32x32)
  bench "GPT-2 124M, 64 x 1024, bfloat16" "${gpt2[@]}" --shape 64x1024 dtype=bfloat16
  bench "the same as CUDA graphs" "${gpt2[@]}" --shape 64x1024 dtype=bfloat16 cuda_graphs=true
  bench "GPT-2 124M, 16 x 1024, float32" "${gpt2[@]}" --shape 16x1024
  bench "translation d 512, 6+6, 8k + 8k, bfloat16" "${translation[@]}" dtype=bfloat16
  bench "the same as CUDA graphs" "${translation[@]}" dtype=bfloat16 cuda_graphs=true
  bench "translation d 512, 6+6, 8k + 8k, float32" "${translation[@]}"
fi

if [[ $parts = *' shakespeare '* ]]; then
  begin_part 3600
  run=$(mktemp -d) text=${SHAKESPEARE:-$unpacked/shakespeare.txt}
  step "tiny Shakespeare, nanoGPT's recipe" 3600 "$bin/tapestry" train configs/shakespeare_char.yaml device=cuda \
    dtype=bfloat16 data.train.text="$text" data.valid.text="$text" data.block_size=256 model.hidden_size=384 \
    model.max_position_embeddings=256 model.intermediate_size=1536 model.num_attention_heads=6 \
    model.num_hidden_layers=6 model.dropout=0.2 model.attention_dropout=0.2 training.batch_size=64 \
    training.max_steps=5000 output_dir="$run"
  losses=$(sed -nE '/"valid"/ s/.*"loss":([0-9.]+).*/\1/p' "$run/metrics.jsonl" | sort -n)
  row "$(printf '%-44s %s' "its best validation loss" "$(head -1 <<<"$losses")")"
  rm -r "$run"
fi

# Last, and not for long: everything takes many times as long.
if [[ $parts = *' sanitize '* ]]; then
  if command -v compute-sanitizer >/dev/null; then
    limit=${SANITIZER_SECONDS:-150}
    begin_part $((2 * limit + 20))
    sanitizer=(env CUDA_LAUNCH_BLOCKING=1 compute-sanitizer --error-exitcode 9)
    step "shared memory races" "$limit" "${sanitizer[@]}" --tool racecheck "$bin/cuda_core_tests" --gtest_brief=1 \
      --gtest_filter='*Attention*:*Norm*:*Embedding*:*Softmax*:*CrossEntropy*:*SumSquares*:*Linear*:*Elementwise*'
    step "memory" "$limit" "${sanitizer[@]}" "$bin/cuda_core_tests" --gtest_brief=1
  else
    row "compute-sanitizer is not here: not run"
  fi
fi

echo
printf '%s\n' "${table[@]}"
exit $failed
