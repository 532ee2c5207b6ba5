#!/usr/bin/env bash
# Compiles for ARM64 on this machine, and runs it on an emulated processor: gradient checks, a training beside
# this machine's own, a run that goes from one to the other and back, translations and kernels of three kinds of
# processor, and tests.
#   tests/arm.sh [all] [CTEST OPTION]...   all: every gradient and test (hours); without it a part of both
# QEMU_CPU=cortex-a53: ARMv8.0 and nothing more; without it a processor that has all.
set -euo pipefail
cd "$(dirname "$0")/.."
unset OPENBLAS_CORETYPE
programs=(core)
gradients=(--filter attention)
rooms='.*Gemm|.*Softmax|.*Norm|.*Philox|.*Packed|.*Quantize|.*Frozen|.*Traits|.*Blas|.*Attention'
picked=(-R "core\.($rooms|SquareProduct\.|TileProduct\.Bf|(Tile|Split)Operand\.|(Int8|Bfloat16)Kernel\.)")
if [ "${1:-}" = all ]; then
  shift
  programs=(core autograd optim nn data apps)
  gradients=()
  picked=()
fi
# Left out, each for what the emulation does not have:
left_out=(
  'CpuTraits\.AgreesWithTheKernel'  # /proc/cpuinfo is that of the machine below
  'Blas\.(AForcedCore|WithoutRoom)' # start themselves again, which the kernel below does not do with ARM64's programs
)

cmake/install-packages.sh build
cmake/install-packages.sh arm64
cmake/arm64-root.sh
for preset in release arm64; do
  cmake --preset "$preset"
  cmake --build --preset "$preset" --target tapestry
done
cmake --build --preset arm64 --target "${programs[@]/%/_tests}"

# Tests that start the program start the emulation.
export TAPESTRY_BINARY=$PWD/build/arm64/emulated_tapestry
cat >"$TAPESTRY_BINARY" <<END
#!/bin/sh
exec qemu-aarch64-static -L $PWD/build/arm64-root $PWD/build/arm64/apps/tapestry "\$@"
END
chmod +x "$TAPESTRY_BINARY"
arm=$TAPESTRY_BINARY x86=$PWD/build/release/apps/tapestry
"$arm" --version
"$arm" gradcheck "${gradients[@]}" | tail -n 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
text=$PWD/.github/CONTRIBUTING.md
train() {  # program, folder, further options
  "$1" train configs/shakespeare_char.yaml "data.train.text=$text" "data.valid.text=$text" \
    "output_dir=$work/$2" training.max_steps=50 training.logging_steps=1 training.eval_steps=25 training.save_steps=25 \
    training.warmup_steps=10 training.batch_size=4 threads=1 \
    model.num_hidden_layers=2 model.hidden_size=64 model.intermediate_size=128 model.dropout=0.1 "${@:3}" 2>"$work/log" || { cat "$work/log"; exit 1; }
}
losses() { grep '"kind":"train"' "$work/$1/metrics.jsonl" | sed -E 's/.*"loss":([^,}]*).*/\1/'; }
same_losses() {  # folder, folder
  [ "$(losses "$1" | wc -l)" = 50 ] || { echo "$1 has not 50 updates"; exit 1; }
  paste <(losses "$1") <(losses "$2") | awk -v names="$1 and $2" '
    { d = ($1 - $2) / $2; d = d < 0 ? -d : d; if (d > most) most = d }
    END { print names ": the losses of " NR " updates differ by " most " at most"; exit !(NR == 50 && most < 1e-5) }'
}
train "$x86" x86
train "$arm" arm
same_losses arm x86
# Checkpoints move both ways.
train "$x86" moved --stop-at 25
train "$arm" moved
same_losses moved x86
train "$arm" back --stop-at 25
train "$x86" back
same_losses back x86
for weights in float32 int8 int4; do
  for kind in arm x86; do
    "${!kind}" generate --model "$work/x86" --weights $weights --do-sample --seed 1 --max-new-tokens 40 \
      <<<"The " >"$work/$kind.$weights"
  done
  cmp "$work/arm.$weights" "$work/x86.$weights"
done
echo "the same text of float32, int8 and int4 weights: $(tr '\n' ' ' <"$work/arm.int8")"

# What the processors have: SMMLA and BFMMLA, SDOT, NEON and nothing more. Each writes what x86 writes.
kinds='max bfmmla i8mm
neoverse-n1 float32 dotprod
cortex-a53 float32 plain'
seq 1000 7 9999 | sed 's/./& /g' >"$work/lines"  # numbers, to be copied digit by digit
"$x86" train configs/multi30k_small.yaml output_dir="$work/pairs" data.{train,valid}.{source,target}="$work/lines" \
  tokenizer.vocab_size=25 model.{hidden_size,intermediate_size}=64 model.{encoder,decoder}_layers=1 \
  training.{max,save,eval}_steps=300 training.warmup_steps=50 training.batch_size=1024 training.learning_rate=3e-3 \
  2>"$work/log" || { cat "$work/log"; exit 1; }
translate() {  # program, its name
  for weights in int8 int4; do
    sed -n '1~160p' "$work/lines" | "$1" translate --model "$work/pairs" --weights $weights >"$work/$2.translated.$weights"
  done
}
translate "$x86" x86
while read -r cpu bfloat16 int8; do
  facts=$(QEMU_CPU=$cpu "$arm" --version)
  grep -qx "bfloat16: $bfloat16" <<<"$facts" && grep -qx "int8: $int8" <<<"$facts" || { echo "$cpu: $facts"; exit 1; }
  QEMU_CPU=$cpu translate "$arm" "$cpu"
  for weights in int8 int4; do cmp "$work/$cpu.translated.$weights" "$work/x86.translated.$weights"; done
  QEMU_CPU=$cpu qemu-aarch64-static -L build/arm64-root build/arm64/tests/core_tests --gtest_brief=1 \
    --gtest_filter='SquareProduct.*:*Operand.Vectors*:TileProduct.Bf*:PackedLinearTest.Int?Kernels*'
done <<<"$kinds"
# BFMMLA computes as its emulation does.
head -c 2000 "$text" >"$work/few"
for kernel in bfmmla bfmmla_emulated; do
  QEMU_CPU=max TAPESTRY_BFLOAT16=$kernel train "$arm" $kernel dtype=bfloat16 training.{max,save,eval}_steps=2 \
    training.batch_size=1 model.num_hidden_layers=1 model.hidden_size=32 model.intermediate_size=32 \
    data.{train,valid}.text="$work/few" data.train.range="[0, 0.8]" data.valid.range="[0.8, 1]"
done
cmp "$work"/bfmmla{,_emulated}/checkpoint-2/model.safetensors

IFS='|'
ctest --preset arm64 -j "$(nproc)" "${picked[@]}" -E "${left_out[*]}" "$@"
