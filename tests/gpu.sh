#!/usr/bin/env bash
# Everything that needs a GPU, in one command.
#
#   tests/gpu.sh pack    builds for ARCHITECTURES (90a-real; "native" is this machine's GPU) and packs binaries
#                        and libraries into build/gpu/bundle.tar.xz. They run in a checkout on a machine that
#                        has a GPU, its driver and CUDA's libraries, but none of the packages of the build
#   tests/gpu.sh [PART]...   runs that bundle, which it packs first where there is none, and prints a table:
#     tests        kernels against naive loops, gradients and training against the CPU: a process for each
#                  suite, $JOBS (4) at a time, each for $SUITE_SECONDS (60) at most; and whether a run of $BITS_STEPS
#                  (20) updates has the same bits each time
#     bench        training steps of GPT-2 and of a translation model, with and without CUDA graphs, and where
#                  their time goes; attention by itself; beam search; PyTorch beside them, where it is
#     sanitize     each suite of kernels under each tool of compute-sanitizer, which has $SANITIZER_SECONDS (100)
#     shakespeare  only if asked for: nanoGPT's recipe for a GPU, on the text $SHAKESPEARE, which pack takes along
#
#     all          tests, bench and sanitize; also without any PART
#
# A part ends after $TESTS_SECONDS (480), $BENCH_SECONDS (540) at most, and says what it did not reach.
#
# Half an hour on a borrowed GPU, in order of value, each below ten minutes:
#   tests      The first failing suite counts, not their number: times of wrong kernels are worth nothing. Again by
#              itself: CUDA_LAUNCH_BLOCKING=1 TAPESTRY_REQUIRE_GPU=1 build/gpu_unpacked/bin/cuda_core_tests
#              --gtest_filter='SUITE.*', with LD_LIBRARY_PATH=build/gpu_unpacked/lib, under compute-sanitizer if need be.
#   bench      tokens/s and the share of the peak beside PyTorch's; the table by kernel says what to mend first;
#              updates of graphs should be 0 without dropout, and nothing refused. Its first rows matter most.
#   sanitize   memory, barriers, what nobody wrote, and races, with what is left. racecheck does not follow mbarriers:
#              it reports the statistics of queries in the backward kernels of attention for 9.0.
# Keep the whole output, not only the table at its end: tests/gpu.sh bench 2>&1 | tee FILE
set -uo pipefail
cd "$(dirname "$0")/.."
archive=build/gpu/bundle.tar.xz
unpacked=build/gpu_unpacked  # not beside the archive, which is carried to other machines
ulimit -c 0  # a crash is a row, not a file

pack() {
  set -e
  local new=build/gpu_new built=build/cuda_pack text=${SHAKESPEARE:-}
  cmake/install-packages.sh test
  # Shared, so that the kernels are there once; for few GPUs, since the kernels are most of the archive.
  # Tests are not run here to list them: they look for their files where they are started.
  cmake --preset cuda -B $built -DBUILD_SHARED_LIBS=ON -DTAPESTRY_CUDA_ARCHITECTURES="${ARCHITECTURES:-90a-real}" \
    -DTAPESTRY_TEST_FILES=. -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST
  cmake --build $built --target tapestry cuda_core_tests nn_tests apps_tests attention_times
  rm -rf $new build/gpu
  mkdir -p $new/{bin,lib,lib_gcc} build/gpu
  cp $built/apps/tapestry $built/tests/{cuda_core_tests,nn_tests,apps_tests,attention_times} $new/bin
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
  tar -C $new -c . | xz -T0 >$new.tar.xz
  mv $new.tar.xz $archive
  rm -r $new
  du -h $archive
}

complain() { echo "tests/gpu.sh: $*" >&2; exit 3; }

if [ "${1:-}" = pack ]; then pack; exit; fi
[ "${*:-all}" != all ] || set -- tests bench sanitize
for part; do
  [[ $part =~ ^(tests|bench|sanitize|shakespeare)$ ]] || complain "'$part' is no part; see the top of the script"
done
parts=" $* "

if [ ! -f $archive ]; then
  nvidia-smi -L >/dev/null 2>&1 || complain "no GPU answers here (nvidia-smi -L), nothing was built or run"
  ARCHITECTURES=${ARCHITECTURES:-native} tests/gpu.sh pack || exit 1
fi
if [ ! $unpacked/version -nt $archive ]; then
  rm -rf $unpacked && mkdir -p $unpacked && tar -C $unpacked -xJf $archive && touch $unpacked/version || exit 1
