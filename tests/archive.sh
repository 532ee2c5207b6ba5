#!/usr/bin/env bash
# The archive of cmake/archive.sh in clean roots with nothing but their base packages: version, gradient checks, a
# training and an answer, as a user who is not root. Needs root and debootstrap.
#   tests/archive.sh [SUITE MIRROR [DEBOOTSTRAP_OPTION]...]
#   tests/archive.sh jammy https://archive.ubuntu.com/ubuntu --no-check-gpg     without Ubuntu's keys, as on Debian
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "skipped: root or debootstrap is missing" >&2
  exit 77
fi
suite=${1:-$(. /etc/os-release && echo "$VERSION_CODENAME")} mirror=${2:-http://deb.debian.org/debian}
options=("${@:3}")
cmake --preset release
cmake --build --preset release --target tapestry
root=$(mktemp -d)
chmod 755 "$root"
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
rm -rf build/archive
cmake/archive.sh
debootstrap --variant=minbase "${options[@]}" "$suite" "$root" "$mirror" >"$root.log" || { tail "$root.log"; exit 1; }
rm "$root.log"
mount -t proc proc "$root/proc"  # by which the loader of programs finds the folder of one
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/home/user "$@"; }
inside useradd --create-home user
tar -C "$root/home/user" -xzf build/archive/tapestry-*.tar.gz
cp .github/CONTRIBUTING.md "$root/home/user/text.md"
as_user() { inside su user -c "cd && PATH=\$PATH:\$(echo ~/tapestry-*/bin) && $*"; }
as_user '. /etc/os-release && echo "$PRETTY_NAME" && ! ls /usr/lib/*/libopenblas* 2>/dev/null && tapestry --version'
# OpenBLAS has its kernels for all processors.
[ "$(uname -m)" != x86_64 ] || as_user 'OPENBLAS_CORETYPE=Haswell tapestry --version | grep -q "core Haswell"'
as_user 'tapestry gradcheck --filter attention | tail -n 1'
as_user 'tapestry train ~/tapestry-*/share/tapestry/configs/shakespeare_char.yaml data.train.text=text.md \
  data.valid.text=text.md output_dir=run training.max_steps=20 training.save_steps=20 training.eval_steps=20'
as_user 'echo "The " | tapestry generate --model run --max-new-tokens 40 --weights int8'
as_user 'ls ~/tapestry-*/share/man/man1/tapestry-train.1 ~/tapestry-*/share/bash-completion/completions/tapestry'
