#!/usr/bin/env bash
# Writes the sources of a training corpus with translations in some of them, so that a model learns to take what
# stands there (translate --terms-mode soft; Dinu et al. 2019):
#   a dog <term> barks <means> bellt </term> loudly
# Usage: annotate-terms.sh SOURCE TARGET LINKS [SHARE] [SEED] > ANNOTATED
# LINKS: a line of word links "0-0 1-2" for each pair, as fast_align, eflomal or translate --alignments write them.
# SHARE: of the lines, 0.3 if it is not given. A line has one phrase of at most three source and four target words.
# Learn from these lines with the tokenizer.user_symbols <term>, <means> and </term>; lines without a phrase stay.
set -euo pipefail
[ $# -ge 3 ] && [ $# -le 5 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
share=${4:-0.3} seed=${5:-1}
awk -v s="$share" 'BEGIN { exit !(s ~ /^[0-9.]+$/ && s > 0 && s <= 1) }' ||
  { echo "annotate-terms.sh: SHARE must be above 0 and at most 1, got '$share'." >&2; exit 2; }
[[ $seed =~ ^[0-9]+$ ]] || { echo "annotate-terms.sh: SEED must be a whole number, got '$seed'." >&2; exit 2; }

text() {  # of a file that may be compressed
  case $1 in
    *.gz) gzip -dc -- "$1" ;;
    *.xz) xz -dc -- "$1" ;;
    *.bz2) bzip2 -dc -- "$1" ;;
    *.zst) zstd -dcq -- "$1" ;;
    *) cat -- "$1" ;;
  esac
}
for file in "$1" "$2" "$3"; do
  [ -r "$file" ] || { echo "annotate-terms.sh: cannot read $file." >&2; exit 1; }
done

awk -v targets=<(text "$2") -v links=<(text "$3") -v share="$share" -v seed="$seed" -v name="$2" -v links_name="$3" '
  function stop(message) { print "annotate-terms.sh: " message > "/dev/stderr"; failed = 1; exit 1 }
  BEGIN { srand(seed) }
  {
    line = $0
    if ((getline target < targets) <= 0) stop(name " ends before line " NR " of the source.")
    if ((getline pairs < links) <= 0) stop(links_name " ends before line " NR " of the source.")
    draw = rand(); place = rand(); length_drawn = rand()
    n = split(line, s, " "); m = split(target, t, " "); p = split(pairs, link, " ")
    for (i = 1; i <= p; ++i) {
      if (link[i] !~ /^[0-9]+-[0-9]+$/) stop(links_name ":" NR ": expected links as in 0-0 1-2, got \"" link[i] "\".")
      split(link[i], ends, "-"); from[i] = ends[1] + 1; to[i] = ends[2] + 1
      if (from[i] > n || to[i] > m)
        stop(links_name ":" NR ": " link[i] " is outside of the " n " and " m " words of the line.")
    }
    if (draw >= share || n == 0) { print line; next }
    first = 1 + int(place * n); last = first + int(length_drawn * 3); if (last > n) last = n
    low = m + 1; high = 0
    for (i = 1; i <= p; ++i) if (from[i] >= first && from[i] <= last) {
      if (to[i] < low) low = to[i]
      if (to[i] > high) high = to[i]
    }
    whole = high > 0 && high - low < 4
    for (i = 1; i <= p; ++i)  # the target words have no link to other source words
      if (to[i] >= low && to[i] <= high && (from[i] < first || from[i] > last)) whole = 0
    if (!whole) { print line; next }
    text = ""
    for (i = 1; i <= n; ++i) {
      text = text (i > 1 ? " " : "") (i == first ? "<term> " : "") s[i]
      if (i == last) { text = text " <means>"; for (k = low; k <= high; ++k) text = text " " t[k]; text = text " </term>" }
    }
    print text
  }
  END {
    if (failed) exit 1
    if ((getline target < targets) > 0) stop(name " has more lines than the source, which has " NR ".")
    if ((getline pairs < links) > 0) stop(links_name " has more lines than the source, which has " NR ".")
  }' < <(text "$1")
