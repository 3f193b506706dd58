#!/usr/bin/env python3
"""Format v1 of the TPC-C tables a second time, from its description alone (crates/data/src/tpcc.rs), in Python's own integers.

    python3 crates/data/tests/format_v1_tpcc.py > crates/data/tests/format_v1_tpcc.tsv

A line is: table, seed, ids, and the columns of clause 1.3 as PostgreSQL would print them, null as \\N.
The file is part of the format: it may grow, no line of it may change.
"""

from format_v1 import MASK, GAMMA, Permutation, mix, subkey, word

ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SYLLABLES = "BAR OUGHT ABLE PRI PRES ESE ANTI CALLY ATION EING".split()
WAREHOUSE, DISTRICT, CUSTOMER, HISTORY, NEW_ORDER, ORDERS, ORDER_LINE, ITEM, STOCK = range(9)


class Row:
    def __init__(self, seed, table, number):
        self.state = mix(word(subkey(seed, 0x747063630000 + table), number))

    def draw(self, column, draw=0):
        return word(self.state, column << 8 | draw)

    def uniform(self, column, low, high, draw=0):
        return low + (self.draw(column, draw) * (high - low + 1) >> 64)

    def characters(self, column, length, letters=ALPHANUMERIC):
        lane = lambda n: self.draw(column, 1 + n // 4) >> 16 * (n % 4) & 0xFFFF
        return "".join(letters[lane(n) * len(letters) >> 16] for n in range(length))

    def a_string(self, column, low, high):
        return self.characters(column, self.uniform(column, low, high))

    def digits(self, column, length):
        return self.characters(column, length, "0123456789")

    def data(self, column):
        text = self.a_string(column, 26, 50)
        if self.uniform(column, 0, 9, 254) == 0:
            at = self.uniform(column, 0, len(text) - 8, 255)
            text = text[:at] + "ORIGINAL" + text[at + 8 :]
        return text

    def address(self, column):
        streets = [self.a_string(column + n, 10, 20) for n in range(3)]
        return streets + [self.characters(column + 3, 2), self.digits(column + 4, 4) + "11111"]


def decimal(value, scale):
    sign, value = ("-", -value) if value < 0 else ("", value)
    return f"{sign}{value // 10**scale}.{value % 10**scale:0{scale}}"


def time(microseconds):
    seconds, fraction = divmod(microseconds, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"2026-01-01 {clock}" + (f".{fraction:06}".rstrip("0") if fraction else "")


def last_name(number):
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:03}")


def constant(seed, index, last):
    return word(subkey(seed, 0x747063430000), index) * (last + 1) >> 64


def c_load(seed):
    return constant(seed, 0, 255)


def for_run(load, seed):
    allowed = [c for c in range(256) if 65 <= abs(c - load) <= 119 and abs(c - load) not in (96, 112)]
    return allowed[constant(seed, 1, len(allowed) - 1)], constant(seed, 2, 1023), constant(seed, 3, 8191)


def district_number(w, d):
    return (w - 1) * 10 + d - 1


def warehouse(seed, w):
    row = Row(seed, WAREHOUSE, w - 1)
    return [w, row.a_string(1, 6, 10), *row.address(2), decimal(row.uniform(7, 0, 2000), 4), "300000.00"]


def district(seed, w, d):
    row = Row(seed, DISTRICT, district_number(w, d))
    tax = decimal(row.uniform(8, 0, 2000), 4)
    return [d, w, row.a_string(2, 6, 10), *row.address(3), tax, "30000.00", 3001]


def customer(seed, w, d, c):
    row = Row(seed, CUSTOMER, district_number(w, d) * 3000 + c - 1)
    number = c - 1
    if c > 1000:
        number = ((row.uniform(5, 0, 255) | row.uniform(5, 0, 999, 1)) + c_load(seed)) % 1000
    credit = "BC" if row.uniform(13, 0, 9) == 0 else "GC"
    return [c, d, w, row.a_string(3, 8, 16), "OE", last_name(number), *row.address(6), row.digits(11, 16),
            time(row.uniform(12, 0, 86_399_999_999)), credit, "50000.00", decimal(row.uniform(15, 0, 5000), 4),
            "-10.00", "10.00", 1, 0, row.a_string(20, 300, 500)]


def history(seed, w, d, c):
    row = Row(seed, HISTORY, district_number(w, d) * 3000 + c - 1)
    return [c, d, w, d, w, time(row.uniform(5, 0, 86_399_999_999)), "10.00", row.a_string(7, 12, 24)]


def order(seed, w, d, o):
    row = Row(seed, ORDERS, district_number(w, d) * 3000 + o - 1)
    customers = Permutation(seed, 0x7470636300000000 + district_number(w, d), 3000)
    carrier = row.uniform(5, 1, 10) if o < 2101 else "\\N"
    entry = o * 28_000_000 + row.uniform(4, 0, 27_999_999)
    return [o, d, w, customers.apply(o - 1) + 1, time(entry), carrier, row.uniform(6, 5, 15), 1]


def order_line(seed, w, d, o, number):
    row = Row(seed, ORDER_LINE, (district_number(w, d) * 3000 + o - 1) * 16 + number - 1)
    delivery, amount = (order(seed, w, d, o)[4], 0) if o < 2101 else ("\\N", row.uniform(8, 1, 999_999))
    return [o, d, w, number, row.uniform(4, 1, 100_000), w, delivery, 5, decimal(amount, 2), row.characters(9, 24)]


def item(seed, i):
    row = Row(seed, ITEM, i - 1)
    price = decimal(row.uniform(3, 100, 10_000), 2)
    return [i, row.uniform(1, 1, 10_000), row.a_string(2, 14, 24), price, row.data(4)]


def stock(seed, w, i):
    row = Row(seed, STOCK, (w - 1) * 100_000 + i - 1)
    dist = row.characters(3, 240)
    return [i, w, row.uniform(2, 10, 100), *(dist[n : n + 24] for n in range(0, 240, 24)), 0, 0, 0, row.data(16)]


def show(kind, *values):
    print(kind, *values, sep="\t")


def main():
    warehouses = [1, 2, 10, 15_000, 1_000_000]
    for seed in [1, 0, 42, MASK]:
        show("c_load", seed, c_load(seed))
        for load in [0, 123, 255]:
            show("for_run", load, seed, *for_run(load, seed))
        for i in [1, 2, 7, 99_999, 100_000]:
            show("item", seed, i, *item(seed, i))
        for w in warehouses:
            show("warehouse", seed, w, *warehouse(seed, w))
            for i in [1, 11, 100_000]:
                show("stock", seed, w, i, *stock(seed, w, i))
            for d in [1, 10]:
                show("district", seed, w, d, *district(seed, w, d))
                for n in [1, 1000, 1001, 2100, 2101, 3000]:
                    show("customer", seed, w, d, n, *customer(seed, w, d, n))
                    show("history", seed, w, d, n, *history(seed, w, d, n))
                    show("orders", seed, w, d, n, *order(seed, w, d, n))
                    for number in [1, order(seed, w, d, n)[6]]:
                        show("order_line", seed, w, d, n, number, *order_line(seed, w, d, n, number))


if __name__ == "__main__":
    main()
