#!/usr/bin/env bash
# Runs the steps of apps/Dockerfile where there is no engine: each stage in a root of its own by debootstrap, then
# the program as the image's user. Needs root, debootstrap and Debian's packages, and compiles everything.
#   tests/dockerfile.sh [PACKAGES]     PACKAGES: a folder of .deb files in place of the first stage
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "skipped: root or debootstrap is missing" >&2
  exit 77
fi
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf --one-file-system "$work"' EXIT
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")

stage="" folder=/ user=root
inside() {  # command line
  chroot "$work/$stage" /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive \
    setpriv --reuid "$user" --regid "$user" --init-groups sh -c "cd $folder && $1"
}
given() { [ "$stage" = build ] && [ -n "$packages" ]; }
packages=${1:-}
steps=$(sed -e '/^ *#/d' -e '/^ *$/d' apps/Dockerfile | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta')
while read -r step rest; do
  case $step in
    FROM)
      [[ $rest == debian:"$suite"-slim* ]] || { echo "FROM $rest: only debian:$suite-slim is known" >&2; exit 1; }
      stage=${rest##* AS } folder=/ user=root
      [ "$stage" != "$rest" ] || stage=result
      debootstrap --variant=minbase "$suite" "$work/$stage" >"$work/log" || { tail "$work/log"; exit 1; }
      if given; then mkdir "$work/$stage/packages" && cp "$packages"/*.deb "$work/$stage/packages"; fi ;;
    COPY)
      read -r from to <<<"$rest"
      if [[ $from == --from=* ]]; then
        read -r files to <<<"$to"
        cp "$work/${from#--from=}"$files "$work/$stage$to"
      else
        git ls-files -z | tar --null --ignore-failed-read -T - -c | tar -x -C "$work/$stage$folder"
      fi ;;
    RUN) echo "== $stage: $rest"; given || inside "$rest" ;;
    WORKDIR) folder=$rest; mkdir -p "$work/$stage$folder" ;;
    USER) user=$rest ;;
    ENTRYPOINT | CMD) declare "${step,,}=$(tr -d '[]",' <<<"$rest")" ;;
    *) echo "step $step is not known" >&2; exit 1 ;;
  esac
done <<<"$steps"
inside "$entrypoint --version && $entrypoint $cmd >/dev/null && [ \"\$(id -un)\" = $user ]"
inside "! command -v g++ && ! command -v cmake"
