#!/usr/bin/env bash
# A training that validates and saves all the time, and is stopped and resumed again and again: its memory, its
# descriptors, its threads and the files of its run must not grow.
#   tests/soak.sh TAPESTRY CONFIG [section.key=value ...]     MINUTES=120, RESTARTS=8 (so many stops)
# What was measured goes to SOAK_OUT (a table; default: soak.tsv here).
set -euo pipefail
tapestry=$(realpath "$1"); config=$2; shift 2
minutes=${MINUTES:-120} restarts=${RESTARTS:-8} out=$(realpath -m "${SOAK_OUT:-soak.tsv}")
work=$(mktemp -d)
trap 'kill -KILL "${pid:-0}" 2>/dev/null || true; rm -rf "$work"' EXIT
run=$work/run
printf 'part\tsecond\tresident_kB\tdescriptors\tthreads\tfiles\n' >"$out"

for ((part = 0; part <= restarts; ++part)); do
  "$tapestry" train "$config" output_dir="$run" training.max_steps=1000000000 training.eval_steps=20 \
    training.save_steps=20 training.logging_steps=20 training.save_total_limit=3 "$@" 2>"$work/err" &
  pid=$!
  end=$((SECONDS + minutes * 60 / (restarts + 1)))
  while [ $SECONDS -lt $end ]; do
    sleep 5
    kill -0 $pid 2>/dev/null || { echo "the training ended:"; tail -n 3 "$work/err"; exit 1; }
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$part" "$SECONDS" "$(awk '/^VmRSS/ {print $2}' /proc/$pid/status)" \
      "$(find /proc/$pid/fd -mindepth 1 | wc -l)" "$(awk '/^Threads/ {print $2}' /proc/$pid/status)" \
      "$(find "$run" -not -name '*.tmp*' | wc -l)" >>"$out"
  done
  # Every other time without a warning.
  if ((part % 2)); then signal=KILL; else signal=TERM; fi
  kill -$signal $pid
  code=0
  wait $pid || code=$?
  [ $signal = KILL ] || [ $code = 143 ] || { echo "exit code $code after SIGTERM"; exit 1; }
done
pid=

# Each part against itself: the median of its last third against that of its second.
awk -F'\t' '
  function median(from, to, column,   i, j, n, x, list) {
    for (i = from; i < to; ++i) {
      x = seen[i, column]
      for (j = n++; j > 0 && list[j - 1] > x; --j) list[j] = list[j - 1]
      list[j] = x
    }
    return list[int(n / 2)]
  }
  function judge(   column, early, late) {
    if (rows < 6) return
    for (column = 3; column <= 6; ++column) {
      early = median(int(rows / 3), int(2 * rows / 3), column); late = median(int(2 * rows / 3), rows, column)
      if (late > early * 1.02 + (column == 3 ? 1024 : 0)) {
        printf "part %s: %s grew from %d to %d\n", part, name[column], early, late; bad = 1
      }
    }
  }
  NR == 1 { for (i = 1; i <= NF; ++i) name[i] = $i; next }
  $1 != part { judge(); part = $1; rows = 0 }
  { for (i = 3; i <= 6; ++i) seen[rows, i] = $i; ++rows; if ($3 > most) most = $3; if ($4 > fds) fds = $4 }
  END { judge(); printf "%d measurements, at most %d kB and %d descriptors: %s\n", NR - 1, most, fds, bad ? "GREW" : "flat"; exit bad }
' "$out"
