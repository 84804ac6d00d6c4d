#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a GGUF file of a small Llama and its tokenizer, without changing a weight.
usage: to_gguf.py MODEL NAME [split]    NAME.gguf, or NAME-00001-of-00002.gguf and the second"""
import json
import pathlib
import re
import struct
import sys

model, name, split = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["split"]
config = json.loads((model / "config.json").read_text())
tokenizer = json.loads((model / "tokenizer.json").read_text())
heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
types = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}
parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value):
    if isinstance(value, bool):
        return 7, bytes([value])
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    each = [typed(v) for v in value]
    return 9, struct.pack("<IQ", each[0][0], len(each)) + b"".join(data for _, data in each)


def write(path, values, tensors):
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)), b""
    for key, value in values.items():
        kind, stored = typed(value)
        head += text(key) + struct.pack("<I", kind) + stored
    for tensor, (kind, shape, stored) in tensors.items():
        head += text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += stored + bytes(-len(stored) % 32)
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + data)


def neighbours(stored, n):
    """Rows of n heads: pair i of each, which were half a head apart, one after the other."""
    size, rows = len(stored) // n, []
    for h in range(n):
        head = stored[h * size:(h + 1) * size]
        width = config.get("head_dim") or config["hidden_size"] // heads
        row = size // width
        rows += [head[(b * width // 2 + i) * row:][:row] for i in range(width // 2) for b in (0, 1)]
    return b"".join(rows)


def own(tensor):
    if tensor in ends:
        return ends[tensor]
    layer, rest = tensor.removeprefix("model.layers.").split(".", 1)
    module, last = rest.rsplit(".", 1)
    return f"blk.{layer}.{parts[module]}.{last}"


tensors = {}
for file in sorted(model.glob("*.safetensors")):
    raw = file.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    for tensor, about in json.loads(raw[8:8 + n]).items():
        if tensor == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        stored = raw[8 + n + begin:8 + n + end]
        if ".q_proj." in tensor or ".k_proj." in tensor:
            stored = neighbours(stored, heads if ".q_proj." in tensor else kv_heads)
        tensors[own(tensor)] = (types[about["dtype"]][0], about["shape"], stored)

vocab = sorted(tokenizer["model"]["vocab"].items() | {(t["content"], t["id"]) for t in tokenizer["added_tokens"]}, key=lambda t: t[1])
special = {t["content"] for t in tokenizer["added_tokens"]}
merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
kinds = [2 if t == "<unk>" else 3 if t in special else 6 if re.fullmatch("<0x..>", t) else 1 for t, _ in vocab]
if tokenizer["normalizer"]:  # SentencePiece's: what is merged first has the highest score
    rank = {}
    for i, merge in enumerate(merges):
        rank.setdefault(merge.replace(" ", ""), i)
    how = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [-float(rank.get(t, len(merges))) for t, _ in vocab],
           "tokenizer.ggml.bos_token_id": config["bos_token_id"]}
else:
    how = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.merges": merges}
end = config["eos_token_id"]
values = {
    "general.architecture": "llama",
    "llama.block_count": config["num_hidden_layers"],
    "llama.context_length": config["max_position_embeddings"],
    "llama.embedding_length": config["hidden_size"],
    "llama.feed_forward_length": config["intermediate_size"],
    "llama.attention.head_count": heads,
    "llama.attention.head_count_kv": kv_heads,
    "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
    "llama.rope.freq_base": float(config["rope_theta"]),
    "tokenizer.ggml.tokens": [t for t, _ in vocab],
    "tokenizer.ggml.token_type": kinds,
    **how,
    "tokenizer.ggml.eos_token_id": end[0] if isinstance(end, list) else end,
}
if config.get("head_dim"):
    values |= {"llama.attention.key_length": config["head_dim"], "llama.attention.value_length": config["head_dim"]}
if split:
    names, half = list(tensors), len(tensors) // 2
    write(f"{name}-00001-of-00002.gguf", values | {"split.no": 0, "split.count": 2}, {k: tensors[k] for k in names[:half]})
    write(f"{name}-00002-of-00002.gguf", {"split.no": 1, "split.count": 2}, {k: tensors[k] for k in names[half:]})
else:
    write(f"{name}.gguf", values, tensors)
