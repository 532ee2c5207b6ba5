#!/usr/bin/env bash
# What may go wrong on several ranks: each case ends all of them in time, with its exit code and a message
# that names the rank, and leaves a checkpoint that a run on one rank goes on from.
#   tests/distributed/failures.sh TAPESTRY [CASE...]     SLACK=3: times the seconds that each may take
set -uo pipefail
tapestry=$(realpath "$1"); shift
command -v mpirun >/dev/null || { echo "skipped: no mpirun" >&2; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
work=$(mktemp -d)
export OMPI_MCA_orte_tmpdir_base=$work  # two starts at once race for the folder that runs share
job=
trap '[ -z "$job" ] || kill -9 "$job" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1

words=(ba ce di fo gu ha je ki lo mu)
corpus() { for ((i = 0; i < $2; ++i)); do echo "${words[RANDOM % 10]} ${words[RANDOM % 10]} ${words[RANDOM % 10]}"; done >"$1"; }
RANDOM=1
corpus train.txt 200
corpus valid.txt 70
cat >run.yaml <<'YAML'
task: clm
data: {train: {text: train.txt}, valid: {text: valid.txt}, block_size: 16}
tokenizer: {vocab_size: 40}
model: {num_hidden_layers: 1, hidden_size: 16, intermediate_size: 32, num_attention_heads: 2}
output_dir: run
device: cpu
threads: 1
training: {batch_size: 128, gradient_accumulation_steps: 2, max_steps: 1000000, learning_rate: 1e-3, save_steps: 20,
           logging_steps: 1000, eval_steps: 0}
distributed: {timeout_seconds: 5}
YAML

start() {  # overrides; two ranks in the background
  rm -rf run err
  mpirun -np 2 --oversubscribe "$tapestry" train run.yaml "$@" 2>err & job=$!
  for ((i = 0; i < 300; ++i)); do [ -e run/last ] && return; sleep 0.1; done
  echo "no checkpoint:"; cat err; exit 1
}
# The process of a rank of the job.
rank() {
  for process in $(pgrep -P "$job"); do
    tr '\0' '\n' <"/proc/$process/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$process"
  done
}
failed=0
slack=${SLACK:-3}  # on a machine that does other things, too, everything takes longer
# Waits for the job: name of the case, its exit code, the most seconds, a pattern of the messages, how often "error:" may stand there.
expect() {
  local begin code=0 took
  begin=$(date +%s%N)
  wait "$job" || code=$?
  job=
  took=$((($(date +%s%N) - begin) / 1000000))
  local errors
  errors=$(grep -c '^error:' err)
  local verdict=ok
  [ "$code" -eq "$2" ] || verdict="expected code $2"
  [ "$took" -le $(($3 * slack * 1000)) ] || verdict="expected at most $3 s"
  grep -qE "$4" err || verdict="expected '$4'"
  [ -z "${5:-}" ] || [ "$errors" -le "$5" ] || verdict="expected $5 messages, got $errors"
  printf '%-34s code %3d  %5.1f s  %s\n' "$1" "$code" "$(awk "BEGIN { print $took / 1000 }")" "$verdict"
  [ "$verdict" = ok ] || { failed=1; grep -v '^\[' err | head -n 20; }
}
# The last checkpoint is whole.
goes_on() {
  "$tapestry" train run.yaml training.max_hours=1e-9 2>again || { echo "$1: no run goes on:"; cat again; failed=1; }
}
run() {  # in the foreground, for what fails at the start; the command of mpirun
  rm -rf run err
  timeout 60 mpirun --oversubscribe "$@" 2>err & job=$!
}
# Two ranks, the second of which sees another file in this one's place, as on another host.
with_other() {
  [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || { echo "$name skipped: it needs root"; return 1; }
  run -np 1 "$tapestry" train run.yaml data.cache=false : \
      -np 1 unshare -m bash -c "mount --bind other.txt $1 && exec '$tapestry' train run.yaml data.cache=false"
}

cases=("$@")
[ $# -gt 0 ] || cases=(killed stopped terminated user_signal mpirun_terminated diverged bad_config arguments binary one_rank_fails other_data other_order does_not_fit engine one_alone)
for name in "${cases[@]}"; do
  case $name in
    killed) start; kill -9 "$(rank 1)"; expect $name 137 3 'signal 9'; goes_on $name ;;
    stopped)
      start; victim=$(rank 1); kill -STOP "$victim"; expect $name 1 8 'rank 1 .*silent'; kill -9 "$victim" 2>/dev/null
      goes_on $name ;;
    terminated) start; kill -TERM "$(rank 1)"; expect $name 143 3 'stopped by SIGTERM after update' 0; goes_on $name ;;
    user_signal) start; kill -USR1 "$job"; expect $name 138 3 'stopped by SIGUSR1 after update' 0; goes_on $name ;;
    mpirun_terminated) start; kill -TERM "$job"; expect $name 1 4 ''; goes_on $name ;;
    diverged)
      run -np 2 "$tapestry" train run.yaml training.learning_rate=1e38 training.optimizer.name=sgd
      expect $name 4 4 'error: \[rank 0.*10 updates in a row' 1 ;;
    bad_config) run -np 2 "$tapestry" train run.yaml training.learning_rat=1; expect $name 2 3 "error: \[rank 0.*learning_rat" 1 ;;
    arguments)
      run -np 1 "$tapestry" train run.yaml : -np 1 "$tapestry" train run.yaml seed=2
      expect $name 2 3 'the command line .*rank 1, .*seed=2' 1 ;;
    binary)
      mkdir -p other; cp "$tapestry" other/tapestry; printf ' ' >>other/tapestry
      mkdir -p lib; cp -r "$(dirname "$tapestry")/../lib/tapestry" lib
      run -np 1 "$tapestry" train run.yaml : -np 1 other/tapestry train run.yaml
      expect $name 2 3 'the program of rank 0 .*rank 1' 1 ;;
    one_rank_fails)
      printf 'ba \xff\n' >other.txt; with_other valid.txt || continue
      expect $name 3 4 'error: \[rank 1.*valid.txt' 1 ;;
    other_data)
      head -n 150 train.txt >other.txt; with_other train.txt || continue
      expect $name 3 4 'the data of rank 0 .*rank 1' 1 ;;
    other_order)  # of the same lines
      tac train.txt >other.txt; with_other train.txt || continue
      expect $name 3 4 'the data of rank 0 .*rank 1' 1 ;;
    does_not_fit) run -np 3 "$tapestry" train run.yaml; expect $name 2 3 'cannot be shared by 3 ranks' 1 ;;
    engine) rm -rf run; "$tapestry" train run.yaml distributed.engine=mpi 2>err & job=$!; expect $name 2 2 'distributed.engine is mpi' 1 ;;
    one_alone)
      run -np 1 "$tapestry" train run.yaml : -np 1 "$tapestry" train run.yaml distributed.engine=none output_dir=alone
      expect $name 1 8 'have not found each other for 5 s' 1 ;;
    *) echo "no case $name"; exit 2 ;;
  esac
done
exit $failed
