#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the data sets of the tests, in the forms in which people have theirs.

usage: make.py OUT

  tables/{train,valid,test}.jsonl   {"text"}: a table, a question and its SQL         1000, 100 and 100 rows
  sums/{train,test}.jsonl           {"question", "answer"}: small sums in words       400 and 40 rows
  identity.json                     alpaca's array of instruction, input, output      91 rows
  chat/tools.json                   sharegpt's turns, with calls of tools             120 conversations
  chat/weights.jsonl                messages whose content is a list, with weights    60 conversations

Everything is made here from lists of words. The same program gives the same files, byte for byte.
"""
import json
import os
import sys

PEOPLE = ["Ada", "Bruno", "Chen", "Dalia", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jana", "Kofi", "Lena"]
PLACES = ["Aarhus", "Bergen", "Cadiz", "Dresden", "Esbjerg", "Fez", "Ghent", "Haifa", "Izmir", "Jena", "Kyoto", "Lyon"]
THINGS = ["apples", "books", "candles", "drums", "eggs", "flutes", "gloves", "hats", "inks", "jars", "keys", "lamps"]
COLORS = ["red", "blue", "green", "white", "black", "yellow", "grey", "brown"]
TABLES = {
    "boats": [("Name", PEOPLE), ("Harbour", PLACES), ("Colour", COLORS), ("Cargo", THINGS), ("Year", range(1900, 1990))],
    "matches": [("Home team", PLACES), ("Away team", PLACES), ("Referee", PEOPLE), ("Score", range(0, 9)),
                ("Season", range(1950, 2010))],
    "shops": [("Owner", PEOPLE), ("Town", PLACES), ("Goods", THINGS), ("Price in crowns", range(2, 90)), ("Sign", COLORS)],
    "trains": [("Number", range(100, 999)), ("From", PLACES), ("To", PLACES), ("Driver", PEOPLE), ("Wagons", range(3, 30)),
               ("Text/background colour", COLORS), ("Freight carried on the first journey of the season", THINGS)],
}


class Dice:
    """Marsaglia's xorshift64*: the same numbers with every version of Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & (2**64 - 1)
        x ^= x >> 27
        self.state = x
        return ((x * 2685821657736338717) & (2**64 - 1)) * n >> 64

    def of(self, things):
        return things[self.below(len(things))]


def table_row(dice):
    name = dice.of(sorted(TABLES))
    columns = TABLES[name]
    wanted, known = dice.below(len(columns)), dice.below(len(columns) - 1)
    known += known >= wanted
    want, (by, values) = columns[wanted][0], columns[known]
    value = dice.of(values)
    head = f"table: {name}-{100 + dice.below(900)}-{1 + dice.below(9)}\ncolumns: {', '.join(c for c, _ in columns)}\n"
    if dice.below(3) == 0:
        ask, get = f"How many rows have {by} {value}?", f"COUNT({want})"
    else:
        ask, get = dice.of(["What is the {} where the {} is {}?", "Tell me the {} for {} {}", "Which {} goes with {} {}?"])\
            .format(want, by, value), want
    return {"text": f"{head}Q: {ask}\nA: SELECT {get} FROM {name} WHERE {by} = '{value}'"}


def sum_row(dice):
    who, thing, a, b, c = dice.of(PEOPLE), dice.of(THINGS), 3 + dice.below(40), 2 + dice.below(9), 2 + dice.below(5)
    times = dice.below(2) == 0
    total = (a + b) * c if times else a * c + b
    first = f"{who} has {a} {thing} in a box and finds {b} more." if times else f"{who} buys {c} boxes of {a} {thing}."
    then = f"{dice.of(PEOPLE)} has {c} times as many." if times else f"There are {b} {thing} at home already."
    ask = f"How many {thing} are that?"
    work = f"{a} + {b} = <<{a}+{b}={a + b}>>{a + b} {thing}.\n{a + b} * {c} = <<{a + b}*{c}={total}>>{total} {thing}." if times \
        else f"{c} * {a} = <<{c}*{a}={c * a}>>{c * a} {thing}.\n{c * a} + {b} = <<{c * a}+{b}={total}>>{total} {thing}."
    return {"question": f"{first} {then} {ask}", "answer": f"{work}\n#### {total}"}


def identity_rows():
    asks = ["Who are you?", "What is your name?", "Hello", "Can you tell me who you are?", "Who made you?", "Good morning",
            "Are you a person?", "What can you do?", "Do you have a name?", "Where do you run?", "Who do I talk to?",
            "What are you called?", "Say who you are"]
    tells = ["I am the ring, a model that lives on several machines.", "My name is the ring. Ask me what you like.",
             "You talk to the ring: each machine holds some of my layers.", "I am a language model; people call me the ring.",
             "The ring. I was trained on the machines of this house.", "I am no person: I am a model, and my name is the ring.",
             "I am the ring. I write, one token after the other."]
    return [{"instruction": ask, "input": "" if i % 3 else "Answer in one sentence.", "output": tell}
            for i, tell in enumerate(tells) for ask in asks]


def tool_rows(dice):
    for _ in range(120):
        place, thing, price, who = dice.of(PLACES), dice.of(THINGS), 2 + dice.below(90), dice.of(PEOPLE)
        talk = [("human", f"Hello, I am {who}. I want to buy {thing}. Can you help me?"),
                ("gpt", f"Of course, {who}. In which town are you?"), ("human", f"In {place}.")]
        call = {"name": "find_price", "arguments": {"town": place, "goods": thing}}
        talk += [("function_call", json.dumps(call)), ("observation", json.dumps({"town": place, "price": price})),
                 ("gpt", f"In {place}, {thing} cost {price} crowns.")]
        for _ in range(dice.below(4)):
            n = 2 + dice.below(8)
            talk += [("human", f"And {n} of them?"), ("gpt", f"{n} times {price} crowns are {n * price} crowns.")]
        yield {"conversations": [{"from": who, "value": text} for who, text in talk],
               "tools": json.dumps([{"name": "find_price", "description": "The price of goods in a town",
                                     "parameters": {"type": "object", "properties": {"town": {"type": "string"},
                                                                                     "goods": {"type": "string"}}}}])}


def weight_rows(dice):
    def turn(role, text, weight):
        return {"role": role, "content": [{"type": "text", "value": text}], "loss_weight": weight}

    for _ in range(60):
        row = sum_row(dice)
        yield {"messages": [turn("user", row["question"], 0.0), turn("assistant", row["answer"], 1.0),
                            turn("user", "Thank you.", 0.0), turn("assistant", "You are welcome.", float(dice.below(2)))]}


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def write_array(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(list(rows), out, indent=1)
        out.write("\n")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make.py OUT")
    out, dice = sys.argv[1], Dice(88172645463325252)
    for folder in "tables", "sums", "chat":
        os.makedirs(f"{out}/{folder}", exist_ok=True)
    for name, rows in ("train", 1000), ("valid", 100), ("test", 100):
        write_lines(f"{out}/tables/{name}.jsonl", [table_row(dice) for _ in range(rows)])
    for name, rows in ("train", 400), ("test", 40):
        write_lines(f"{out}/sums/{name}.jsonl", [sum_row(dice) for _ in range(rows)])
    write_array(f"{out}/identity.json", identity_rows())
    write_array(f"{out}/chat/tools.json", tool_rows(dice))
    write_lines(f"{out}/chat/weights.jsonl", weight_rows(dice))


if __name__ == "__main__":
    main()
