#!/usr/bin/env bash
# One of the scripts beside this one, over a small run of every task, one after the other.
#   tests/every_task.sh BUILD_FOLDER kill_resume|faults [section.key=value ...]     TASKS="clm mlm" (some of them)
set -uo pipefail
here=$(dirname "$(realpath "$0")")
build=$(realpath "$1") script=$2; shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/tests/tiny_tasks" "$work/tasks" || exit 1
cd "$work/tasks" || exit 1
failed=0
for config in *.yaml; do
  task=${config%.yaml}
  [ -z "${TASKS:-}" ] || [[ " $TASKS " = *" $task "* ]] || continue
  echo "== $task"
  "$here/$script.sh" "$build/apps/tapestry" "$config" "$@" || { echo "FAILED: $task"; failed=$((failed + 1)); }
done
echo "$failed tasks failed"
[ $failed = 0 ]
