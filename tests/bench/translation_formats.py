#!/usr/bin/env python3
"""Encoder-decoders of transformers' kinds in CTranslate2: its greedy lines beside this program's.

    translation_formats.py TAPESTRY FOLDER [NAME]...

FOLDER has folders of transformers, each with an expected.json (tests/fixtures/huggingface_text). Each is imported,
exported, and translates the lines of expected.json with both programs. Prints how many lines are the same; the rest
is printed as tokens. Needs ctranslate2.
"""
import json
import os
import subprocess
import sys
import tempfile

import ctranslate2

NAMES = ["marian", "pegasus", "t5", "byt5", "nllb", "m2m100"]
MOST = 13


def ours(tapestry, model, lines):
    out = subprocess.run([tapestry, "translate", "--beam-size", "1", "--max-new-tokens", str(MOST), "--detail", "jsonl",
                          "--model", model], input="".join(line + "\n" for line in lines).encode(), stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True).stdout
    return [json.loads(line)["translations"] for line in out.split(b"\n") if line]


def compare(tapestry, source, folder):
    with open(source + "/expected.json", encoding="utf-8") as file:
        rows = [row for row in json.load(file) if row["line"].strip() and "<pad>" not in row["line"]]
    model, out = folder + "/imported", folder + "/ctranslate2"
    subprocess.run([tapestry, "import", source, "--output", model], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    subprocess.run([tapestry, "export", "--model", model, "--format", "ctranslate2", "--output", out], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out + "/shared_vocabulary.json", encoding="utf-8") as file:
        pieces = json.load(file)
    with open(out + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(source + "/config.json", encoding="utf-8") as file:
        rows_of_model = json.load(file)["vocab_size"]
    # What this program never writes.
    silent = [[piece] for piece in pieces if piece.startswith("<unused")]
    silent += [[config[key]] for key in ("unk_token", "bos_token") if config[key] and config[key] != config["eos_token"]]
    silent += [["<pad>"]] if "<pad>" in pieces else []
    assert len(pieces) == rows_of_model, (len(pieces), rows_of_model)
    translator = ctranslate2.Translator(out, device="cpu", intra_threads=1)
    begins = [config["bos_token"]] * config["add_source_bos"]
    tokens = [[pieces[i] for i in row["ids"][len(begins):-1]] for row in rows]  # it adds the end itself
    with open(source + "/expected.json", encoding="utf-8") as file:
        written = json.load(file)[0]["written"]
    language = pieces[written[1]] if source.endswith(("nllb", "m2m100")) else None
    found = translator.translate_batch(tokens, beam_size=1, max_decoding_length=MOST, suppress_sequences=silent,
                                       target_prefix=[[language]] * len(tokens) if language else None,
                                       max_input_length=0)
    same = 0
    for row, one, mine in zip(rows, found, ours(tapestry, model, [row["line"] for row in rows])):
        theirs = [token for token in one.hypotheses[0] if token != config["eos_token"]][1 if language else 0:]
        tokens = mine[0]["tokens"]
        count = min(len(theirs), len(tokens), MOST - 1)
        if theirs[:count] == tokens[:count]:
            same += 1
        else:
            print("  ", repr(row["line"]), theirs, tokens)
    print(f"{os.path.basename(source):8} {same} of {len(rows)} lines are the same", flush=True)


def main():
    for name in sys.argv[3:] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            compare(sys.argv[1], os.path.join(sys.argv[2], name), folder)


main()
