#!/usr/bin/env bash
# The innermost ring, in processes that share its files by their sizes: one more than there are processors, for a fifth
# of the time the tests wait. Processes of pytest-xdist spend as much on messages about 8,000 short tests as on a tenth
# of the tests. Files of tests are in memory where there is room: a
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
parts=$(($(nproc) + 1))
[ "$parts" -le 9 ] || parts=9
printf '%s\n' "${readers[@]}" >"$TMPDIR/files-0"
for number in "${!others[@]}"; do
    # Down the processes and up again, so that the first does not have the largest file of each round.
    turn=$((number % (2 * parts)))
    [ $turn -lt $parts ] || turn=$((2 * parts - 1 - turn))
    echo "${others[number]}" >>"$TMPDIR/files-$turn"
done

run() {
    local part=$1
    shift
    xargs -a "$TMPDIR/files-$part" .venv/bin/pytest -q -n 0 -m "not all and not rig and not torch and not long" \
        --hypothesis-profile=quick -o tmp_path_retention_policy=failed "$@" >"$TMPDIR/output-$part" 2>&1
}

processes=()
for ((part = 0; part < parts; part++)); do
    run $part "$@" &
    processes+=($!)
done
failed=0
selected=0
for part in "${!processes[@]}"; do
    wait "${processes[part]}"
    status=$?
    cat "$TMPDIR/output-$part"
    # 5: no test of this part is selected
    [ $status -eq 5 ] && continue
    selected=1
    [ $status -eq 0 ] || failed=$status
done
[ $selected -eq 1 ] || exit 5
exit $failed
