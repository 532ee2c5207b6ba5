#!/usr/bin/env bash
# From a fresh Debian machine to German sentences in English: installs what is missing, builds unless a
# tapestry is installed, trains on the phrases of the Ding dictionary for about five minutes, and translates.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dictionary=/usr/share/trans/de-en
if [ -d "$here/configs" ]; then  # installed: the run's folder is made where you stand
  configs=$here/configs
  [ -e $dictionary ] || { echo "The dictionary is missing: apt-get install trans-de-en" >&2; exit 1; }
else
  cd "$here/.."
  configs=configs
fi
if tapestry=$(command -v tapestry); then
  echo "Using $tapestry: $("$tapestry" --version | head -n 1)"
  [ -e $dictionary ] || cmake/install-packages.sh dictionary
else
  cmake/install-packages.sh quickstart
  cmake --preset release -DBUILD_TESTING=OFF
  cmake --build --preset release --target tapestry
  tapestry=build/release/apps/tapestry
fi

# A second start finds the run finished and goes straight to translating.
"$tapestry" train "$configs/ding_de_en.yaml"

echo
echo "Held-out phrases in runs/ding_de_en/metrics.jsonl:"
grep '"kind":"valid"' runs/ding_de_en/metrics.jsonl | tail -n 1
echo
sentences='Guten Morgen!
ein kleines Haus am See
Er liest ein gutes Buch.
die neue Regierung
Ich habe keine Zeit.
Wie geht es Ihnen?'
paste -d '\t' <(echo "$sentences") <(echo "$sentences" | "$tapestry" translate --model runs/ding_de_en) |
  sed 's/\t/  ->  /'
echo
echo "The run as a picture, for a browser: $PWD/runs/ding_de_en/report.html"
