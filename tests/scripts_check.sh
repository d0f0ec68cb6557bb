#!/usr/bin/env bash
# Every shell script of the project parses and passes shellcheck.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t scripts < <(
  { ls run test .ci/run; find tools tests deploy -type f -not -path '*/node_modules/*'; } |
    while read -r file; do
      if head -n 1 "$file" | grep -qaE '^#!.*\b(ba)?sh\b'; then echo "$file"; fi
    done
)
if [[ ${#scripts[@]} -lt 6 ]]; then
  echo "found only ${#scripts[@]} scripts; is this check looking in the right place?" >&2
  exit 1
fi
for script in "${scripts[@]}"; do
  bash -n "$script"
  [[ -x $script ]] || {
    echo "$script: not executable" >&2
    exit 1
  }
done
if ! command -v shellcheck >/dev/null; then
  echo "shellcheck is missing; only bash -n was run" >&2
  exit 77
fi
shellcheck "${scripts[@]}"
echo "${#scripts[@]} scripts are fine"
