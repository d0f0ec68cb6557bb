#!/usr/bin/env bash
# The web console in a headless Chromium, against a server of scripted answers.
#
# usage: run.sh WORK_FOLDER PELTON smoke|hostile|pictures
#        run.sh WORK_FOLDER PELTON heap MINUTES
#
# Installs the pinned npm packages into WORK_FOLDER. PICTURES=FOLDER keeps pictures of each page. Exit code 77
# (skipped): there is no Chromium, or npm cannot fetch; an error under PELTON_FULL=1. smoke: every page once, and under PELTON_FULL=1 or with PICTURES all of the tests; pictures: those of docs/pictures, into DOCS_PICTURES; hostile: a model's output as the attacker, under
# PELTON_FULL=1 only; heap: whether pages of a gateway under requests, open for so long, grow (heap.mjs).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
pelton=$(realpath "$2")
what=$3
export API_KEY=key-of-the-test

skip() {
  echo "console: $1" >&2
  [[ ${PELTON_FULL:-} == 1 ]] && exit 1
  exit 77
}
CHROMIUM=$(command -v chromium || true)
export CHROMIUM
[[ -n $CHROMIUM ]] || skip "Chromium is not installed (tools/install_packages --full)"
command -v npm >/dev/null || skip "npm is not installed"

[[ $what == hostile && ${PELTON_FULL:-} != 1 ]] && skip "hostile outputs are shown under PELTON_FULL=1"

mkdir -p "$work"
cp "$here"/{package.json,package-lock.json,.npmrc,tsconfig.json,script.json} "$here"/*.mjs "$work"/
# Of a folder where we are.
if [[ -n ${DOCS_PICTURES:-} ]]; then DOCS_PICTURES=$(realpath -m "$DOCS_PICTURES") && export DOCS_PICTURES; fi
cd "$work"
if ! cmp -s package-lock.json installed.lock; then
  timeout 300 npm ci --no-audit --no-fund --loglevel=error || skip "npm could not fetch the packages"
  cp package-lock.json installed.lock
fi

ln -sfn "$here/../../console" console
node_modules/.bin/tsc -p tsconfig.json

rm -rf one two
for model in one two; do
  timeout 60 "$pelton" synth --like "$here/../../testdata/golden/tiny/config.json" "$model" >/dev/null
  printf '# A model of the test\n\nIts card, with a [link](https://example.org).\n' >"$model/README.md"
done
: >server.out # exists before the server opens it
PELTON_API_KEY=$API_KEY "$pelton" serve one two --port 0 --admin-port 0 --executor "modelled:$here/script.json" >server.out 2>server.err &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
for _ in {1..300}; do
  grep -q '^admin on ' server.out && break
  if ! kill -0 "$server" 2>/dev/null; then
    cat server.err >&2
    exit 1
  fi
  sleep 0.1
done
BASE_URL=$(sed -n 's/^listening on //p' server.out)
ADMIN_URL=$(sed -n 's/^admin on //p' server.out)
PELTON=$pelton
export BASE_URL ADMIN_URL PELTON

if [[ $what == heap ]]; then
  cat >heap.toml <<END
[gateway]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"

[[pool]]
name = "one"
model = "one"

[pool.scale]
min = 1
max = 1

[pool.launch]
serve = ["$work/one", "--executor", "modelled:$here/script.json"]
start_seconds = 1
END
  : >gateway.out
  "$pelton" gateway --config heap.toml --with-autoscaler >gateway.out 2>gateway.err &
  gateway=$!
  trap 'kill "$server" "$gateway" "${load:-}" 2>/dev/null || true; wait "$server" "$gateway" 2>/dev/null || true' EXIT
  until grep -q '^admin on ' gateway.out; do
    kill -0 "$gateway"
    sleep 0.1
  done
  url=$(sed -n 's/^listening on //p' gateway.out)
  admin=$(sed -n 's/^admin on //p' gateway.out)
  while sleep 0.2; do
    curl -s -o answer --json '{"model":"one","messages":[{"role":"user","content":"Hello"}],"max_tokens":8}' "$url/v1/chat/completions" || true
  done &
  load=$!
  node heap.mjs "$4" "$admin/console#fleet" "$admin/console#scaling" "$admin/console#requests" "$admin/console#health"
  exit
fi

tests=(chat.test.mjs chains.test.mjs live.test.mjs fleet.test.mjs planned.test.mjs small.test.mjs)
[[ ${PELTON_FULL:-} == 1 || -n ${PICTURES:-} ]] && tests+=(operate.test.mjs admin_keys.test.mjs pages.test.mjs)
[[ $what == hostile ]] && tests=(hostile.test.mjs)
[[ $what == pictures ]] && tests=(pictures.test.mjs)
timeout 2300 node --test --test-concurrency=1 --test-timeout=2200000 "${tests[@]}"
