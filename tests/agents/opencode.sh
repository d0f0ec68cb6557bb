#!/usr/bin/env bash
# opencode, unmodified, answers a question for which it has to read a file: two turns and a tool call
# on a server that answers by script.json.
#
# usage: opencode.sh WORK_FOLDER PELTON
#
# Only under PELTON_FULL=1; otherwise, or where it cannot be fetched without PELTON_FULL, exit code 77
# (skipped). Every step is bounded in time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
pelton=$(realpath "$2")
if [[ ${PELTON_FULL:-} != 1 ]]; then
  echo "opencode: only with PELTON_FULL=1" >&2
  exit 77
fi

mkdir -p "$work"
cp "$here"/package.json "$here"/package-lock.json "$here"/.npmrc "$work"/
cd "$work"
if ! { [[ -x node_modules/.bin/opencode ]] && cmp -s package-lock.json installed.lock; }; then
  rm -f installed.lock
  # Not "npm ci": it misses what is for other platforms in the lock file.
  timeout 500 npm install --no-save --no-audit --no-fund --loglevel=error
  cp package-lock.json installed.lock
fi

rm -rf tiny home project
timeout 60 "$pelton" synth --like "$here/../../testdata/golden/tiny/config.json" tiny >/dev/null
: >server.out  # exists before the server opens it
"$pelton" serve tiny --port 0 --executor "modelled:$here/script.json" >server.out 2>server.err &
server=$!
stop_server() {
  kill "$server" 2>/dev/null || true
  for _ in {1..100}; do
    kill -0 "$server" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -9 "$server" 2>/dev/null || true
}
trap stop_server EXIT
url=
for _ in {1..300}; do
  url=$(sed -n 's/^listening on //p' server.out)
  [[ -n $url ]] && curl -fs "$url/health" >/dev/null && break
  sleep 0.1
done
if [[ -z $url ]]; then
  cat server.err >&2
  exit 1
fi

mkdir -p home project
echo "the kettle is blue" >project/note.txt
cat >project/opencode.json <<CONFIG
{"autoupdate": false, "share": "disabled",
 "provider": {"pelton": {"npm": "@ai-sdk/openai-compatible", "name": "Pelton",
   "options": {"baseURL": "$url/v1", "apiKey": "none"},
   "models": {"tiny": {"name": "tiny", "tool_call": true, "reasoning": true,
                       "limit": {"context": 131072, "output": 2000}}}}},
 "model": "pelton/tiny", "small_model": "pelton/tiny"}
CONFIG
cd project
env -i PATH="$PATH" HOME="$work/home" XDG_CONFIG_HOME="$work/home/config" \
  XDG_DATA_HOME="$work/home/data" XDG_CACHE_HOME="$work/home/cache" \
  XDG_STATE_HOME="$work/home/state" OPENCODE_DISABLE_AUTOUPDATE=1 \
  OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1 \
  timeout 120 ../node_modules/.bin/opencode run --format json "What does note.txt say?" \
  </dev/null >../opencode.out
cd ..
for expected in '"tool":"read"' '"status":"completed"' '"reason":"tool-calls"' \
  'The note says that the kettle is blue.' '"reason":"stop"'; do
  if ! grep -qF -- "$expected" opencode.out; then
    echo "opencode: its output lacks $expected" >&2
    cat opencode.out >&2
    exit 1
  fi
done
# The second turn finds the first one's tokens.
if ! grep -qE '"cache":\{"write":0,"read":[0-9]{4,}' opencode.out; then
  echo "opencode: its second turn was computed anew" >&2
  exit 1
fi
