"""Holds our reading of tokenizer.json to the `tokenizers` wheel on all of Multi30k, and both to the clock.

    python3 -P tests/bench/tokenizers_json.py TOKENIZE MULTI30K_FOLDER [KIND...]   # build/release/tests/tokenize

Trains one tokenizer of each kind on every eighth English and German training line, encodes all of these lines,
decodes their ids, and compares. Time is the processor's, of one thread, the best of three rounds from a fresh tokenizer.
"""

import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

ROUNDS = 3


def kinds_of():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "train_tokenizers.py")
    spec = importlib.util.spec_from_file_location("train_tokenizers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SIZE = 4000
    return module


def main():
    program, data, *wanted = sys.argv[1:]
    lines = []
    for side in ("en", "de"):
        with gzip.open(os.path.join(data, f"train.{side}.gz"), "rt", encoding="utf-8", newline="\n") as f:
            lines += [line.rstrip("\n") for line in f]
    text = ("\n".join(lines) + "\n").encode()
    train = kinds_of()
    size = sum(len(line.encode()) for line in lines) / 1e6
    print(f"{len(lines)} lines, {size:.1f} MB; vocabularies of {train.SIZE or 'a test'} pieces")
    bad = False
    for name, make in train.KINDS.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            make(lines[::8]).save(path)
            theirs = float("inf")
            for way in ("one by one", "as a batch"):
                def encode():
                    t = Tokenizer.from_file(path)
                    start = time.process_time()
                    if way == "one by one":
                        found = [t.encode(line, add_special_tokens=False).ids for line in lines]
                    else:
                        found = [e.ids for e in t.encode_batch_fast(lines, add_special_tokens=False)]
                    return time.process_time() - start, found
                runs = [encode() for _ in range(ROUNDS)]
                theirs = min(theirs, min(run[0] for run in runs))
                ids = runs[0][1]
            mine = subprocess.run([program, path, str(ROUNDS)], input=text, capture_output=True, check=True)
            ours = float(mine.stderr)
            found = [[int(id) for id in line.split()] for line in mine.stdout.decode().split("\n")[:-1]]
            wrong = sum(a != b for a, b in zip(ids, found)) + abs(len(ids) - len(found))
            tokenizer = Tokenizer.from_file(path)
            texts = subprocess.run([program, path, "--decode"], input=text, capture_output=True, check=True).stdout
            texts = [json.loads(line) for line in texts.decode().split("\n")[:-1]]
            differ = sum(tokenizer.decode(row) != one for row, one in zip(ids, texts))
            bad = bad or wrong or differ
            print(f"{name:14} {len(lines) - wrong} lines equal, {wrong} not; {differ} texts differ; "
                  f"{size / ours:5.1f} MB/s, the wheel {size / theirs:5.1f} MB/s: {theirs / ours:.2f} of its speed", flush=True)
    sys.exit(1 if bad else 0)


main()
