#!/usr/bin/env python3
"""Writes facts and questions about them, for models that answer: tests/bench/facts.py FOLDER

Each context holds a few facts about people, things and places. A question asks for one of the three,
so that the answer must be looked up in the context; no fact can be learnt by heart. The files:

  train.jsonl, valid.jsonl, test.jsonl   records: context, question, answer, answer_start
  valid.json                             the same as valid.jsonl in SQuAD's format
  train.txt, valid.txt, test.txt         "context Question: question Answer: answer", a line each
"""

import json
import pathlib
import random
import sys

NAMES = "Ann Bob Carl Dora Emil Fay Gus Hana Igor Jane Karl Lena Max Nina Otto Pia".split()
COLOURS = "red blue green white black old new small".split()
THINGS = "key cup book lamp coat ring map bell hat box drum kite".split()
PLACES = [f"{where} {what}"
          for where in ("in the", "behind the", "under the", "near the")
          for what in ("kitchen", "garden", "stairs", "old mill", "school", "white bridge", "barn")]
FACTS = (
    "{name} keeps the {thing} {place}.",
    "The {thing} of {name} is {place}.",
    "{place}, {name} has hidden the {thing}.",
)
SIZES = {"train": 20000, "valid": 500, "test": 1000}


def sentence(rng, fact):
    text = rng.choice(FACTS).format(**fact)
    return text[0].upper() + text[1:]


def example(rng):
    count = rng.randint(3, 4)
    things = rng.sample([f"{c} {t}" for c in COLOURS for t in THINGS], count)
    facts = [{"name": n, "thing": t, "place": p} for n, t, p in
             zip(rng.sample(NAMES, count), things, rng.sample(PLACES, count))]
    context = " ".join(sentence(rng, fact) for fact in facts)
    fact = rng.choice(facts)
    question, answer = rng.choice((
        (f"Where is the {fact['thing']}?", fact["place"]),
        (f"Who has the {fact['thing']}?", fact["name"]),
        (f"What does {fact['name']} have?", fact["thing"]),
    ))
    start = context.lower().index(answer.lower())
    return {"context": context, "question": question,
            "answer": context[start:start + len(answer)], "answer_start": start}


def squad(records):
    return {"version": "1.1", "data": [{"title": "facts", "paragraphs": [
        {"context": r["context"], "qas": [
            {"id": str(i), "question": r["question"],
             "answers": [{"text": r["answer"], "answer_start": r["answer_start"]}]}]}
        for i, r in enumerate(records)]}]}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    for name, size in SIZES.items():
        records = [example(rng) for _ in range(size)]
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(r) + "\n" for r in records)
        with open(folder / f"{name}.txt", "w", encoding="utf-8") as out:
            out.writelines(
                f"{r['context']} Question: {r['question']} Answer: {r['answer']}\n" for r in records)
        if name == "valid":
            (folder / "valid.json").write_text(json.dumps(squad(records)))


if __name__ == "__main__":
    main()
