#!/usr/bin/env python3
"""Writes facts and questions about them, for models that answer: tests/bench/facts.py FOLDER

Each context says where a few people are. A question asks for a place or for a person, and the answer
must be looked up in the context: no fact can be learnt by heart. The files:

  train.jsonl, valid.jsonl, test.jsonl   records: context, question, answer, answer_start
  valid.json                             the same as valid.jsonl in SQuAD's format
  train.txt, valid.txt, test.txt         "context Question: question Answer: answer", a line each
"""

import json
import pathlib
import random
import sys

NAMES = "Ann Bob Carl Dora Emil Fay Gus Hana Igor Jane Karl Lena Max Nina Otto Pia".split()
PLACES = ("kitchen garden school barn tower mill library cellar attic harbour market station church "
          "castle forest bakery").split()
COUNTS = {"train": 20000, "valid": 500, "test": 1000}


def example(rng):
    count = rng.randint(2, 4)
    names = rng.sample(NAMES, count)
    places = [f"the {place}" for place in rng.sample(PLACES, count)]
    context = " ".join(f"{name} is in {place}." for name, place in zip(names, places))
    i = rng.randrange(count)
    question, answer = rng.choice((
        (f"Where is {names[i]}?", places[i]),
        (f"Who is in {places[i]}?", names[i]),
    ))
    return {"context": context, "question": question,
            "answer": answer, "answer_start": context.index(answer)}


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
    for name, count in COUNTS.items():
        records = [example(rng) for _ in range(count)]
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(r) + "\n" for r in records)
        with open(folder / f"{name}.txt", "w", encoding="utf-8") as out:
            out.writelines(
                f"{r['context']} Question: {r['question']} Answer: {r['answer']}\n" for r in records)
        if name == "valid":
            (folder / "valid.json").write_text(json.dumps(squad(records)))


if __name__ == "__main__":
    main()
