#!/usr/bin/env bash
# Documents of an adversarial model, each checked by npm's ajv: 200, or 10 000 under PELTON_FULL=1.
#
# usage: run.sh WORK_FOLDER GENERATE TOKENIZER
#
# The documents are generated in any case. Exit code 77 (skipped): ajv cannot be fetched here; an
# error under PELTON_FULL=1. PELTON_SEED repeats a run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
generate=$(realpath "$2")
tokenizer=$(realpath "$3")
documents=200
[[ ${PELTON_FULL:-} == 1 ]] && documents=10000

mkdir -p "$work"
cp "$here"/package.json "$here"/package-lock.json "$here"/.npmrc "$here"/check.mjs "$work"/
cd "$work"

timeout 1500 "$generate" "$tokenizer" "$here/schemas.json" "$documents" \
  "${PELTON_SEED:-$(date +%s)}" >documents.jsonl

installed() {
  [[ -x node_modules/.bin/node ]] && cmp -s package-lock.json installed.lock &&
    node_modules/.bin/node --version >/dev/null
}
if ! installed; then
  rm -f installed.lock
  if ! timeout 300 npm ci --no-audit --no-fund --loglevel=error; then
    echo "grammar_adversarial: npm could not fetch ajv; documents were generated, not checked" >&2
    [[ ${PELTON_FULL:-} == 1 ]] && exit 1
    exit 77
  fi
  cp package-lock.json installed.lock
fi
timeout 600 node_modules/.bin/node check.mjs "$here/schemas.json" documents.jsonl
