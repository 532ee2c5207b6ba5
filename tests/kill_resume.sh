#!/usr/bin/env bash
# Ends a training by a signal at random moments, resumes it each time, and compares the final weights,
# optimizer state, trainer state and what `best` and `last` point to with those of an uninterrupted run, and
# of a run on one thread.
#   tests/kill_resume.sh TAPESTRY CONFIG [section.key=value ...]     KILLS=20 (how often), SEED=1
# SIGNAL=KILL: with TERM the training must end within SECONDS_TO_END=20, with exit code 143 or at its end.
# RANKS="1 2 4": each start has one of these numbers of ranks, and one of them is killed; the config then sets
# distributed.parts (4, say), so that any of them computes the same update.
set -euo pipefail
tapestry=$1; config=$2; shift 2
kills=${KILLS:-20}
signal=${SIGNAL:-KILL}
seconds_to_end=${SECONDS_TO_END:-20}
RANDOM=${SEED:-1}
read -ra ranks <<<"${RANKS:-1}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
work=$(mktemp -d)
export OMPI_MCA_orte_tmpdir_base=$work  # two starts at once race for the folder that runs share
trap 'rm -rf "$work"' EXIT

train() {  # folder, further overrides
  local folder=$1; shift
  # As a child of its own, so that a signal to the background job reaches it and no shell around it.
  "${exec[@]}" "${launcher[@]}" "$tapestry" train "$config" "${overrides[@]}" "output_dir=$folder" "$@" 2>"$folder.log"
}
finish() {  # the same, to its end
  train "$@" || { echo "training failed:"; tail -n 5 "$1.log"; exit 1; }
}
overrides=("$@")
exec=()
launcher=()
# Of the job: itself, or one of the ranks that it started.
victim() {
  local children
  mapfile -t children < <(pgrep -P "$1")
  echo "${children[$((${#children[@]} > 0 ? RANDOM % ${#children[@]} : 0))]:-$1}"
}

start=$(date +%s%N)
finish "$work/whole" threads=2
whole_ms=$((($(date +%s%N) - start) / 1000000))
finish "$work/single" threads=1

done_kills=0
finished=0
declare -A starts
while [ "$done_kills" -lt "$kills" ]; do
  count=${ranks[RANDOM % ${#ranks[@]}]}
  launcher=()
  [ "$count" -eq 1 ] || launcher=(mpirun -np "$count" --oversubscribe)
  starts[$count]=$((${starts[$count]:-0} + 1))
  (exec=(exec); train "$work/killed" threads=$((count > 1 ? 1 : 2))) & pid=$!
  # Anywhere in a run's length, start-up and checkpoint writing included.
  sleep "$(awk -v r=$RANDOM -v ms=$whole_ms 'BEGIN { printf "%.3f", r / 32768 * ms / 1000 }')"
  since=$SECONDS
  hit=0
  if kill "-$signal" "$(victim "$pid")" 2>/dev/null; then hit=1; done_kills=$((done_kills + 1)); fi
  code=0
  wait "$pid" 2>/dev/null || code=$?
  if [ "$signal" = TERM ] && [ $hit = 1 ]; then
    [ $((SECONDS - since)) -le "$seconds_to_end" ] || { echo "$((SECONDS - since)) s from SIGTERM to the end"; exit 1; }
    # 128 + 15 also where the signal came before there was a handler.
    case $code in 0 | 143) ;; *) echo "exit code $code after SIGTERM:"; tail -n 3 "$work/killed.log"; exit 1 ;; esac
  fi
  # A run that got to its end starts over, so that every kill hits a training.
  if grep -q 'done:' "$work/killed.log" && [ -d "$work/killed" ]; then mv "$work/killed" "$work/finished-$((finished += 1))"; fi
done
launcher=()
finish "$work/killed" threads=2

last() { readlink -f "$1/last"; }
same() {
  for file in model.safetensors optimizer.safetensors; do
    cmp "$(last "$1")/$file" "$(last "$2")/$file"
  done
  diff <(grep -v seconds "$(last "$1")/trainer_state.json") <(grep -v seconds "$(last "$2")/trainer_state.json")
  diff <(cd "$1" && readlink best last) <(cd "$2" && readlink best last)
}
same "$work/whole" "$work/single"
compared=0
for run in "$work"/killed "$work"/finished-*; do
  [ -d "$run" ] || continue
  same "$work/whole" "$run"
  compared=$((compared + 1))
done
[ "${#ranks[@]}" -eq 1 ] || for count in "${!starts[@]}"; do echo "${starts[$count]} starts on $count ranks"; done
echo "$done_kills times SIG$signal, $compared resumed runs: the same bits and links as the uninterrupted run; 1 and 2 threads too"
