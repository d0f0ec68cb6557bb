#!/usr/bin/env bash
# Real clients against a server that answers by script.json, and against one of Qwen3's shape that says the same by
# script_qwen3.json: there one client, under PELTON_FULL=1 all of them.
#
# usage: run.sh WORK_FOLDER PELTON
#
# Installs the pinned clients and their node into WORK_FOLDER, makes a tiny model there, serves it,
# waits for its health, runs the tests, and ends the server. Every step is bounded in time. Exit code
# 77 (skipped): the clients cannot be fetched here; an error under PELTON_FULL=1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "$1")
pelton=$(realpath "$2")
export API_KEY=key-of-the-test

mkdir -p "$work"
cp "$here"/package.json "$here"/package-lock.json "$here"/.npmrc "$here"/*.mjs "$work"/
cd "$work"

installed() {
  [[ -x node_modules/.bin/node ]] && cmp -s package-lock.json installed.lock &&
    node_modules/.bin/node --version >/dev/null
}
if ! installed; then
  rm -f installed.lock
  if ! timeout 300 npm ci --no-audit --no-fund --loglevel=error; then
    echo "clients: npm could not fetch them" >&2
    [[ ${PELTON_FULL:-} == 1 ]] && exit 1
    exit 77
  fi
  cp package-lock.json installed.lock
fi

rm -rf tiny qwen3 batches batches_qwen3
: >server.out  # exists before the server opens it
for model in tiny qwen3; do
  timeout 60 "$pelton" synth --like "$here/../../testdata/golden/$model/config.json" "$model" >/dev/null
done

PELTON_API_KEY=$API_KEY "$pelton" serve tiny --port 0 --grpc-port 0 \
  --executor "modelled:$here/script.json" --batches "$work/batches" \
  >server.out 2>server.err &
server=$!
stop_server() {
  [[ -n $server ]] || return 0
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
  if ! kill -0 "$server" 2>/dev/null; then
    cat server.err >&2
    exit 1
  fi
  sleep 0.1
done
if [[ -z $url ]]; then
  echo "clients: the server did not begin to listen" >&2
  exit 1
fi

grpc=$(sed -n 's/^gRPC on //p' server.out)
all_clients=({openai,anthropic,ai,grpc,responses,langchain,instructor}_client.test.mjs)
BASE_URL=$url/v1 MODEL=tiny GRPC_ADDRESS=$grpc PROTO=$here/../../proto timeout 300 \
  node_modules/.bin/node --test --test-timeout=120000 "${all_clients[@]}" \
  {batches,ollama,huggingface}_client.test.mjs

# What is heavy (coding agents are 400 MB, the other clients 250) is fetched by ./test --full only. Each
# folder is a package of its own.
fetch() { # FOLDER
  local folder=$1
  mkdir -p "$folder"
  cp "$here/$folder"/{package.json,package-lock.json,.npmrc} "$here/$folder"/*.mjs "$folder"/
  if ! cmp -s "$folder/package-lock.json" "$folder/installed.lock"; then
    (cd "$folder" && timeout 400 npm ci --no-audit --no-fund --loglevel=error)
    cp "$folder/package-lock.json" "$folder/installed.lock"
  fi
}
fetch_and_run() { # FOLDER URL MODEL
  fetch "$1"
  BASE_URL=$2/v1 MODEL=$3 timeout 200 \
    node_modules/.bin/node --test --test-timeout=120000 "$1"/*.test.mjs
}
if [[ ${PELTON_FULL:-} == 1 ]]; then
  fetch_and_run agents "$url" tiny
  fetch_and_run more "$url" tiny
  fetch_and_run proxies "$url" tiny
fi

# Another server beside the first; its address once it listens, of either kind, is in $1.out.
tools=
gateway=
end_others() {
  # shellcheck disable=SC2086 # one, both or none
  kill $tools $gateway 2>/dev/null || true
  tools=
  gateway=
}
end_all() {
  end_others
  stop_server
  server=$plain_server
  stop_server
}
serve_beside() {
  local name=$1
  shift
  : >"$name.out"
  PELTON_API_KEY=$API_KEY "$pelton" serve "$@" --port 0 >"$name.out" 2>"$name.err" &
  plain_server=$server
  server=$!
  trap end_all EXIT
  for _ in {1..300}; do
    grep -q '^listening on ' "$name.out" && break
    sleep 0.1
  done
}
end_beside() {
  stop_server
  server=$plain_server
  plain_server=
  trap end_all EXIT
}

# The same said by a model of another family: reasoning and calls in Qwen3's spelling.
serve_beside qwen3 qwen3 --grpc-port 0 --executor "modelled:$here/script_qwen3.json" --batches "$work/batches_qwen3"
qwen3_clients=(openai_client.test.mjs)
[[ ${PELTON_FULL:-} == 1 ]] && qwen3_clients=("${all_clients[@]}" {batches,ollama,huggingface}_client.test.mjs)
qwen3_url=$(sed -n 's/^listening on //p' qwen3.out)
BASE_URL=$qwen3_url/v1 MODEL=qwen3 PROTO=$here/../../proto \
  GRPC_ADDRESS=$(sed -n 's/^gRPC on //p' qwen3.out) timeout 300 \
  node_modules/.bin/node --test --test-timeout=120000 "${qwen3_clients[@]}"
if [[ ${PELTON_FULL:-} == 1 ]]; then
  fetch_and_run agents "$qwen3_url" qwen3
  fetch_and_run more "$qwen3_url" qwen3
fi
end_beside

# A model that speaks, of random weights.
rm -rf orpheus
python3 "$here/../speech_model.py" orpheus
serve_beside orpheus orpheus --speech-decoder "$here/../../testdata/golden/audio/snac" --kv-cache-memory 64MiB
BASE_URL=$(sed -n 's/^listening on //p' orpheus.out)/v1 MODEL=orpheus timeout 200 \
  node_modules/.bin/node --test --test-timeout=120000 speech_client.test.mjs
end_beside

# A model that hears, likewise.
rm -rf whisper
python3 "$here/../whisper_model.py" whisper
serve_beside whisper whisper
BASE_URL=$(sed -n 's/^listening on //p' whisper.out)/v1 MODEL=whisper \
  AUDIO=$here/../../testdata/golden/audio/whisper/audio.wav timeout 200 \
  node_modules/.bin/node --test --test-timeout=120000 transcription_client.test.mjs
end_beside

# A gateway before workers at these ports: its process is $gateway, its addresses are $gateway_url and $gateway_grpc.
free_port() { python3 -c "import sys; sys.path.insert(0, '$here/..'); import ports; print(ports.free_port())"; }
gateway_before() { # PORT...
  echo "$API_KEY tester" >keys
  cat >gateway.toml <<EOF
[gateway]
listen = "127.0.0.1:0"
grpc_listen = "127.0.0.1:0"
fleet_key_file = "fleet.key"
keys_file = "keys"

[[pool]]
name = "tiny"
model = "tiny"
tokenizer = "tiny"
EOF
  local port
  for port in "$@"; do
    printf '\n[[worker]]\npool = "tiny"\nurl = "http://127.0.0.1:%s"\n' "$port" >>gateway.toml
  done
  : >gateway.out
  "$pelton" gateway --config gateway.toml >gateway.out 2>gateway.err &
  gateway=$!
  for _ in {1..300}; do
    gateway_url=$(sed -n 's/^listening on //p' gateway.out)
    [[ -n $gateway_url ]] && curl -fs "$gateway_url/ready" >/dev/null && break
    sleep 0.1
  done
  gateway_grpc=$(sed -n 's/^grpc on //p' gateway.out)
}
rm -f fleet.key
"$pelton" gateway --new-key fleet.key

# The same through a gateway before two workers. Left out: a model that is called by its server's URL, which a
# gateway does not know, and a socket's response.cancel, which it answers in its own way (docs/gateway.md).
if [[ ${PELTON_FULL:-} == 1 ]]; then
  port=$(free_port)
  serve_beside fleet tiny --replicas 2 --fleet-port "$port" --fleet-key-file fleet.key --executor "modelled:$here/script.json"
  gateway_before "$port" "$((port + 1))"
  BASE_URL=$gateway_url/v1 MODEL=tiny PROTO=$here/../../proto GRPC_ADDRESS=$gateway_grpc timeout 300 \
    node_modules/.bin/node --test --test-timeout=120000 --test-skip-pattern='B8: the model may be called|ResponsesWS: several turns' \
    "${all_clients[@]}"
  end_others
  end_beside
fi

# A LoRA adapter by its name: the model in the box has one.
box=$here/../../models/pelton-box
serve_beside lora "$box" --served-model-name box --enable-lora --lora-modules "query=$box/query"
BASE_URL=$(sed -n 's/^listening on //p' lora.out)/v1 timeout 200 \
  node_modules/.bin/node --test --test-timeout=120000 lora_client.test.mjs
end_beside

# Tools that the server runs for the model, on a server of the protocol's own packages.
: >tools.out
node_modules/.bin/node tool_server.mjs >tools.out 2>tools.err &
tools=$!
for _ in {1..300}; do
  tools_url=$(head -1 tools.out)
  [[ -n $tools_url ]] && break
  sleep 0.1
done
serve_beside tooled tiny --executor "modelled:$here/script_tools.json" --tool-server "python=$tools_url" "browser=$tools_url"
BASE_URL=$(sed -n 's/^listening on //p' tooled.out)/v1 MODEL=tiny TOOLS_URL=$tools_url timeout 200 \
  node_modules/.bin/node --test --test-timeout=120000 tools_client.test.mjs
end_beside
# Through a gateway.
if [[ ${PELTON_FULL:-} == 1 ]]; then
  port=$(free_port)
  serve_beside tooled_fleet tiny --fleet-port "$port" --fleet-key-file fleet.key --executor "modelled:$here/script_tools.json" \
    --tool-server "python=$tools_url" "browser=$tools_url"
  gateway_before "$port"
  BASE_URL=$gateway_url/v1 MODEL=tiny TOOLS_URL=$tools_url timeout 200 \
    node_modules/.bin/node --test --test-timeout=120000 tools_client.test.mjs
  end_others
  end_beside
fi
# And the same over standard input and output.
run_tools() { # TOOL_SERVER
  serve_beside stdio tiny --executor "modelled:$here/script_tools.json" --tool-server "python=$1" "browser=$1"
  BASE_URL=$(sed -n 's/^listening on //p' stdio.out)/v1 MODEL=tiny timeout 200 \
    node_modules/.bin/node --test --test-timeout=120000 tools_client.test.mjs
  end_beside
}
run_tools "stdio:$PWD/node_modules/.bin/node $PWD/tool_server.mjs stdio"
# And by the protocol's first package, either way.
if [[ ${PELTON_FULL:-} == 1 ]]; then
  fetch sdk_tools
  run_tools "stdio:$PWD/node_modules/.bin/node $PWD/sdk_tools/tool_server.mjs stdio"
  : >tools.out
  node_modules/.bin/node sdk_tools/tool_server.mjs >tools.out 2>tools.err &
  tools=$!
    for _ in {1..300}; do
    [[ -s tools.out ]] && break
    sleep 0.1
  done
  run_tools "$(head -1 tools.out)"
  end_others
fi

# The same over https, with a certificate of the moment: node believes it because it is told to.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout tls.key -out tls.pem 2>/dev/null
serve_beside tls tiny --tls-cert tls.pem --tls-key tls.key --executor "modelled:$here/script.json"
tls_url=$(sed -n 's/^listening on //p' tls.out)
tls_url=${tls_url/127.0.0.1/localhost}
tls_clients=(responses_client.test.mjs)
[[ ${PELTON_FULL:-} == 1 ]] && tls_clients+=(openai_client.test.mjs)
BASE_URL=$tls_url/v1 MODEL=tiny NODE_EXTRA_CA_CERTS=$work/tls.pem timeout 200 \
  node_modules/.bin/node --test --test-timeout=120000 "${tls_clients[@]}"
end_beside

# And it ends as it should.
kill "$server"
status=0
wait "$server" || status=$?
trap - EXIT
if [[ $status -ne 0 ]]; then
  echo "clients: the server ended with exit code $status" >&2
  cat server.err >&2
  exit 1
fi
