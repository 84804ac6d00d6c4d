#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A Llama of one safetensors file as a GGUF file, for benches beside other servers. Weights of queries and keys keep their order, and
tokens have texts that mean nothing: only the shape counts.  usage: gguf.py MODEL OUT"""
import json
import struct
import sys

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9  # types of metadata
TYPES = {"F32": 0, "BF16": 30}  # of tensors
ALIGN = 32


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def name_of(tensor):
    if tensor in NAMES:
        return NAMES[tensor]
    words = tensor.split(".")
    return f"blk.{words[2]}.{PARTS['.'.join(words[3:-1])]}.weight"


def metadata(config):
    vocab = config["vocab_size"]
    numbers = {"block_count": "num_hidden_layers", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
               "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
               "context_length": "max_position_embeddings", "vocab_size": "vocab_size"}
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"t{i}" for i in range(len(tokens), vocab)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (vocab - 259)  # unknown, control, byte, normal
    rows = [("general.architecture", STRING, text("llama"))]
    rows += [(f"llama.{key}", U32, struct.pack("<I", config[of])) for key, of in numbers.items()]
    rows += [("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", config["rms_norm_eps"])),
             ("llama.rope.freq_base", F32, struct.pack("<f", config["rope_theta"])),
             ("tokenizer.ggml.model", STRING, text("llama")),
             ("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t in tokens])),
             ("tokenizer.ggml.scores", ARRAY, array(F32, [struct.pack("<f", -i) for i in range(vocab)])),
             ("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", k) for k in kinds])),
             ("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)), ("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2))]
    return [text(key) + struct.pack("<I", kind) + value for key, kind, value in rows]


def widened(data):
    """bf16 as f32: norms are f32 there."""
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def main(model, out):
    with open(f"{model}/config.json", encoding="utf-8") as f:
        rows = metadata(json.load(f))
    with open(f"{model}/model.safetensors", "rb") as source, open(out, "wb") as to:
        size = struct.unpack("<Q", source.read(8))[0]
        tensors = [(name_of(k), v) for k, v in json.loads(source.read(size)).items() if k != "__metadata__"]
        to.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(rows)) + b"".join(rows))
        at = 0
        for name, t in tensors:
            is_norm = len(t["shape"]) == 1
            bytes_there = t["data_offsets"][1] - t["data_offsets"][0]
            wide = is_norm and t["dtype"] == "BF16"
            to.write(text(name) + struct.pack("<I", len(t["shape"])) + b"".join(struct.pack("<Q", n) for n in reversed(t["shape"])))
            to.write(struct.pack("<IQ", TYPES["F32" if is_norm else t["dtype"]], at))
            at += -(-bytes_there * (2 if wide else 1) // ALIGN) * ALIGN
        to.write(b"\0" * (-to.tell() % ALIGN))
        for _, t in tensors:
            source.seek(8 + size + t["data_offsets"][0])
            data = source.read(t["data_offsets"][1] - t["data_offsets"][0])
            data = widened(data) if len(t["shape"]) == 1 and t["dtype"] == "BF16" else data
            to.write(data + b"\0" * (-len(data) % ALIGN))


main(sys.argv[1], sys.argv[2])
