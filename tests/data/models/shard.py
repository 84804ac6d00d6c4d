#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Divides a model.safetensors into shards with an index, as large models are released.

usage: shard.py MODEL.safetensors OUT SHARDS
"""
import json
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        (n,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(n))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0] : t["data_offsets"][1]])
            for name, t in header.items()}


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: shard.py MODEL.safetensors OUT SHARDS")
    tensors, out, shards = read(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    total = sum(len(t[2]) for t in tensors.values())
    parts, filled = [{} for _ in range(shards)], 0
    for name in sorted(tensors):
        parts[min(shards - 1, filled * shards // total)][name] = tensors[name]
        filled += len(tensors[name][2])
    where = {}
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write(f"{out}/{name}", part)
        where.update({tensor: name for tensor in part})
    with open(f"{out}/model.safetensors.index.json", "w", encoding="ascii") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
