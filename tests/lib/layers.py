# SPDX-License-Identifier: MIT
#
# python3 layers.py DIR [LAYERS]: writes a Llama of random bf16 there, config.json and model.safetensors: eight layers of 6 MiB, so that
# each block of 4 MiB is of one or two of them.
import json, random, struct, sys
dim, ffn, layers, vocab = 512, 1408, int(sys.argv[2]) if len(sys.argv) > 2 else 8, 1024
config = {"model_type": "llama", "hidden_size": dim, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": 8,
          "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu", "tie_word_embeddings": False, "vocab_size": vocab,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": 0,
          "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False, "rope_scaling": None}
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
shapes = {"model.embed_tokens.weight": [vocab, dim], "lm_head.weight": [vocab, dim], "model.norm.weight": [dim]}
for l in range(layers):
    for name, rows, cols in (("self_attn.q_proj", dim, dim), ("self_attn.k_proj", dim, dim), ("self_attn.v_proj", dim, dim),
                             ("self_attn.o_proj", dim, dim), ("mlp.gate_proj", ffn, dim), ("mlp.up_proj", ffn, dim),
                             ("mlp.down_proj", dim, ffn)):
        shapes[f"model.layers.{l}.{name}.weight"] = [rows, cols]
    for name in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"model.layers.{l}.{name}.weight"] = [dim]
header, at, datas = {}, 0, []
draw = random.Random(1)
for name in sorted(shapes):
    n = 1
    for extent in shapes[name]:
        n *= extent
    if len(shapes[name]) == 1:
        data = struct.pack("<H", 0x3f80) * n
    else:  # bf16 of about 0.03, of either sign
        raw = bytearray(draw.randbytes(2 * n))
        raw[1::2] = bytes((b & 0x80) | 0x3c | (b & 1) for b in raw[1::2])
        data = bytes(raw)
    header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [at, at + len(data)]}
    at += len(data)
    datas.append(data)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 64)
with open(sys.argv[1] + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(datas))
