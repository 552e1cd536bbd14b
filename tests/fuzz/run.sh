#!/bin/sh
# Runs each fuzz target for some time from its seeds; new inputs stay in the build folder.
# usage: tests/fuzz/run.sh BUILD_DIR SECONDS
# Copy a finding (crash-*) into tests/fuzz/seeds/TARGET once it is fixed: it is then tried first, for ever.
set -eu
build=$1 seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
jobs=""
for target in safetensors config image; do
    mkdir -p "$build/corpus-$target"
    # 2 x file + 64 MB is what a reader may take; inputs stay below 64 KB, and the sanitizer has its own needs.
    "$build/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -malloc_limit_mb=80 -rss_limit_mb=1024 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$build/finding-$target-" "$build/corpus-$target" "$here/seeds/$target" \
        >"$build/fuzz-$target.log" 2>&1 &
    jobs="$jobs $target:$!"
done
failed=0
for job in $jobs; do
    target=${job%%:*}
    if wait "${job##*:}"; then
        echo "fuzz $target: $(sed -n 's/stat::number_of_executed_units: *//p' "$build/fuzz-$target.log") inputs, no finding"
    else
        echo "fuzz $target: FAILED"
        grep -vE '^#|Uses:' "$build/fuzz-$target.log" | tail -n 40
        failed=1
    fi
done
exit "$failed"
