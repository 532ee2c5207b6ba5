#!/usr/bin/env bash
# Fails each call of a small training that writes, one at a time, and looks at what is left: the exit code or a
# warning must tell, the checkpoints before must be whole, and the same command must then end with the bits, the
# links and the metrics of an undisturbed run.
#   tests/faults.sh TAPESTRY CONFIG [section.key=value ...]
# CALLS="write fsync rename symlink open mkdir unlink", HOWS="5 28 122 short kill" (EIO, ENOSPC, EDQUOT), EVERY=1 (each N-th
# call only).
set -euo pipefail
tapestry=$(realpath "$1"); config=$2; shift 2
read -ra calls <<<"${CALLS:-write fsync rename symlink open mkdir unlink}"
read -ra hows <<<"${HOWS:-5 28 122 short kill}"
every=${EVERY:-1}
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
cc -shared -fPIC -O1 -o "$work/shim.so" "$(dirname "$0")/faults/shim.c" -ldl
run=$work/run

train() {
  "$tapestry" train "$config" output_dir="$run" device=cpu threads=1 training.max_steps=6 training.save_steps=2 \
    training.eval_steps=2 training.logging_steps=1 training.save_total_limit=2 "$@"
}
disturbed() {  # variables of the shim, then --, then overrides
  local variables=()
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  local code=0
  (export FAULT_UNDER="$run" LD_PRELOAD="$work/shim.so" "${variables[@]}"; train "$@") >/dev/null 2>"$work/err" ||
    code=$?
  return $code
}
state() {  # what two equal runs have in common
  (cd "$run/last" && cat model.safetensors optimizer.safetensors) | sha256sum
  readlink "$run/best" "$run/last"
  sed -E 's/"(seconds|tokens_per_s|peak_bytes)":[^,}]*//g' "$run/metrics.jsonl" | sha256sum
}
failures=0
complain() {
  echo "$1: $(tail -n 1 "$work/err")"
  failures=$((failures + 1))
}

train "$@" 2>/dev/null
whole=$(state)
tried=0
for call in "${calls[@]}"; do
  rm -rf "$run"
  disturbed FAULT_CALL="$call" FAULT_AT=0 FAULT_LOG="$work/count" -- "$@"
  count=$(cat "$work/count")
  echo "$call: $count calls"
  for how in "${hows[@]}"; do
    [ "$how" = short ] && [ "$call" != write ] && continue
    for ((at = 1; at <= count; at += every)); do
      rm -rf "$run"
      tried=$((tried + 1))
      fault="$call $at $how"
      code=0
      disturbed FAULT_CALL="$call" FAULT_AT="$at" FAULT_HOW="$how" -- "$@" || code=$?
      if [ "$how" = kill ]; then
        [ $code = 137 ] || complain "$fault ended with $code, expected 137"
      elif [ $code -ge 128 ]; then
        complain "$fault ended with the signal $((code - 128))"
      elif [ $code = 0 ] && [ "$how" != short ] && ! grep -q warning "$work/err"; then
        complain "$fault was not reported"
      fi
      for checkpoint in "$run"/checkpoint-?; do
        [ -e "$checkpoint" ] || continue
        "$tapestry" inspect "$checkpoint" >/dev/null 2>"$work/err" || complain "$fault damaged $checkpoint"
      done
      train "$@" 2>"$work/err" || { complain "$fault: no resuming"; continue; }
      [ "$(state)" = "$whole" ] || complain "$fault: other bits, links or metrics"
      if compgen -G "$run/*.tmp*" >/dev/null; then complain "$fault left $(echo "$run"/*.tmp*)"; fi
    done
  done
done
echo "$tried faults, $failures failures"
[ $failures = 0 ]
