#!/usr/bin/env python3
"""Writes sums of two numbers below 100, for causal models that answer: tests/bench/sums.py FOLDER

Every pair of numbers is in one of the files only: train.jsonl, valid.jsonl and test.jsonl, records
with a, b and sum; and the same as train.txt, ..., lines "47 plus 38 is 85".
"""

import json
import pathlib
import random
import sys

COUNTS = {"valid": 500, "test": 1500, "train": 8000}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(a, b) for a in range(100) for b in range(100)]
    random.Random(1).shuffle(pairs)
    for name, count in COUNTS.items():
        part, pairs = pairs[:count], pairs[count:]
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"a": a, "b": b, "sum": a + b}) + "\n" for a, b in part)
        with open(folder / f"{name}.txt", "w", encoding="utf-8") as out:
            out.writelines(f"{a} plus {b} is {a + b}\n" for a, b in part)


if __name__ == "__main__":
    main()
