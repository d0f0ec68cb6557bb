#!/usr/bin/env bash
# ./test --full: the tokenizer against two others. usage: run.sh [PELTON] [SEED]
set -euo pipefail
cd "$(dirname "$0")"
[[ -d node_modules/tiktoken ]] || npm ci --no-audit --no-fund --silent
node parity.mjs "$@"