fi
bin=$PWD/$unpacked/bin lib=$PWD/$unpacked/lib
own_libraries=${LD_LIBRARY_PATH:-}
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
    # shellcheck disable=SC2086  # words
    timeout -k 5 $seconds ${CHECKER:-} "$binary" --gtest_brief=1 --gtest_flagfile="$logs/$number.flags" \
      >"$logs/$number.log" 2>&1
    code=$?
  fi
  echo "$code $((EPOCHSECONDS - started))" >"$logs/$number.code"
}
export -f run_suite
# same_bits BINARY OVERRIDES...: trains on a text of numbers, twice, the second time with the last override.
same_bits() {
  local binary=$1 run code=1 i width=${BITS_WIDTH:-768}; shift
  run=$(mktemp -d)
  seq 40000 >"$run/text"
  local train=("$binary" train configs/shakespeare_char.yaml device=cuda data.train.text="$run/text"
    data.valid.text="$run/text" data.block_size=256 model.max_position_embeddings=256 training.batch_size=64
    model.hidden_size=$width model.intermediate_size=$width model.num_attention_heads=$((width / 64)) model.dropout=0.1
    training.max_steps="${BITS_STEPS:-20}" training.save_steps="${BITS_STEPS:-20}" training.eval_steps=1000000)
  for i in 1 2; do
    "${train[@]}" "${@:1:i}" output_dir="$run/$i" >"$run/log" 2>&1 || { tail -5 "$run/log"; rm -r "$run"; return 1; }
  done
  cmp "$run"/{1,2}/last/model.safetensors && cmp "$run"/{1,2}/last/optimizer.safetensors; code=$?
  rm -r "$run"
  return $code
}
export -f same_bits
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
# measure NAME COMMAND...: its output goes to $figures. Returns false, with a row, where it fails.
measure() {
  local name=$1 code=never seconds; shift
  echo "== $name"
  seconds=$(left "${MEASURE_SECONDS:-120}")
  if [ "$seconds" -ge 10 ]; then figures=$(timeout -k 10 "$seconds" "$@"); code=$?; fi
  echo "$figures"
  # 5 is out of memory: whoever asked has something smaller.
  [ $code != 5 ] || return 5
  [ $code = 0 ] || { failed=1; row "$(printf '%-44s %s' "$name" "$(ending $code)")"; return 1; }
}
# bench NAME CONFIG OVERRIDES...: notes how fast a training step is.
bench() {
  local name=$1 figures='' code; shift
  measure "$name" "$bin/tapestry" bench "$@" device=cuda; code=$?
  [ $code != 5 ] || row "$(printf '%-44s out of memory' "$name")"
  [ $code = 0 ] || return $code
  row "$(awk -v name="$name" '
    { value[$1] = $2 }
    $1 ~ /refusal$/ { text = $0; sub(/^[^ ]+ +/, "", text); said = said "; refused: " text }
    END {
      printf "%-44s %9.0f tokens/s %8.0f GFLOP/s, %.2f of the peak, %.1f GB", name, value["tokens_per_s"],
             value["gflops"], value["share_of_peak"], value["peak_memory_bytes"] / 1e9
      if ("graph_updates" in value) printf ", %d graphs, %d launches, %d updates", value["graphs"],
             value["graph_launches"], value["graph_updates"]
      if (value["products_without_algorithm"] + value["products_refused"] > 0)
        printf ", %d kinds of products without an algorithm, %d refused", value["products_without_algorithm"],
               value["products_refused"]
      print said }' <<<"$figures")"
}
# lines_of NAME PATTERN COMMAND...: notes the lines of its output that match.
lines_of() {
  local name=$1 pattern=$2 figures='' line code; shift 2
  measure "$name" "$@"; code=$?
  [ $code != 5 ] || row "$(printf '%-44s out of memory' "$name")"
  [ $code = 0 ] || return $code
  row "$name:"
  while read -r line; do row "  $line"; done < <(grep -E "$pattern" <<<"$figures")
}
decode() {  # ROWS
  lines_of "beam search, $1 sentences of 32 tokens" 'beam|greedy' "$bin/tapestry" bench --decode \
    "${translation[@]}" --shape "$1x32x32" --beam-size 5 --steps 3 --warmup-steps 1 dtype=bfloat16 device=cuda
}
# With the libraries that it would find without us.
peer() {
  lines_of "PyTorch: $*" '^PyTorch' env LD_LIBRARY_PATH="$own_libraries" python3 tests/bench/gpu/torch_peer.py "$@"
}

