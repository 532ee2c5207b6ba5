#!/usr/bin/env python3
"""Makes a large parallel corpus out of a small one, to measure what loading costs.

    many_pairs.py PAIRS SOURCE.gz TARGET.gz OUT

writes OUT.source and OUT.target: the lines again and again, each time with the words of a line
turned by some places and two of them exchanged. The vocabulary stays that of the small corpus.
"""
import gzip
import random
import sys


def words_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.split() for line in lines]


def mixed(words, turn, draw):
    count = len(words)
    if count < 2:
        return words
    turn %= count
    out = words[turn:] + words[:turn]
    i, j = draw % count, draw // 64 % count
    out[i], out[j] = out[j], out[i]
    return out


def main():
    pairs, out = int(sys.argv[1]), sys.argv[4]
    sides = [words_of(sys.argv[2]), words_of(sys.argv[3])]
    random.seed(1)
    with open(out + ".source", "w", encoding="utf-8") as source, \
         open(out + ".target", "w", encoding="utf-8") as target:
        for at in range(pairs):
            line, turn = at % len(sides[0]), at // len(sides[0])
            draw = random.getrandbits(20)
            for words, file in zip(sides, (source, target)):
                file.write(" ".join(mixed(words[line], turn, draw)) + "\n")


if __name__ == "__main__":
    main()
