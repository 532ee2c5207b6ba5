#!/usr/bin/env python3
"""A causal GGUF file (Llama's style) through `tapestry import` and home again, beside the programs that such
files are for.

    gguf_models.py TAPESTRY FILE.gguf LINES [FOLDER]     LINES: texts, one a line (packed is fine)

Needs the wheels gguf, torch, transformers and ctranslate2; llama-cpp-python, where it is there, answers with
the exported files. FOLDER is made, with everything that is written (default: gguf_models).
"""
import gzip
import os
import pathlib
import subprocess
import sys

import numpy as np

DTYPES = ["float32", "float16", "bfloat16", "q8_0", "q4_0"]
TOKENS = 40
PROMPTS = """The capital of France is
Once upon a time, there was a little
Water boils at a temperature of
The three primary colours are
In 1969, humans first
A good way to learn programming is
The largest planet in the solar system
def fibonacci(n):
Dear Sir or Madam, I am writing to
The most important thing about friendship
Two plus two equals
Photosynthesis is the process by which
The best recipe for pancakes begins with
William Shakespeare was
My favourite season is autumn because
The difference between a virus and a bacterium
To solve a quadratic equation, you
The history of the Roman Empire
A cat and a dog
Machine translation means""".splitlines()


def run(*words, text=None):
    return subprocess.run([str(word) for word in words], input=text, text=True, check=True, stdout=subprocess.PIPE).stdout


def one_line(text):
    return text.replace("\n", "\\n").strip()


def equal(a, b):
    return f"{sum(x == y for x, y in zip(a, b))} of {len(a)}"


def transformers_of(file):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    folder, name = os.path.split(os.path.abspath(file))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=name)


def compare_tensors(model, tokenizer, folder, lines):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    theirs = model.state_dict()
    same = sum(name in ours and torch.equal(values, ours[name]) for name, values in theirs.items())
    print(f"tensors that transformers reads from the file: {same} of {len(theirs)} are ours, to the bit")
    cuts = AutoTokenizer.from_pretrained(folder)
    print("lines with equal tokens", equal([tokenizer(t).input_ids for t in lines], [cuts(t).input_ids for t in lines]))
    return cuts


def greedy(model, tokenizer):
    import torch
    texts = []
    end = tokenizer.eos_token_id
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, repetition_penalty=1.0, eos_token_id=end,
                                 pad_token_id=end)
        texts.append(one_line(tokenizer.decode(out[0], skip_special_tokens=True)))
    return texts


def compare_quantised(folder):
    from gguf import GGMLQuantizationType as Type
    from gguf import GGUFReader, quants
    kinds = {"float16": Type.F16, "bfloat16": Type.BF16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0}
    whole = {t.name: t for t in GGUFReader(folder / "float32" / "model.gguf").tensors}
    for dtype, kind in kinds.items():
        file = folder / dtype / "model.gguf"
        same, count = 0, 0
        for tensor in GGUFReader(file).tensors:
            if tensor.tensor_type != kind:
                continue
            expected = np.ascontiguousarray(quants.quantize(whole[tensor.name].data, kind)).view(np.uint8).ravel()
            same += np.array_equal(expected, np.ascontiguousarray(tensor.data).view(np.uint8).ravel())
            count += 1
        print(f"{dtype}: {file.stat().st_size / 1e6:.1f} MB, {same} of {count} tensors as gguf quantises them")