if [[ $parts = *' tests '* ]]; then
  begin_part "${TESTS_SECONDS:-480}"
  # Kernel tests share memory with the GPU, and not every virtual machine has managed memory.
  export TAPESTRY_TEST_MEMORY
  for TAPESTRY_TEST_MEMORY in managed pinned; do
    CUDA_LAUNCH_BLOCKING=1 timeout -k 5 60 "$bin/cuda_core_tests" --gtest_brief=1 \
      --gtest_filter='ElementwiseTest/0.*:SoftmaxTest/0.*' >/dev/null 2>&1 && break
    row "$(printf '%-44s %s' "a test with $TAPESTRY_TEST_MEMORY memory" FAILED)"
  done
  # The host side of these may look at what a launch left behind.
  CUDA_LAUNCH_BLOCKING=1 suites "kernels against naive loops" "$bin/cuda_core_tests" '*'
  suites "gradient table against the CPU" "$bin/nn_tests" 'CudaParity*'
  suites "training against the CPU, resuming, moving" "$bin/apps_tests" '*Cuda*'
  step "a second run has the same bits" 120 bash -c 'same_bits "$@"' _ "$bin/tapestry" dtype=bfloat16
  step "and so has one with CUDA graphs" 120 bash -c 'same_bits "$@"' _ "$bin/tapestry" dtype=bfloat16 cuda_graphs=true
fi

if [[ $parts = *' bench '* ]]; then
  begin_part "${BENCH_SECONDS:-540}"
  gpt2=(configs/gpt2_124m.yaml model.max_position_embeddings=1024 data.block_size=1024)
  # The target has 8k tokens, and so has the source.
  translation=(configs/multi30k_small.yaml model.hidden_size=512 model.intermediate_size=2048
    model.num_attention_heads=8 model.encoder_layers=6 model.decoder_layers=6)
  both=(--shape 256x32x32)
  has_torch=true
  LD_LIBRARY_PATH=$own_libraries python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null || has_torch=false
  shape=64x1024
  bench "GPT-2 124M, $shape, bfloat16" "${gpt2[@]}" --shape $shape dtype=bfloat16
  if [ $? = 5 ]; then
    shape=32x1024
    bench "GPT-2 124M, $shape, bfloat16" "${gpt2[@]}" --shape $shape dtype=bfloat16
  fi
  # Of five steps. On stderr, which is no figure.
  TAPESTRY_GPU_TIMES=1 bench "the same, timed by kernel" "${gpt2[@]}" --shape $shape dtype=bfloat16 --steps 5
  $has_torch && peer gpt2 --compile
  bench "GPT-2 124M, $shape, as CUDA graphs" "${gpt2[@]}" --shape $shape dtype=bfloat16 cuda_graphs=true
  lines_of "attention by itself" '^attention' "$bin/attention_times"
  lines_of "attention by the kernels for any GPU" '^attention' "$bin/attention_times" mma
  $has_torch && peer attention
  bench "translation d 512, 6+6, 8k + 8k, bfloat16" "${translation[@]}" "${both[@]}" dtype=bfloat16
  bench "the same as CUDA graphs" "${translation[@]}" "${both[@]}" dtype=bfloat16 cuda_graphs=true
  $has_torch && peer translation --compile
  for rows in 1 64 256; do decode $rows; done
  $has_torch && peer decode
  $has_torch && peer gpt2
  $has_torch && peer translation
  TAPESTRY_GPU_TIMES=1 bench "translation, timed by kernel" "${translation[@]}" "${both[@]}" dtype=bfloat16 --steps 5
  bench "GPT-2 124M, 16 x 1024, float32" "${gpt2[@]}" --shape 16x1024
  bench "translation d 512, 6+6, 8k + 8k, float32" "${translation[@]}" "${both[@]}"
  $has_torch || row "PyTorch is not here, or sees no GPU: not compared"
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
    for tool in memcheck synccheck initcheck racecheck; do
      begin_part "${SANITIZER_SECONDS:-100}"
      CUDA_LAUNCH_BLOCKING=1 CHECKER="compute-sanitizer --error-exitcode 9 --tool $tool" \
        suites "$tool" "$bin/cuda_core_tests" '*'
    done
  else
    row "compute-sanitizer is not here: not run"
  fi
fi

echo
printf '%s\n' "${table[@]}"
exit $failed
