#!/usr/bin/env python3
"""Turns a Llama-family GGUF file into a Hugging Face directory.

Enters: a .gguf file, of any quantisation that the package `gguf` can expand.
Leaves: config.json, model.safetensors (bf16, Hugging Face's names and row order) and, for byte-level BPE vocabularies,
tokenizer.json, in a directory that appears only once it is complete.

llama.cpp stores the rows of the q and k projections in the order of its own RoPE (pairs side by side); Hugging Face has
the two halves of a head one after the other. unpermute() restores that.
"""
import argparse
import json
import os
import shutil
import sys

import numpy as np
from gguf import GGUFReader, dequantize

BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
CONTROL_TOKEN, USER_TOKEN = 3, 4  # gguf's token types that are not part of the BPE vocabulary's merges


def field(reader, key, default=None):
    entry = reader.fields.get(key)
    if entry is None:
        if default is None:
            sys.exit(f"gguf_to_hf: the file has no field {key}")
        return default
    return entry.contents()


def hf_name(name):
    """Hugging Face's name of a GGUF tensor, or None for one that Hugging Face doesn't store."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    if name.startswith("blk."):
        _, layer, rest = name.split(".", 2)
        part, kind = rest.rsplit(".", 1)
        if part in BLOCK_NAMES:
            return f"model.layers.{layer}.{BLOCK_NAMES[part]}.{kind}"
    if name.startswith("rope_freqs"):
        return None
    sys.exit(f"gguf_to_hf: don't know tensor {name}")


def unpermute(rows, heads):
    """Rows of a head from (pair, half) order back to (half, pair) order."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def to_bf16(values):
    """fp32 to bf16 bits, round to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_config(reader):
    arch = field(reader, "general.architecture")
    if arch != "llama":
        sys.exit(f"gguf_to_hf: architecture {arch} is not of the Llama family")

    def get(key, default=None):
        return field(reader, f"{arch}.{key}", default)

    heads = int(get("attention.head_count"))
    hidden = int(get("embedding_length"))
    names = {t.name for t in reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(get("feed_forward_length")),
        "num_hidden_layers": int(get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(get("attention.head_count_kv", heads)),
        "head_dim": int(get("attention.key_length", hidden // heads)),
        "rms_norm_eps": round(float(get("attention.layer_norm_rms_epsilon")), 12),
        "rope_theta": float(get("rope.freq_base", 10000.0)),
        "max_position_embeddings": int(get("context_length")),
        "vocab_size": len(field(reader, "tokenizer.ggml.tokens")),
        "bos_token_id": int(field(reader, "tokenizer.ggml.bos_token_id", 1)),
        "eos_token_id": int(field(reader, "tokenizer.ggml.eos_token_id", 2)),
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }


def write_safetensors(path, tensors):
    """tensors: name -> uint16 array of bf16 bits. Written by hand: numpy has no bf16."""
    header, offset = {}, 0
    for name, bits in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(bits.shape), "data_offsets": [offset, offset + bits.nbytes]}
        offset += bits.nbytes
    header["__metadata__"] = {"format": "pt"}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for bits in tensors.values():
            out.write(bits.tobytes())


def check_safetensors(path, tensors):
    """Reads the file back through the safetensors package: its reader and ours must agree on what was written."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        missing = set(tensors) ^ set(file.keys())
        if missing:
            sys.exit(f"gguf_to_hf: {path}: names differ after writing: {sorted(missing)[:3]}")
        for name in tensors:
            if tuple(file.get_slice(name).get_shape()) != tensors[name].shape:
                sys.exit(f"gguf_to_hf: {path}: shape of {name} differs after writing")


def make_tokenizer(reader):
    """tokenizer.json of a byte-level BPE vocabulary, or None for another kind."""
    if field(reader, "tokenizer.ggml.model") != "gpt2":
        return None
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    added = [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": types[i] == CONTROL_TOKEN}
        for i, t in enumerate(tokens) if types[i] in (CONTROL_TOKEN, USER_TOKEN)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = [byte_level]
    if field(reader, "tokenizer.ggml.pre", "default") == "smollm":
        steps.insert(0, {"type": "Digits", "individual_digits": True})
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None, "decoder": dict(byte_level, add_prefix_space=True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": list(field(reader, "tokenizer.ggml.merges"))},
    }


def convert(source, target):
    reader = GGUFReader(source)
    config = read_config(reader)
    tensors = {}
    for t in reader.tensors:
        name = hf_name(t.name)
        if name is None:
            continue
        values = dequantize(t.data, t.tensor_type).reshape([int(d) for d in reversed(t.shape)])
        if name.endswith("q_proj.weight"):
            values = unpermute(values, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            values = unpermute(values, config["num_key_value_heads"])
        tensors[name] = to_bf16(values)

    partial = f"{target}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    write_safetensors(os.path.join(partial, "model.safetensors"), tensors)
    check_safetensors(os.path.join(partial, "model.safetensors"), tensors)
    files = {"config.json": config, "tokenizer.json": make_tokenizer(reader)}
    for file, content in files.items():
        if content is not None:
            with open(os.path.join(partial, file), "w", encoding="utf-8") as out:
                json.dump(content, out, ensure_ascii=False, indent=2 if file == "config.json" else None)
    template = field(reader, "tokenizer.chat_template", "")
    with open(os.path.join(partial, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}, out, indent=2)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(partial, target)
    print(f"{target}: {len(tensors)} tensors, {sum(b.nbytes for b in tensors.values()) / 1e6:.0f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", help="the file to read")
    parser.add_argument("directory", help="the Hugging Face directory to make (replaced if it exists)")
    args = parser.parse_args()
    convert(args.gguf, args.directory.rstrip("/"))


if __name__ == "__main__":
    main()
