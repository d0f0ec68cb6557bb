#!/usr/bin/env bash
# ./run --once: a model, a server, one question, an answer, and a clean end. Uses the binary it is given
# (PELTON_BINARY), so that nothing is built in here.
#
# usage: run_once_test.sh BINARY
set -euo pipefail
PELTON_BINARY=$(realpath "$1")
cd "$(dirname "$0")/.."
export PELTON_BINARY

out=$(mktemp)
trap 'rm -f "$out" "$out.err"' EXIT
PELTON_PORT=18100 timeout 240 ./run --once >"$out" 2>"$out.err" || {
  echo "./run --once failed with $?" >&2
  cat "$out" "$out.err" >&2
  exit 1
}
if grep -q 'http://' "$out.err"; then
  echo "an address of a server that ends with the answer:" >&2
  cat "$out.err" >&2
  exit 1
fi
# "(67 tokens in, 32 tokens out, finish_reason length)": something was asked, something came back.
grep -qE '\([1-9][0-9]* tokens in, [1-9][0-9]* tokens out, finish_reason (stop|length|tool_calls)\)' \
  "$out.err" || {
  echo "no answer:" >&2
  cat "$out" "$out.err" >&2
  exit 1
}
port=$(sed -n 's/^Port [0-9]* is taken; trying \([0-9]*\)$/\1/p' "$out.err" | tail -n 1)
url=http://127.0.0.1:${port:-18100}
if curl -s -m 2 "$url/health" >/dev/null 2>&1; then
  echo "the server outlived ./run --once" >&2
  exit 1
fi
