#!/usr/bin/env python3
"""Logits of tiny models of every family, for decoder_test: python3 tests/decoder_expected.py > tests/golden/decoder.txt

Written from the models' definitions, apart from host/decoder.c: whole sequences at once, float64, a causal mask,
rotate_half. Weights come from tiny_value(), which decoder_test.cpp has as well. Needs numpy.
"""
import json
import math

import numpy as np

TOKENS = [3, 41, 5, 5, 17, 0, 49, 22, 8, 30, 11, 2]
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 50, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 64, "tie_word_embeddings": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
MODELS = {
    "llama2": {"model_type": "llama", "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64},
    "llama31": {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
                "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "smollm2": {"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
                "rope_theta": 100000.0, "tie_word_embeddings": True},
    "mistral": {"model_type": "mistral", "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 96,
                "rope_theta": 1e6, "sliding_window": None},
    "linear": {"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 80,
               "rope_scaling": {"type": "linear", "factor": 2.0}},
    "qwen25": {"model_type": "qwen2", "num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 64,
               "rope_theta": 1e6, "tie_word_embeddings": True, "use_sliding_window": False},
    "qwen3": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
              "rope_theta": 1e6, "rms_norm_eps": 1e-6},
}


def tiny_value(name, n):
    """n values in [-0.25, 0.25), exact in fp32; those of norms are about 1."""
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 % 2**32
    x = (np.arange(n, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(h)) % np.uint64(2**32)
    x = (x ^ (x >> np.uint64(15))) * np.uint64(2246822519) % np.uint64(2**32)
    v = (x >> np.uint64(16)).astype(np.float64) / 131072 - 0.25
    return v + 1 if "norm" in name else v


def weight(name, *shape):
    return tiny_value(name, math.prod(shape)).reshape(shape)


def rms_norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def frequencies(c):
    d, scaling = c["head_dim"], c.get("rope_scaling")
    f = c.get("rope_theta", 10000.0) ** (-np.arange(0, d, 2) / d)
    kind = scaling and scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        f = f / scaling["factor"]
    if kind == "llama3":
        old, low, high = (scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
        wave = 2 * np.pi / f
        smooth = (old / wave - low) / (high - low)
        middle = (1 - smooth) * f / scaling["factor"] + smooth * f
        f = np.where(wave > old / low, f / scaling["factor"], np.where(wave < old / high, f, middle))
    return f


def rotate(x, f):
    """x: [token, head, d]"""
    angle = np.outer(np.arange(x.shape[0]), np.concatenate([f, f]))[:, None, :]
    half = x.shape[-1] // 2
    rotated = np.concatenate([-x[..., half:], x[..., :half]], -1)
    return x * np.cos(angle) + rotated * np.sin(angle)


def attention(x, c, p):
    n, h, kv, d = len(x), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def heads_of(part, heads):
        y = x @ weight(f"{p}.{part}_proj.weight", heads * d, c["hidden_size"]).T
        if c["model_type"] == "qwen2":
            y = y + weight(f"{p}.{part}_proj.bias", heads * d)
        y = y.reshape(n, heads, d)
        if c["model_type"] == "qwen3" and part != "v":
            y = rms_norm(y, weight(f"{p}.{part}_norm.weight", d), c["rms_norm_eps"])
        return rotate(y, frequencies(c)) if part != "v" else y

    q, k, v = heads_of("q", h), heads_of("k", kv), heads_of("v", kv)
    k, v = np.repeat(k, h // kv, 1), np.repeat(v, h // kv, 1)
    s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(d) + np.triu(np.full((n, n), -np.inf), 1)
    s = np.exp(s - s.max(-1, keepdims=True))
    y = np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, h * d)
    return y @ weight(f"{p}.o_proj.weight", c["hidden_size"], h * d).T


def logits(c):
    hidden, inner, eps = c["hidden_size"], c["intermediate_size"], c["rms_norm_eps"]
    embedding = weight("model.embed_tokens.weight", c["vocab_size"], hidden)
    x = embedding[TOKENS]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        x = x + attention(rms_norm(x, weight(f"{p}.input_layernorm.weight", hidden), eps), c, f"{p}.self_attn")
        y = rms_norm(x, weight(f"{p}.post_attention_layernorm.weight", hidden), eps)
        gate, up = (y @ weight(f"{p}.mlp.{n}_proj.weight", inner, hidden).T for n in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{p}.mlp.down_proj.weight", hidden, inner).T
    head = embedding if c["tie_word_embeddings"] else weight("lm_head.weight", c["vocab_size"], hidden)
    return rms_norm(x, weight("model.norm.weight", hidden), eps) @ head.T


def main():
    for name, own in MODELS.items():
        config = {**SHAPE, **own}
        print(name)
        print(json.dumps(config))
        for row in logits(config):
            print(" ".join(f"{v:.7g}" for v in row))


if __name__ == "__main__":
    main()
