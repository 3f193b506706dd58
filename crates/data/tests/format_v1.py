#!/usr/bin/env python3
"""Format v1 a second time, from its description alone (crates/data/src/ycsb.rs), in Python's own integers.

    python3 crates/data/tests/format_v1.py > crates/data/tests/format_v1.tsv

The Rust code and this program have no line in common, so a vector on which they agree is what the description says.
The file is part of the format: it may grow, no line of it may change.
"""

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
ALPHABET = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
KEY_SPACE = 10**18


def mix(w):
    w = (w ^ (w >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    w = (w ^ (w >> 27)) * 0x94D049BB133111EB & MASK
    return w ^ (w >> 31)


def word(state, index):
    return mix((state + index * GAMMA) & MASK)


def subkey(seed, purpose):
    return mix(mix((seed + GAMMA) & MASK) ^ (purpose * GAMMA & MASK))


class Permutation:
    def __init__(self, seed, stream, domain):
        self.domain = domain
        bits = max(2, (domain - 1).bit_length())
        self.low = (bits + 1) // 2
        self.high = bits - self.low
        base = subkey(seed, 0x7065726D75746531) ^ mix(stream)
        self.keys = [subkey(base, i) for i in range(6)]

    def apply(self, value):
        while True:
            low, high = value % (1 << self.low), value >> self.low
            for i in range(0, 6, 2):
                high ^= mix(low ^ self.keys[i]) % (1 << self.high)
                low ^= mix(high ^ self.keys[i + 1]) % (1 << self.low)
            value = high << self.low | low
            if value < self.domain:
                return value


def stream(state, start, length):
    words = b"".join(word(state, i + 1).to_bytes(8, "little") for i in range(start // 8, (start + length + 7) // 8))
    return [b & 63 for b in words[start % 8 : start % 8 + length]]


def literals(percent):
    if percent == 100:
        return [100] * 10
    random = max(1068 * 100 // percent - 27 - 10 * 16, 0)
    if random < 40:
        random = min(40, random + 10)
    random = min(max(random, 20), 890)
    return [11 + random // 10 + (1 if c < random % 10 else 0) for c in range(10)]


def field(seed, percent, row, column, version):
    state = mix(word(subkey(seed, 1), row))
    values = stream(state, 100 * column, 100)
    if version:
        groups = [version >> 6 * (9 - i) & 63 for i in range(10)]
        check = 0
        for g in groups:
            check ^= g
        own = stream(mix(state ^ word(subkey(seed, 2), version)), 100 * column, 100)
        values = [p ^ g for p, g in zip(values, groups + [check])] + own[11:]
    literal = literals(percent)[column]
    filler = stream(subkey(seed, 3), 0, 100)
    return "".join(ALPHABET[v] for v in values[:literal] + filler[literal:])


def main():
    rows = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 10**12, KEY_SPACE - 1]
    seeds = [0, 1, 42, MASK]
    print("# kind, then its arguments, then the answer; made by format_v1.py")
    for seed in seeds:
        for row in rows:
            key = Permutation(seed, 1, KEY_SPACE).apply(row)
            print("key", seed, row, "user%018d" % key, sep="\t")
    for seed in seeds:
        for domain in [1, 2, 3, 70, 1000, 2**31, 2**32 + 1, 10**12, 2**63]:
            for i in sorted({0, min(1, domain - 1), domain // 2, domain - 1}):
                print("permutation", seed, 7, domain, i, Permutation(seed, 7, domain).apply(i), sep="\t")
    versions = [(0, 0, 0), (1, 0, 1), (3, 129, 4294967295), (16383, 16383, 0)]
    for seed in seeds:
        for percent in [100, 250, 520, 600]:
            for n, row in enumerate(rows):
                run, session, sequence = versions[n % len(versions)]
                version = run << 46 | session << 32 | sequence
                for column in [0, 1, 9]:
                    value = field(seed, percent, row, column, version)
                    print("field", seed, percent, row, column, run, session, sequence, value, sep="\t")


if __name__ == "__main__":
    main()
