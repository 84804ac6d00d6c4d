#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The LoRA step of bench_train in plain PyTorch: torch_train.py MODEL_DIR THREADS TOKENS SEQUENCES MICROBATCHES RANK f32|bf16.

Says the name of the kernel that its OpenBLAS took, then makes a step for every line it reads and answers with the seconds that took,
so that bench_train can let the two take turns. The shape is that of MODEL_DIR/config.json, the weights are random. Nothing is written
in a way that costs PyTorch anything: in bf16 all tensors are, so nothing is converted; the base is frozen, the microbatches of a step are what bench_train's are, and memory freed by
one is kept for the next."""
import ctypes
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class LoraLinear(nn.Module):
    def __init__(self, inputs, outputs, rank):
        super().__init__()
        bound = (3 / inputs) ** 0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound), requires_grad=False)
        self.a = nn.Parameter(torch.empty(rank, inputs).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.a), self.b)


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim), requires_grad=False)
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Layer(nn.Module):
    def __init__(self, c, rank):
        super().__init__()
        dim, ffn = c["hidden_size"], c["intermediate_size"]
        self.heads, self.kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        self.head = dim // self.heads
        self.before, self.between = Norm(dim, c["rms_norm_eps"]), Norm(dim, c["rms_norm_eps"])
        self.q = LoraLinear(dim, dim, rank)
        self.k = LoraLinear(dim, self.kv_heads * self.head, rank)
        self.v = LoraLinear(dim, self.kv_heads * self.head, rank)
        self.o = LoraLinear(dim, dim, rank)
        self.gate, self.up = LoraLinear(dim, ffn, rank), LoraLinear(dim, ffn, rank)
        self.down = LoraLinear(ffn, dim, rank)

    def attend(self, h, cosine, sine, mask):
        seqs, tokens = h.shape[:2]
        q = rotate(self.q(h).view(seqs, tokens, self.heads, self.head).transpose(1, 2), cosine, sine)
        k = rotate(self.k(h).view(seqs, tokens, self.kv_heads, self.head).transpose(1, 2), cosine, sine)
        v = self.v(h).view(seqs, tokens, self.kv_heads, self.head).transpose(1, 2)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            v = v.repeat_interleave(self.heads // self.kv_heads, 1)
        q, k, v = (t.reshape(-1, tokens, self.head) for t in (q, k, v))
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=self.head ** -0.5)
        out = torch.bmm(scores.softmax(-1), v).view(seqs, self.heads, tokens, self.head)
        return self.o(out.transpose(1, 2).reshape(seqs, tokens, -1))

    def forward(self, x, cosine, sine, mask):
        x = x + self.attend(self.before(x), cosine, sine, mask)
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, c, rank, tokens):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * c["hidden_size"] ** -0.5,
                                      requires_grad=False)
        self.layers = nn.ModuleList(Layer(c, rank) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        head = c["hidden_size"] // c["num_attention_heads"]
        angle = torch.outer(torch.arange(tokens), c["rope_theta"] ** (-torch.arange(0, head, 2) / head))
        self.cosine, self.sine = angle.cos(), angle.sin()
        self.mask = torch.full((1, tokens, tokens), float("-inf")).triu(1)

    def forward(self, ids):
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, self.mask)
        return F.linear(self.norm(x), self.embedding)


def kernel_name():
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split()[-1]
            if "/libopenblas" in path:
                name = ctypes.CDLL(path).openblas_get_corename
                name.restype = ctypes.c_char_p
                return name().decode()
    return "unknown"


def main():
    where, threads, tokens, seqs, microbatches, rank = sys.argv[1], *map(int, sys.argv[2:7])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    with open(where + "/config.json") as f:
        model = Model(json.load(f), rank, tokens)
    if sys.argv[7] == "bf16":
        model.bfloat16()
        model.cosine, model.sine, model.mask = model.cosine.bfloat16(), model.sine.bfloat16(), model.mask.bfloat16()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    rows = torch.randint(model.embedding.shape[0], (microbatches, seqs, tokens + 1))

    def step():
        for part in rows:
            logits = model(part[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()).div(microbatches).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    print(kernel_name(), flush=True)
    for _ in sys.stdin:
        begin = time.monotonic()
        step()
        print(time.monotonic() - begin, flush=True)


main()
