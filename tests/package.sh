#!/usr/bin/env bash
# The Debian packages in a clean root: makes them of build/release, lets apt install them there, and trains and
# translates as a user who is not root. Needs root, debootstrap and Debian's packages.
#   tests/package.sh [UPDATES|whole]     20: updates of the quickstart's config; whole: the quickstart itself
set -euo pipefail
cd "$(dirname "$0")/.."
updates=${1:-20}
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "skipped: root or debootstrap is missing" >&2
  exit 77
fi
cmake --preset release
cmake --build --preset release --target tapestry tapestry_mpi
rm -rf build/packages
cpack --config build/release/CPackConfig.cmake -B build/packages
root=$(mktemp -d)
chmod 755 "$root"
trap 'rm -rf --one-file-system "$root"' EXIT
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
debootstrap --variant=minbase "$suite" "$root" >"$root.log" || { tail "$root.log"; exit 1; }
rm "$root.log"
cp build/packages/*.deb "$root/tmp"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
begin=$SECONDS
inside sh -c 'apt-get install -q -y --no-install-recommends /tmp/tapestry_*.deb trans-de-en'
echo "Installed after $((SECONDS - begin)) s."
inside useradd --create-home user
as_user() { inside su user -c "cd && $*"; }
as_user 'tapestry --version && ls /usr/share/man/man1/tapestry-train.1 /usr/share/bash-completion/completions/tapestry'
if [ "$updates" = whole ]; then
  as_user /usr/share/tapestry/quickstart.sh
else
  as_user "tapestry train /usr/share/tapestry/configs/ding_de_en.yaml training.max_steps=$updates"
  as_user 'echo Guten Morgen! | tapestry translate --model runs/ding_de_en'
fi
echo "The first answer came after $((SECONDS - begin)) s."
# The others fit beside it, and all of them go without a trace.
inside sh -c 'apt-get install -q -y --no-install-recommends /tmp/tapestry-mpi_*.deb openmpi-bin'
inside sh -c 'apt-get purge -q -y tapestry tapestry-mpi && ! ls -d /usr/share/tapestry /usr/lib/*/tapestry /usr/bin/tapestry 2>/dev/null'
