#!/usr/bin/env python3
"""Loads what `tapestry export` wrote with the libraries that it is for.

    interop.py tokens FOLDER TEXT            ids of tokenizer.json against `tapestry`'s SentencePiece model
    interop.py translate FOLDER SOURCE OUT [BEAMS]  transformers, on a Hugging Face folder
    interop.py ctranslate2 FOLDER SOURCE OUT [BEAMS]
    interop.py generate FOLDER PROMPT TOKENS        transformers, greedy
    interop.py gguf FOLDER GGUF                     logits of the folder and of model.gguf, largest difference
    interop.py compare A B                          share of equal lines

Needs the wheels torch, transformers, tokenizers, sentencepiece, ctranslate2 and gguf.
"""
import gzip
import sys


def lines(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def tokens(folder, text):
    import sentencepiece
    from tokenizers import Tokenizer
    theirs = Tokenizer.from_file(f"{folder}/tokenizer.json")
    ours = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
    texts = lines(text)
    found = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    wrong = [t for t, ids in zip(texts, found) if ids != ours.encode(t)]
    print(f"{len(texts)} lines, {len(wrong)} differ", wrong[:3])


def translate(folder, source, out, beams="1"):
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    texts, result = lines(source), []
    with torch.no_grad():
        for i in range(0, len(texts), 50):
            batch = tokenizer(texts[i:i + 50], return_tensors="pt", padding=True)
            batch.pop("token_type_ids", None)
            ids = model.generate(**batch, num_beams=int(beams), max_length=128)
            result += tokenizer.batch_decode(ids, skip_special_tokens=True)
    open(out, "w", encoding="utf-8").write("\n".join(result) + "\n")


def with_ctranslate2(folder, source, out, beams="1"):
    import ctranslate2
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
    translator = ctranslate2.Translator(folder, device="cpu", intra_threads=1)
    batch = [pieces.encode(t, out_type=str) for t in lines(source)]
    found = translator.translate_batch(batch, beam_size=int(beams), disable_unk=True, max_batch_size=64)
    result = [pieces.decode(f.hypotheses[0]) for f in found]
    open(out, "w", encoding="utf-8").write("\n".join(result) + "\n")


def generate(folder, prompt, count):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    batch = tokenizer(prompt, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        ids = model.generate(**batch, max_new_tokens=int(count), do_sample=False)
    print(tokenizer.decode(ids[0], skip_special_tokens=True))


def gguf(folder, file):
    import torch
    from transformers import AutoModelForCausalLM
    a = AutoModelForCausalLM.from_pretrained(folder).eval()
    b = AutoModelForCausalLM.from_pretrained(file.rsplit("/", 1)[0], gguf_file=file.rsplit("/", 1)[1]).eval()
    ids = torch.randint(4, a.config.vocab_size, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        print("largest difference of logits", (a(ids).logits - b(ids).logits).abs().max().item())


def compare(a, b):
    x, y = lines(a), lines(b)
    equal = sum(p == q for p, q in zip(x, y))
    print(f"{equal} of {max(len(x), len(y))} lines are equal")


COMMANDS = {"tokens": tokens, "translate": translate, "ctranslate2": with_ctranslate2, "generate": generate,
            "gguf": gguf, "compare": compare}
if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
