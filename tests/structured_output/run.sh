#!/usr/bin/env bash
# The model in the box at temperature 2, served, asked for documents of many schemas; each that it finishes is
# checked by npm's ajv: 62 documents, or 1 000 under PELTON_FULL=1.
#
# usage: run.sh WORK_FOLDER PELTON MODEL ADVERSARIAL_FOLDER
#
# Exit code 77 (skipped): ajv cannot be fetched here; an error under PELTON_FULL=1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
pelton=$(realpath "$2")
model=$(realpath "$3")
adversarial=$(realpath "$4")
documents=62
[[ ${PELTON_FULL:-} == 1 ]] && documents=1000

mkdir -p "$work"
cp "$adversarial"/package.json "$adversarial"/package-lock.json "$adversarial"/.npmrc "$adversarial"/check.mjs "$work"/
cd "$work"
timeout 900 python3 "$here/ask.py" "$pelton" "$model" "$adversarial/schemas.json" "$documents" >documents.jsonl

if ! cmp -s package-lock.json installed.lock || ! [[ -x node_modules/.bin/node ]]; then
  rm -f installed.lock
  if ! timeout 300 npm ci --no-audit --no-fund --loglevel=error; then
    echo "structured_output: npm could not fetch ajv; documents were made, not checked" >&2
    [[ ${PELTON_FULL:-} == 1 ]] && exit 1
    exit 77
  fi
  cp package-lock.json installed.lock
fi
timeout 600 node_modules/.bin/node check.mjs "$adversarial/schemas.json" documents.jsonl
