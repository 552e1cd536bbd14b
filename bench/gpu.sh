#!/bin/bash
# Everything that needs a GPU, in one call: ceilings and baseline, chains, steps, hand-offs, attention, tests, sanitizers.
# usage: bench/gpu.sh BUILD_DIR OUT_DIR [PART...]     (parts: base chain bench decode tests sanitize; default: all but sanitize)
# One JSON line a result in OUT_DIR/PART.json, test output in OUT_DIR/tests.txt, a short table on stdout.
set -u
build=$1 out=$2
shift 2
parts=${*:-base chain bench decode tests}
mkdir -p "$out"
bounded() { timeout -s KILL "${LIMIT:-60}" "$@"; } # a hang must not cost the machine
run() { bounded "$build/weft" run --deadline 3000000 --devices cuda --warmup 30 --json "$@" 2>&1 | tail -n 1; }

base() {
    bounded "$build/bench/ceiling"
    LIMIT=200 bounded "$build/bench/baseline" --m 1,8,16,32,64 --shapes 2048/8192,4096/14336 --square 4096
}

chain() { # wide shapes unchecked: the float64 reference of gigabytes of weights takes longer than all the rest
    local small="--chain 2048,8192,2048 --layers 32" large="--chain 4096,14336,4096 --layers 16"
    for queue in static fifo push steal priority; do
        run $small --batch 1 --queue $queue --steps 100
        run $large --batch 1 --queue $queue --steps 100
    done
    run --chain 8192,28672,8192 --layers 16 --batch 1 --steps 40
    for m in 8 16 32 64; do
        run $small --batch $m --steps 100
        run $large --batch $m --steps 60
    done
    run $small --batch 32 --k-panels 4 --steps 60
    run $large --batch 32 --k-panels 4 --steps 60
    run $small --batch 8 --packets 8 --steps 100
    run $large --batch 8 --packets 8 --steps 60
    run --chain 4096,4096 --batch 4096 --layers 1 --steps 40
    for m in 1 8 20 37 300; do run --chain 500,1000,500 --layers 4 --batch $m --steps 20 --check; done
    for m in 1 8 32 128; do
        run --mlp 576,1536 --layers 3 --batch $m --norm separate --steps 20 --check
        run --mlp 576,1536 --layers 3 --batch $m --devices cuda:0/2 --strategy cta --norm separate --copies --steps 20 --check
        run --mlp 576,1536 --layers 3 --batch $m --split-k 4 --steps 20 --check
        run --mlp 576,1536 --layers 3 --batch $m --devices cuda:0/2 --strategy tp --queue push --steps 20 --check
    done
}

bench() {
    bounded "$build/bench/weft_steps" --devices cuda:0
    bounded "$build/bench/weft_attention" --devices cuda:0 --ceiling 4570
    for queue in static fifo push; do bounded "$build/bench/weft_handoff" --devices cuda:0 --queue $queue; done
    bounded "$build/bench/weft_dags" --devices cuda:0 --count 10000 --pack 32 --both
}

decode() {
    local d="$build/bench/weft_decode --devices cuda:0 --deadline 3000000 --ceiling ${CEILING:-4562}"
    for context in 32 512 2048; do bounded $d --context $context; done
    for batch in 16 64; do bounded $d --batch $batch --tokens 64; done
    bounded $d --devices cuda:0/2 --strategy tp
    bounded $d --shape llama-3.1-8b
    for context in 8192 32768; do bounded $d --shape llama-3.1-8b --context $context --tokens 64 --repeats 5; done
    bounded $d --shape llama-3.1-8b --batch 16 --tokens 64
}

tests() { # line buffered, so that a test that hangs is named
    for name in abort dags life bodies kinds sample decode; do
        WEFT_TEST_CYCLES=${CYCLES:-100} WEFT_TEST_DAGS=300 WEFT_TEST_CASES=60 LIMIT=120 bounded \
            stdbuf -oL "$build/tests/cuda_${name}_test"
    done
}

sanitize() {
    for tool in memcheck racecheck synccheck; do
        WEFT_TEST_CASES=3 LIMIT=150 bounded compute-sanitizer --tool $tool "$build/tests/cuda_bodies_test" \
            --gtest_filter='*Random*' | tail -n 3
        LIMIT=150 bounded compute-sanitizer --tool $tool "$build/tests/cuda_decode_test" --gtest_filter='*Samples*' | tail -n 3
    done
}

for part in $parts; do
    file=$out/$part.json
    case $part in tests | sanitize) file=$out/$part.txt ;; esac
    begin=$SECONDS
    $part >"$file" 2>&1
    echo "== $part: $((SECONDS - begin)) s, $(wc -l <"$file") lines in $file"
    grep -E '^\[ +(FAILED|PASSED|SKIPPED)|ERROR SUMMARY|"ok":false|WRONG' "$file" | head -n 20
done
