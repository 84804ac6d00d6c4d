#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A second implementation of the Noise Protocol Framework (revision 34), plain and slow, that shares nothing with net/.

usage: make.py >vectors.txt          recorded handshakes, with keys drawn from a hash
       make.py check FILE            whether every vector of FILE comes out of this program too

A line is: name tokens known prologue init_s init_e resp_s resp_e psks hash count payload:message...
Tokens are digits (1 e, 2 s, 3 ee, 4 es, 5 se, 6 ss, 7 psk), messages divided by ";". `known` says whose static key the
other side has before: 1 the initiator's, 2 the responder's. Empty fields are "-". Curve25519 is RFC 7748, ChaCha20 and
Poly1305 are RFC 8439, HMAC and HKDF as Noise section 4.3 has them, over SHA-512.
"""
import hashlib
import hmac
import struct
import sys

PATTERNS = [
    ("NN", "1;13", 0), ("NNpsk0", "71;13", 0), ("NK", "14;13", 2), ("NX", "1;1324", 0), ("XN", "1;13;25", 0),
    ("XK", "14;13;25", 2), ("XX", "1;1324;25", 0), ("XXpsk3", "1;1324;257", 0), ("XXpsk0+psk3", "71;1324;257", 0),
    ("KN", "1;135", 1), ("KK", "146;135", 3), ("KX", "1;13524", 1), ("IN", "12;135", 0), ("IK", "1426;135", 2),
    ("IKpsk0+psk2", "71426;1357", 2), ("IX", "12;13524", 0),
]
P25519 = 2**255 - 19


def x25519(scalar, point):
    k = bytearray(scalar)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    u = int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap != bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P25519, u * (da - cb) ** 2 % P25519
        x2, z2 = aa * bb % P25519, e * (aa + 121665 * e) % P25519
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P25519 - 2, P25519) % P25519).to_bytes(32, "little")


def public(secret):
    return x25519(secret, (9).to_bytes(32, "little"))


def chacha_block(key, counter, nonce):
    state = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    x = list(state)

    def quarter(a, b, c, d):
        for p, q, r, n in (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7):
            x[p] = x[p] + x[q] & 0xFFFFFFFF
            x[r] ^= x[p]
            x[r] = (x[r] << n | x[r] >> 32 - n) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(x, state)))


def seal(key, n, ad, plain):
    nonce = struct.pack("<IQ", 0, n)
    stream = b"".join(chacha_block(key, 1 + i, nonce) for i in range((len(plain) + 63) // 64))
    text = bytes(a ^ b for a, b in zip(plain, stream))
    one = chacha_block(key, 0, nonce)[:32]
    r, s = int.from_bytes(one[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, int.from_bytes(one[16:], "little")
    data = ad + bytes(-len(ad) % 16) + text + bytes(-len(text) % 16) + struct.pack("<QQ", len(ad), len(text))
    acc = 0
    for i in range(0, len(data), 16):
        acc = (acc + int.from_bytes(data[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return text + (acc + s & (1 << 128) - 1).to_bytes(16, "little")


def hkdf(ck, material, outputs):
    temp, out, last = hmac.digest(ck, material, "sha512"), [], b""
    for i in range(outputs):
        last = hmac.digest(temp, last + bytes([i + 1]), "sha512")
        out.append(last)
    return out


class Handshake:
    """Both sides at once: who holds the keys of both needs no messages to go on."""

    def __init__(self, name, known, prologue, s, e, psks):
        name = name.encode()
        self.h = name + bytes(64 - len(name)) if len(name) <= 64 else hashlib.sha512(name).digest()
        self.ck, self.key, self.n, self.s, self.e, self.psks, self.has_psk = self.h, None, 0, s, e, list(psks), bool(psks)
        self.mix_hash(prologue)
        for side in 0, 1:
            if known >> side & 1:
                self.mix_hash(public(s[side]))

    def mix_hash(self, data):
        self.h = hashlib.sha512(self.h + data).digest()

    def mix_key(self, material):
        self.ck, key = hkdf(self.ck, material, 2)
        self.key, self.n = key[:32], 0

    def encrypt(self, plain):
        if self.key is None:
            out = plain
        else:
            out = seal(self.key, self.n, self.h, plain)
            self.n += 1
        self.mix_hash(out)
        return out

    def message(self, tokens, writer, payload):
        out = b""
        for token in tokens:
            if token == "1":
                e = public(self.e[writer])
                out += e
                self.mix_hash(e)
                if self.has_psk:
                    self.mix_key(e)
            elif token == "2":
                out += self.encrypt(public(self.s[writer]))
            elif token == "7":
                self.ck, temp, key = hkdf(self.ck, self.psks.pop(0), 3)
                self.mix_hash(temp)
                self.key, self.n = key[:32], 0
            else:
                first, second = {"3": (self.e[0], self.e[1]), "4": (self.e[0], self.s[1]), "5": (self.s[0], self.e[1]),
                                 "6": (self.s[0], self.s[1])}[token]
                self.mix_key(x25519(first, public(second)))
        return out + self.encrypt(payload)


def run(name, tokens, known, prologue, s, e, psks, payloads):
    """The messages, and the hash of the handshake."""
    hs, out, counts = Handshake(name, known, prologue, s, e, psks), [], [0, 0]
    messages = tokens.split(";")
    for i, payload in enumerate(payloads):
        if i < len(messages):
            out.append(hs.message(messages[i], i % 2, payload))
            done = hs.h
        else:
            keys = hkdf(hs.ck, b"", 2)
            out.append(seal(keys[i % 2][:32], counts[i % 2], b"", payload))
            counts[i % 2] += 1
    return out, done


def hex_or_dash(data):
    return data.hex() or "-"


def draw(*words):
    return hashlib.sha256("/".join(words).encode()).digest()


def write():
    for short, tokens, known in PATTERNS:
        for prologue in b"", b"ringd/1":
            name = f"Noise_{short}_25519_ChaChaPoly_SHA512"
            has_s = ["2" in "".join(tokens.split(";")[side::2]) or known >> side & 1 for side in (0, 1)]
            s = [draw(short, "static", str(side)) if has_s[side] else b"" for side in (0, 1)]
            e = [draw(short, "ephemeral", str(side), prologue.hex()) for side in (0, 1)]
            psks = [draw(short, "psk", str(i)) for i in range(tokens.count("7"))]
            payloads = [draw(short, "payload", str(i))[: 5 * i] for i in range(tokens.count(";") + 4)]
            out, done = run(name, tokens, known, prologue, s, e, psks, payloads)
            print(name, tokens, known, hex_or_dash(prologue), hex_or_dash(s[0]), e[0].hex(), hex_or_dash(s[1]), e[1].hex(),
                  ",".join(p.hex() for p in psks) or "-", done.hex(), len(out),
                  *(f"{p.hex()}:{m.hex()}" for p, m in zip(payloads, out)))


def check(path):
    def data(text):
        return b"" if text == "-" else bytes.fromhex(text)

    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            name, tokens, known, prologue, s0, e0, s1, e1, psks, done, _, *rest = line.split()
            pairs = [pair.split(":") for pair in rest]
            out, hash_ = run(name, tokens, int(known), data(prologue), [data(s0), data(s1)], [data(e0), data(e1)],
                             [data(p) for p in psks.split(",") if p != "-"], [bytes.fromhex(p) for p, _ in pairs])
            if [m.hex() for m in out] != [m for _, m in pairs] or done not in ("-", hash_.hex()):
                sys.exit(f"{path}:{number}: {name}: another result")
    print(f"{number} vectors agree")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        check(sys.argv[2])
    elif len(sys.argv) == 1:
        write()
    else:
        sys.exit("usage: make.py | make.py check FILE")
