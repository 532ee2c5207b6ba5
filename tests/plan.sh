#!/usr/bin/env bash
# Every config of configs/ for a few updates whose batches are as large as they may be: the memory that
# `tapestry plan` says beside the peak of the process, at a first start and at a second.
#   tests/plan.sh TAPESTRY DATA [CONFIG ...]     UPDATES=12, THREADS=2, DTYPE=float32
# DATA holds multi30k/ and tinyshakespeare/ (configs/README.md). Lines are joined, so that many are longer than the
# longest that a config takes, and cut; what a config reads else is of Debian (fortunes, trans-de-en,
# dataset-fashion-mnist) or made here. gpt2_124m takes minutes and must be named; regression_sine has no plan.
set -uo pipefail
tapestry=$(realpath "$1") data=$(realpath "$2"); shift 2
cd "$(dirname "$0")/.."
updates=${UPDATES:-12}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT

# The lines of a file, the first alone, the next two as one, and so on up to 12.
joined() {
  gzip -cdf "$1" | awk '
    BEGIN { want = 1 }
    { line = line (n ? " " : "") $0 }
    ++n == want { print line; line = ""; n = 0; want = want % 12 + 1 }'
}
pairs() {  # a folder's name, then the files of both languages of training and validation
  mkdir -p "$work/$1"
  joined "$2" >"$work/$1/train.en"; joined "$3" >"$work/$1/train.de"
  joined "$4" | head -n 64 >"$work/$1/valid.en"; joined "$5" | head -n 64 >"$work/$1/valid.de"
}
m=$data/multi30k
pairs plain "$m"/train.{en,de}.gz "$m"/val.{en,de}.gz
pairs tokenized "$m"/tok/{train,val}.lc.norm.tok.{en,de}.gz
for part in train valid; do paste "$work/plain/$part".{en,de} >"$work/plain/$part.tsv"; done
tests/bench/sums.py "$work/sums" >/dev/null
tests/bench/facts.py "$work/facts" >/dev/null
for file in computers definitions people politics science; do
  awk -v f="$file" 'BEGIN { RS = "\n%\n" } { gsub(/[ \t\n]+/, " "); print f "\t" $0 }' "/usr/share/games/fortunes/$file"
done >"$work/fortunes.tsv"

compare() {  # a config's name, then overrides
  local name=$1; shift
  [ -z "$wanted" ] || [[ " $wanted " = *" $name "* ]] || return 0
  tests/bench/memory_plan.py "$tapestry" --updates "$updates" "configs/$name.yaml" device=cpu "threads=${THREADS:-2}" \
    "dtype=${DTYPE:-float32}" \
    training.logging_steps=1 training.warmup_steps=1 "$@" || failed=1
}
translate() {  # a config's name, a folder of pairs, then overrides
  local name=$1 of=$work/$2; shift 2
  compare "$name" "data.train={source: $of/train.en, target: $of/train.de}" \
    "data.valid={source: $of/valid.en, target: $of/valid.de}" data.overlong=truncate "$@"
}
wanted=$* failed=0
translate multi30k_small plain
translate multi30k_en_de tokenized
translate multi30k_finetune plain
translate multi30k_rnn plain
compare multi30k_denoising "data.train=[{text: $work/plain/train.en}, {text: $work/plain/train.de}]" \
  "data.valid=[{text: $work/plain/valid.en}]" data.overlong=truncate
compare summarize_packages "data.train={tsv: $work/plain/train.tsv, source_column: 1, target_column: 2}" \
  "data.valid={tsv: $work/plain/valid.tsv, source_column: 1, target_column: 2}"
compare ding_de_en
for name in shakespeare_char shakespeare_llama shakespeare_latent shakespeare_modern; do
  compare $name "data.train.text=$data/tinyshakespeare/input.txt" "data.valid.text=$data/tinyshakespeare/input.txt"
done
compare gpt_fortunes
compare bert_fortunes
compare classify_fortunes "data.train={tsv: $work/fortunes.tsv, split: train}" \
  "data.valid={tsv: $work/fortunes.tsv, split: valid}"
compare answer_spans "data.train={jsonl: $work/facts/train.jsonl}" "data.valid={squad: $work/facts/valid.json}"
compare answer_sums "data.train.jsonl=$work/sums/train.jsonl" "data.valid.jsonl=$work/sums/valid.jsonl"
compare vit_fashion
# All the text there is, for the size of its vocabulary; two batches to an update.
cat "$data/tinyshakespeare/input.txt" "$work/plain/train".{en,de} "$work/tokenized/train".{en,de} >"$work/all.txt"
head -n 200 "$data/tinyshakespeare/input.txt" >"$work/few.txt"
[ -z "$wanted" ] || compare gpt2_124m "data.train.text=$work/all.txt" "data.valid.text=$work/few.txt" \
  training.gradient_accumulation_steps=2
exit $failed
