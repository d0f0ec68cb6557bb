#!/usr/bin/env bash
# The Debian package: lintian finds no error, and in a bare Debian 12 it installs with what Debian has, its unit's
# command serves, answers a chat, reloads and drains, and it leaves nothing behind.
#
# usage: package_test.sh BUILD_FOLDER WORK_FOLDER
#
# Exit code 77 (skipped) unless PELTON_FULL=1, root, debootstrap and lintian are there. PELTON_BARE_DEBIAN=FOLDER is a
# debootstrapped tree to copy instead of making one.
set -euo pipefail
build=$(realpath "$1")
work=$(realpath -m "$2")
here=$(cd "$(dirname "$0")" && pwd)

if [[ ${PELTON_FULL:-} != 1 ]]; then
  echo "package: only in ./test --full" >&2
  exit 77
fi
for command in debootstrap lintian cpack; do
  if [[ $(id -u) -ne 0 ]] || ! command -v "$command" >/dev/null; then
    echo "package: needs root and $command" >&2
    exit 77
  fi
done

root=$work/debian
end() {
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
}
trap end EXIT
end
rm -rf "$work"
mkdir -p "$work"

# ---- what Debian thinks of it
(cd "$work" && cpack --config "$build/CPackConfig.cmake" -B "$work/cpack" >cpack.log 2>&1) || {
  cat "$work/cpack.log" >&2
  exit 1
}
package=$(echo "$work"/cpack/*.deb)
mv "$package" "$work/"
package=$work/$(basename "$package")
lintian --fail-on error "$package"
depends=$(dpkg-deb -f "$package" Depends)
for name in libc6 libssl3 libgrpc++1.51 adduser; do
  [[ $depends == *"$name"* ]] || {
    echo "package: does not depend on $name: $depends" >&2
    exit 1
  }
done
if command -v systemd-analyze >/dev/null; then
  for unit in "$here"/../packaging/*.service; do
    systemd-analyze security --offline=true --threshold=25 "$unit" >/dev/null
  done
fi

# ---- a bare Debian
if [[ -n ${PELTON_BARE_DEBIAN:-} ]]; then
  cp -a "$PELTON_BARE_DEBIAN" "$root"
else
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort -u | head -n 1)
  timeout 900 debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
    tail "$work/debootstrap.log" >&2
    exit 1
  }
fi
# It fetches as this machine does, proxies and all.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
rm -f "$root/etc/apt/sources.list"
cp -r /etc/apt/sources.list.d "$root/etc/apt/"
[[ ! -e /etc/apt/sources.list ]] || cp /etc/apt/sources.list "$root/etc/apt/"
mount -t proc proc "$root/proc"

inside() {
  timeout 600 chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
cp "$package" "$root/tmp/pelton.deb"
inside apt-get update >"$work/apt.log" 2>&1
inside apt-get install -y --no-install-recommends /tmp/pelton.deb >>"$work/apt.log" 2>&1 || {
  tail -n 30 "$work/apt.log" >&2
  exit 1
}
inside pelton --version
inside pelton serve --config /etc/pelton/pelton.toml --print-config >/dev/null
[[ -s $root/usr/share/man/man1/pelton-serve.1.gz && -s $root/usr/share/bash-completion/completions/pelton ]]

# ---- the unit's command, as its user, with what it may write
user=$(sed -n 's/^User=//p' "$root/lib/systemd/system/pelton.service")
command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/pelton.service")
inside install -d -o "$user" -g "$user" -m 755 /var/lib/pelton /var/cache/pelton
mapfile -t environment < <(sed -n 's/^Environment=//p' "$root/lib/systemd/system/pelton.service")
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# shellcheck disable=SC2086
timeout 300 chroot --userspec="$user:$user" "$root" /usr/bin/env -i PATH=/usr/bin "${environment[@]}" \
  PELTON_PORT="$port" $command >"$work/serve.out" 2>"$work/serve.err" &
server=$!
for _ in {1..300}; do
  grep -q '^listening on' "$work/serve.out" && break
  kill -0 "$server" || {
    cat "$work/serve.err" >&2
    exit 1
  }
  sleep 0.1
done
answer=$(curl -fsS --max-time 60 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is a Pelton wheel?"}], "temperature": 0}')
python3 -c '
import json, sys
content = json.loads(sys.argv[1])["choices"][0]["message"]["content"]
print("it answered:", content)
assert "wheel" in content.lower() or "turbine" in content.lower(), content' "$answer"
process=$(pgrep -P "$server" -x pelton)
[[ $(stat -c %U "/proc/$process/stat") == root ]] # nobody may look in: PR_SET_DUMPABLE
[[ $(awk '/^Uid:/ {print $2}' "/proc/$process/status") == "$(inside id -u "$user")" ]]
kill -HUP "$process"
for _ in {1..100}; do
  grep -q 'SIGHUP: .*read anew' "$work/serve.err" && break
  sleep 0.1
done
grep -q 'SIGHUP: .*read anew' "$work/serve.err"
kill -TERM "$process"
status=0
wait "$server" || status=$?
[[ $status -eq 0 ]] || {
  cat "$work/serve.err" >&2
  exit 1
}

# ---- the library, with pkg-config alone
inside apt-get install -y --no-install-recommends gcc libc6-dev pkg-config python3 >>"$work/apt.log" 2>&1
inside cp -r /usr/share/doc/pelton/examples/library /tmp/library
for example in chat embed extract; do
  # shellcheck disable=SC2016
  inside sh -c 'cd /tmp/library && cc -std=c99 -Wall -Werror -fsanitize=address '"$example"'.c -o '"$example"' -pthread $(pkg-config --cflags --libs pelton)'
done
said=$(inside /tmp/library/chat /usr/share/pelton/models/pelton-box 'What is a Pelton wheel?')
[[ ${said,,} == *turbine* || ${said,,} == *wheel* ]]
[[ $(inside python3 /tmp/library/chat.py /usr/share/pelton/models/pelton-box 'What is a Pelton wheel?') == "$said" ]]
inside /tmp/library/extract /usr/share/pelton/models/pelton-box
inside /tmp/library/embed /usr/share/pelton/models/pelton-box 'a water wheel' 'a turbine'

# ---- and away again
inside apt-get purge -y pelton >>"$work/apt.log" 2>&1
for left in usr/bin/pelton etc/pelton var/lib/pelton var/cache/pelton usr/share/pelton; do
  [[ ! -e $root/$left ]] || {
    echo "package: /$left is left behind" >&2
    exit 1
  }
done
end
rm -rf "$root"
echo "$(basename "$package"): $(stat -c %s "$package") bytes, installs, serves and leaves"
