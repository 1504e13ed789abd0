#!/usr/bin/env bash
# The innermost ring, in two processes that share its files by their sizes. Two processes of pytest-xdist spend as much
# on messages about 8,000 short tests as on a tenth of the tests. Files of tests are in memory where there is room: a
# disk costs them several seconds. Property tests have a quarter of the examples that they have in `make test`, and tests
# that take 0.2 s of processor time or more (marker `long`) are left to it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

room_mib=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1 || echo 0)
where=${TMPDIR:-/tmp}
if [ "$room_mib" -ge 1024 ]; then
    where=/dev/shm
fi
TMPDIR=$(mktemp -d -p "$where" t-XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

by_size() { find "$@" -name 'test_*.py' -printf '%s %p\n' | sort -rn | cut -d ' ' -f 2; }

# Tests that parse all sources go to the first process, which parses them once.
readers=(tests/architecture tests/unit/test_doc_facts.py tests/unit/test_docs.py tests/unit/test_public_names.py)
mapfile -t others < <(by_size tests/unit | grep -vxF "$(printf '%s\n' "${readers[@]}")")
first=("${readers[@]}")
second=()
for number in "${!others[@]}"; do
    if (((number + 1) / 2 % 2)); then first+=("${others[number]}"); else second+=("${others[number]}"); fi
done

run() {
    .venv/bin/pytest -q -n 0 -m "not all and not rig and not long" --hypothesis-profile=quick -o tmp_path_retention_policy=failed "$@"
}

run "$@" "${second[@]}" >"$TMPDIR/second" 2>&1 &
run "$@" "${first[@]}"
status_first=$?
wait $!
status_second=$?
cat "$TMPDIR/second"
# 5: no test of this half is selected
[ $status_first -eq 0 ] || [ $status_first -eq 5 ] || exit $status_first
[ $status_first -eq 5 ] || [ $status_second -ne 5 ] || exit 0
exit $status_second
