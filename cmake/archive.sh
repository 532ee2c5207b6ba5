#!/usr/bin/env bash
# An archive that needs no packages: the program of build/release, the shared libraries that it uses, its configs,
# manual pages and completions. Of the system it needs the C library (glibc 2.34 or later) and the C++ library of GCC
# 12 or later, as Debian 12 and Ubuntu 22.04 have them: Debian's own C++ library asks for glibc 2.36, and stays out.
#   cmake/archive.sh [FOLDER]     build/archive: tapestry-VERSION-linux-ARCHITECTURE.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/release/apps/tapestry
[ -x "$program" ] || { echo "$0: $program is not there; build it first" >&2; exit 1; }
cmake/install-packages.sh archive
out=$(realpath -m "${1:-build/archive}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=tapestry-$("$program" --version | sed -n 's/^tapestry //p')-linux-$(uname -m)
tree=$work/$name
cmake --install build/release --component runtime --prefix "$tree" --strip >/dev/null

# All that the program and OpenBLAS are linked with; OpenBLAS is opened when it is needed.
openblas=$(ldconfig -p | sed -n 's/.*libopenblas\.so\.0 .*=> //p' | head -n 1)
system='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so'
of_package() { dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null || dpkg -S "/usr$1"; }
mkdir -p "$tree/lib"
{ echo "$openblas"; ldd "$program" "$openblas" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p'; } | sort -u |
while read -r library; do
  soname=$(basename "$library")
  if grep -qE "$system" <<<"$soname"; then continue; fi
  cp -L "$library" "$tree/lib/$soname"
  chmod 644 "$tree/lib/$soname"
  patchelf --set-rpath "\$ORIGIN" "$tree/lib/$soname"
  package=$(of_package "$(readlink -f "$library")" | head -n 1 | cut -d: -f1)
  mkdir -p "$tree/share/doc/tapestry/$package"
  cp -L "/usr/share/doc/$package/copyright" "$tree/share/doc/tapestry/$package"
done
patchelf --set-rpath "\$ORIGIN/../lib" "$tree/bin/tapestry"

# What it asks of the system, from the names of the functions that it uses.
newest() {  # the newest version of a name
  find "$tree/bin" "$tree/lib" -type f -exec objdump -T {} + | grep -oE "\($1_[0-9.]+\)" | tr -d '()' |
    sort -uV | tail -n 1
}
for limit in GLIBC_2.35 GLIBCXX_3.4.30 CXXABI_1.3.13; do
  needed=$(newest "${limit%_*}")
  echo "needs $needed"
  [ "$(printf '%s\n' "$needed" "$limit" | sort -V | tail -n 1)" = "$limit" ] ||
    { echo "$0: expected at most $limit, which Ubuntu 22.04 has" >&2; exit 1; }
done

mkdir -p "$out"
date=$(git log -1 --format=%ct 2>/dev/null || date +%s)
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$date" -c "$name" |
  gzip -n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz: $(du -h "$out/$name.tar.gz" | cut -f1)B, unpacked $(du -sh "$tree" | cut -f1)B"