def log_probabilities(scores, ids):
    scores = np.asarray(scores, dtype=np.float64)
    scores = scores - scores.max(1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    return scores[np.arange(len(ids) - 1), ids[1:]]


def with_llama_cpp(folder, expected, lines, end):
    from llama_cpp import Llama
    for cache in ("float32", "float16"):
        kind = {"float32": 0, "float16": 1}[cache]
        for dtype in DTYPES if cache == "float32" else DTYPES[:2]:
            model = Llama(str(folder / dtype / "model.gguf"), n_ctx=512, n_threads=2, verbose=False, logits_all=True,
                          type_k=kind, type_v=kind, flash_attn=False)
            texts = []
            for prompt in PROMPTS:
                ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
                model.reset()
                model.eval(ids)
                for _ in range(TOKENS):
                    token = int(np.argmax(model.scores[model.n_tokens - 1]))
                    if token == end:
                        break
                    ids.append(token)
                    model.eval([token])
                texts.append(one_line(model.detokenize(ids).decode(errors="replace")))
            total, count = 0.0, 0
            for line in lines:
                ids = model.tokenize(line.encode(), add_bos=False, special=False)
                if len(ids) < 2:
                    continue
                model.reset()
                model.eval(ids)
                total -= log_probabilities(model.scores[:len(ids) - 1], ids).sum()
                count += len(ids) - 1
            print(f"llama.cpp, {dtype}, its cache in {cache}: {equal(expected, texts)} texts, perplexity "
                  f"{np.exp(total / count):.2f} of {count} tokens")


def lower_precision(tapestry, folder, cuts, lines):
    import ctranslate2
    import torch
    from transformers import AutoModelForCausalLM
    ids = [cuts(line).input_ids for line in lines]
    for dtype in DTYPES[:3]:
        run(tapestry, "export", "--model", folder / "ours", "--dtype", dtype, "--output", folder / f"hf_{dtype}")
        run(tapestry, "export", "--model", folder / "ours", "--format", "ctranslate2", "--dtype", dtype, "--output",
            folder / f"ct2_{dtype}")
        stored = AutoModelForCausalLM.from_pretrained(folder / f"hf_{dtype}", dtype="auto").dtype
        model = AutoModelForCausalLM.from_pretrained(folder / f"hf_{dtype}", dtype=torch.float32).eval()
        with torch.no_grad():
            theirs = [log_probabilities(model(torch.tensor([row])).logits[0, :-1].numpy(), row) for row in ids]
        generator = ctranslate2.Generator(str(folder / f"ct2_{dtype}"), compute_type="float32")
        scored = generator.score_batch([cuts.convert_ids_to_tokens(row) for row in ids])
        print(f"{dtype} (folder: {stored}): nll {-np.concatenate(theirs).mean():.4f}, ctranslate2 "
              f"{-np.concatenate([row.log_probs for row in scored]).mean():.4f}")


def main(tapestry, file, text, folder="gguf_models"):
    os.environ["HF_HUB_OFFLINE"] = "1"
    folder = pathlib.Path(folder)
    folder.mkdir()
    opener = gzip.open if text.endswith(".gz") else open
    with opener(text, "rt", encoding="utf-8") as texts:
        lines = [line.rstrip("\n") for line in texts][:60]
    run(tapestry, "import", file, "--output", folder / "ours")
    run(tapestry, "export", "--model", folder / "ours", "--output", folder / "home")
    for dtype in DTYPES:
        run(tapestry, "export", "--model", folder / "ours", "--format", "gguf", "--dtype", dtype, "--output",
            folder / dtype)
    run(tapestry, "import", folder / "float32", "--output", folder / "back")
    run(tapestry, "export", "--model", folder / "back", "--format", "gguf", "--output", folder / "again")
    same = (folder / "again" / "model.gguf").read_bytes() == (folder / "float32" / "model.gguf").read_bytes()
    print("float32, in and home again:", "the same bytes" if same else "OTHER BYTES")
    model, tokenizer = transformers_of(file)
    cuts = compare_tensors(model, tokenizer, folder / "home", lines)
    expected = greedy(model, tokenizer)
    ours = run(tapestry, "generate", "--model", folder / "ours", "--max-new-tokens", TOKENS, "--beam-size", 1,
               text="\n".join(PROMPTS) + "\n").splitlines()
    print("greedy texts equal to transformers':", equal(expected, [line.strip() for line in ours]))
    compare_quantised(folder)
    lower_precision(tapestry, folder, cuts, lines)
    try:
        with_llama_cpp(folder, expected, lines, tokenizer.eos_token_id)
    except ImportError:
        print("llama-cpp-python is not there")


if __name__ == "__main__":
    main(*sys.argv[1:])
