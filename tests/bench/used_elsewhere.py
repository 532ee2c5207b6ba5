#!/usr/bin/env python3
"""Models trained here and used by other programs, and the other way round; what it prints is in README.md.

    used_elsewhere.py BINARY translation RUN SOURCE [LINES]   greedy text and scores of beam 5: transformers, ctranslate2
    used_elsewhere.py BINARY text RUN PROMPTS                 greedy text: transformers; logits: the GGUF file
    used_elsewhere.py BINARY images RUN LIST [COUNT]          classes: transformers
    used_elsewhere.py BINARY adapters RUN                     logits: peft beside the exported base, RUN begins with init_from
    used_elsewhere.py BINARY gpt2 TEXT [SECONDS]              trained with transformers: perplexity, then fine-tuned here
    used_elsewhere.py BINARY bert TEXT [SECONDS]              trained with transformers: fill-mask, then fine-tuned here

Needs the wheels torch, transformers, tokenizers, sentencepiece, ctranslate2, gguf, peft and pillow.
"""
import gzip
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import transformers

BINARY = ""
MOST = 127  # tokens of a translation, in all three programs
WORK = os.environ.get("WORK") or tempfile.mkdtemp(prefix="used_elsewhere_")
torch.set_num_threads(1)


def path(name):
    return os.path.join(WORK, name)


def lines_of(name):
    with (gzip.open if name.endswith(".gz") else open)(name, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def tapestry(*arguments, text=""):
    done = subprocess.run([BINARY, *map(str, arguments)], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def exported(run, name, *more):
    shutil.rmtree(path(name), ignore_errors=True)
    tapestry("export", "--model", run, "--output", path(name), *more)
    return path(name)


def written(name, lines):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path(name)


def same(what, ours, theirs):
    equal = sum(a == b for a, b in zip(ours, theirs))
    print(f"{what}: {equal} of {len(ours)} texts are the same")
    for i, (a, b) in [(i, pair) for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]][:5]:
        print(f"   text {i + 1}\n     here  {a[:200]}\n     there {b[:200]}")


# ---- Trained here

def search(model, tokenizer, texts, beams):
    """N-best lists of transformers: (text, sum of log-probabilities by length, pieces)."""
    found = []
    with torch.no_grad():
        for i in range(0, len(texts), 32):
            batch = tokenizer(texts[i:i + 32], return_tensors="pt", padding=True)
            batch.pop("token_type_ids", None)
            out = model.generate(**batch, num_beams=beams, num_return_sequences=beams, max_length=MOST + 1,
                                 output_scores=True, return_dict_in_generate=True)
            scores = out.sequences_scores.tolist() if beams > 1 else [0] * len(out.sequences)
            texts_out = tokenizer.batch_decode(out.sequences, skip_special_tokens=True)
            special = set(tokenizer.all_special_ids)
            pieces = [tuple(tokenizer.convert_ids_to_tokens([i for i in row if i not in special]))
                      for row in out.sequences.tolist()]
            pairs = list(zip(texts_out, scores, pieces))
            found += [pairs[j:j + beams] for j in range(0, len(pairs), beams)]
    return found


def with_ctranslate2(folder, texts, beams):
    import ctranslate2
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
    translator = ctranslate2.Translator(folder, device="cpu", intra_threads=1)
    found = translator.translate_batch([pieces.encode(t, out_type=str) for t in texts], beam_size=beams,
                                       num_hypotheses=beams, return_scores=True, disable_unk=True,
                                       max_batch_size=32, max_decoding_length=MOST)
    return [[(pieces.decode(h), s, tuple(h)) for h, s in zip(f.hypotheses, f.scores)] for f in found]


def compare_scores(what, ours, theirs):
    common = largest = first = 0
    for a, b in zip(ours, theirs):
        scores = {pieces: score for _, score, pieces in a}  # a text may come from several rows of pieces
        for _, score, pieces in b:
            if pieces in scores:
                common += 1
                largest = max(largest, abs(score - scores[pieces]))
        first += a[0][0] == b[0][0]
    print(f"{what}, beam 5: {common} hypotheses in both lists of {sum(map(len, ours))}, "
          f"scores differ by {largest:.1e} at most; the best is the same in {first} of {len(ours)} lines")


def translation(run, source, count="1000"):
    texts = lines_of(source)[:int(count)]
    text = "\n".join(texts) + "\n"
    folder, ct2 = exported(run, "hf"), exported(run, "ct2", "--format", "ctranslate2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    print("class", type(model).__name__)
    longest = ["--max-length-ratio", 100, "--max-new-tokens", MOST]
    greedy = tapestry("translate", "--model", run, "--beam-size", 1, *longest, text=text).splitlines()
    same("transformers, greedy", greedy, [n[0][0] for n in search(model, tokenizer, texts, 1)])
    same("ctranslate2, greedy", greedy, [n[0][0] for n in with_ctranslate2(ct2, texts, 1)])
    some = texts[:200]
    out = tapestry("translate", "--model", run, "--beam-size", 5, "--n-best", 5, "--length-penalty-type", "average",
                   "--length-penalty", 1, "--detail", "jsonl", *longest,
                   text="\n".join(some) + "\n").splitlines()
    ours = [[(h["text"], h["score"], tuple(h["tokens"])) for h in json.loads(line)["translations"]] for line in out]
    compare_scores("transformers", ours, search(model, tokenizer, some, 5))
    compare_scores("ctranslate2", ours, with_ctranslate2(ct2, some, 5))


def text(run, prompts):
    starts = lines_of(prompts)
    folder, gguf = exported(run, "hf"), exported(run, "gguf", "--format", "gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    # transformers 5.23 reads neither the vocabulary's size nor the positions of a GPT-2 from a GGUF file.
    known = {"config": model.config} if model.config.model_type == "gpt2" else {}
    other = transformers.AutoModelForCausalLM.from_pretrained(gguf, gguf_file="model.gguf", **known).eval()
    ours, theirs, difference = [], [], 0
    for start in starts:
        ids = tokenizer(start, return_tensors="pt")["input_ids"]
        new = model.config.max_position_embeddings - ids.shape[1]
        ours.append(tapestry("generate", "--model", run, "--no-do-sample", "--beam-size", 1, "--max-new-tokens", new,
                             "--prompt", start).rstrip("\n"))
        with torch.no_grad():
            out = model.generate(ids, max_new_tokens=new, do_sample=False)
            difference = max(difference, (model(out).logits - other(out).logits).abs().max().item())
        theirs.append(tokenizer.decode(out[0], skip_special_tokens=True).rstrip("\n"))
    print("class", type(model).__name__, "and", type(other).__name__, "of the GGUF file")
    same("transformers, greedy", ours, theirs)
    print(f"GGUF: logits differ by {difference:.1e} at most")


def images(run, listing, count="1000"):
    """LIST: lines of label, tab, path."""
    from PIL import Image
    rows = [line.split("\t") for line in lines_of(listing)][:int(count)]
    folder = exported(run, "hf")
    with open(f"{folder}/preprocessor_config.json") as file:
        seen = json.load(file)
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    ours = tapestry("classify", "--model", run, text="".join(row[1] + "\n" for row in rows)).splitlines()
    theirs, probabilities, right = [], [], 0
    for label, name in rows:
        picture = numpy.asarray(Image.open(name), dtype=numpy.float64) * seen["rescale_factor"]
        picture = picture.reshape(*picture.shape[:2], -1)
        pixels = (picture - seen["image_mean"]) / seen["image_std"]
        with torch.no_grad():
            logits = model(torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)[None]).logits[0]
        best = int(logits.argmax())
        theirs.append(model.config.id2label[best])
        probabilities.append(float(logits.softmax(0)[best]))
        right += theirs[-1] == label
    classes = [line.split("\t")[0] for line in ours]
    far = max(abs(float(line.split("\t")[1]) - p) for line, p in zip(ours, probabilities))
    print(f"{type(model).__name__}: {sum(a == b for a, b in zip(classes, theirs))} of {len(rows)} classes are the same, "
          f"{right} right; probabilities differ by {far:.1e} at most")


def adapters(run):
    """The run's own config names what it began with."""
    import peft
    import yaml
    with open(f"{run}/config.yaml") as file:
        start = yaml.safe_load(file)["init_from"]
    foreign = os.path.exists(f"{start}/config.json") and "model_type" in json.load(open(f"{start}/config.json"))
    base = start if foreign else exported(start, "base")
    folder, merged = exported(run, "peft", "--format", "peft"), exported(run, "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(base).eval()
    ids = torch.randint(4, model.config.vocab_size, (4, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before = model(ids).logits
        whole = transformers.AutoModelForCausalLM.from_pretrained(merged).eval()(ids).logits
        adapted = peft.PeftModel.from_pretrained(model, folder).eval()(ids).logits
    print(f"adapters move the logits by {(adapted - before).abs().max():.2f}; those of peft and of the merged model "
          f"differ by {(adapted - whole).abs().max():.1e} at most")
    shutil.rmtree(path("back"), ignore_errors=True)
    tapestry("import", folder, "--base", base, "--output", path("back"))
    again = exported(path("back"), "again", "--format", "peft")
    from safetensors.torch import load_file
    a, b = (load_file(f"{f}/adapter_model.safetensors") for f in (folder, again))
    print("imported and exported again:", "the same bits" if a.keys() == b.keys() and
          all(torch.equal(a[k], b[k]) for k in a) else "OTHER TENSORS")


# ---- Trained there

def characters(text, specials):
    from tokenizers import Tokenizer, decoders, models
    kinds = sorted(set(text))
    vocabulary = {piece: i for i, piece in enumerate(specials + kinds)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer, vocabulary


def our_characters(text, mask):
    """The same vocabulary as a file of `tokenizer: {type: char}`."""
    return "tapestry characters 1\n" + "<mask>\n" * mask + "".join(f"U+{ord(c):04X}\n" for c in sorted(set(text)))


SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
BLOCK = 64


def trained(model, ids, seconds, inputs_of):
    """Blocks of BLOCK characters from random places, until the time is over."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    end, step, loss = time.time() + float(seconds), 0, None
    model.train()
    while time.time() < end:
        at = torch.randint(0, len(ids) - BLOCK, (16,), generator=generator)
        rows = torch.stack([ids[i:i + BLOCK] for i in at])
        loss = model(**inputs_of(rows, generator)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    print(f"{type(model).__name__}: {step} updates with transformers, loss {loss.item():.3f}")
    return model.eval()


def saved(model, tokenizer, text, **more):
    """The folder as save_pretrained() leaves it, and the tokenizer that Tapestry reads beside it."""
    folder = path("theirs")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>",
                                         bos_token="<s>", eos_token="</s>", **more).save_pretrained(folder)
    with open(f"{folder}/tokenizer.txt", "w", encoding="utf-8") as file:
        file.write(our_characters(text, "mask_token" in more))
    shutil.rmtree(path("imported"), ignore_errors=True)
    tapestry("import", folder, "--output", path("imported"))
    return folder


def fine_tuned(config, folder, more):
    """A hundred updates here, from the folder; then taken home again."""
    shutil.rmtree(path("run"), ignore_errors=True)
    done = subprocess.run([BINARY, "train", config, f"init_from={folder}", f"output_dir={path('run')}",
                           "training.max_steps=100", "training.eval_steps=100", "training.save_steps=100",
                           "training.warmup_steps=0", "threads=1", *more], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    last = [line for line in done.stderr.splitlines() if "validation" in line][-1]
    print("fine-tuned here:", last.split("validation ")[1])
    exported(path("run"), "home")
    return path("home")


def gpt2(text_file, seconds="180"):
    text = open(text_file, encoding="utf-8").read()
    cut = int(len(text) * 0.9)
    tokenizer, vocabulary = characters(text, SPECIALS)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=len(vocabulary), n_positions=BLOCK, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=None, eos_token_id=3, pad_token_id=0))
    ids = torch.tensor(tokenizer.encode(text[:cut]).ids)
    trained(model, ids, seconds, lambda rows, _: {"input_ids": rows, "labels": rows})
    folder = saved(model, tokenizer, text)
    held = written("valid.txt", [text[cut:]])
    # The same blocks: each predicts all of its characters but the first of the text.
    out = tapestry("evaluate", "--model", path("imported"), "--data", f"text={held}", "documents=file")
    print("evaluate, here:", " ".join(out.split()))
    valid = tokenizer.encode(open(held, encoding="utf-8").read()).ids
    total = tokens = 0
    with torch.no_grad():
        for begin in range(0, len(valid) - 1, BLOCK):
            block = torch.tensor([valid[begin:begin + BLOCK + 1]])
            logits = model(block[:, :-1]).logits
            total += torch.nn.functional.cross_entropy(logits[0].double(), block[0, 1:], reduction="sum").item()
            tokens += block.shape[1] - 1
    print(f"transformers: nll {total / tokens:.6f} ppl {math.exp(total / tokens):.6f} of {tokens} characters")
    home = fine_tuned("configs/shakespeare_char.yaml", folder,
                      [f"data.train.text={text_file}", f"data.valid.text={text_file}", "model.bias=true",
                       "model.hidden_act=gelu_tanh", "training.learning_rate=3e-4"])
    again = transformers.AutoModelForCausalLM.from_pretrained(home)
    print("and home again:", type(again).__name__)


def bert(text_file, seconds="180"):
    text = open(text_file, encoding="utf-8").read()
    cut = int(len(text) * 0.9)
    tokenizer, vocabulary = characters(text, SPECIALS + ["<mask>"])
    tokenizer.add_special_tokens(["<mask>"])
    mask = vocabulary["<mask>"]
    torch.manual_seed(1)
    model = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=BLOCK + 2, hidden_dropout_prob=0, attention_probs_dropout_prob=0, pad_token_id=0,
        bos_token_id=2, eos_token_id=3))

    def masked(rows, generator):
        hidden = torch.rand(rows.shape, generator=generator) < 0.15
        hidden[:, 0] = False
        labels = torch.where(hidden, rows, torch.full_like(rows, -100))
        return {"input_ids": torch.where(hidden, torch.full_like(rows, mask), rows), "labels": labels}

    # Our rows begin with bos.
    ids = torch.tensor(tokenizer.encode(text[:cut]).ids)
    first = torch.full((16, 1), 2)
    trained(model, ids, seconds,
            lambda rows, generator: masked(torch.cat([first, rows[:, :-1]], 1), generator))
    folder = saved(model, tokenizer, text, mask_token="<mask>")
    random.seed(1)
    asked = []
    for line in random.sample([line for line in text[cut:].splitlines() if 20 < len(line) < BLOCK], 100):
        at = random.randrange(1, len(line) - 1)
        asked.append(line[:at] + "<mask>" + line[at + 1:])
    out = tapestry("fill-mask", "--model", path("imported"), "--top-k", 5, text="\n".join(asked) + "\n")
    ours = out.splitlines()
    same_words = far = 0
    for line, answer in zip(asked, ours):
        with torch.no_grad():
            row = torch.tensor([[2] + tokenizer.encode(line).ids])
            logits = model(row).logits[0, row[0].tolist().index(mask)]
        top = logits.softmax(0).topk(5)
        theirs = [(tokenizer.id_to_token(i), p) for p, i in zip(top.values.tolist(), top.indices.tolist())]
        found = filled(answer)
        same_words += [w for w, _ in found] == [w for w, _ in theirs]
        far = max([far] + [abs(p - dict(theirs).get(w, p)) for w, p in found])
    print(f"fill-mask: the same five characters in {same_words} of {len(asked)} lines, probabilities differ by {far:.1e} at most")
    home = fine_tuned("configs/bert_fortunes.yaml", folder,
                      [f"data.train={{text: {text_file}, documents: file, range: [0, 0.9]}}",
                       f"data.valid={{text: {text_file}, documents: file, range: [0.9, 1]}}", f"data.block_size={BLOCK}",
                       "tokenizer={type: char}", "model.norm_position=post", "model.position_embedding=learned",
                       f"model.max_position_embeddings={BLOCK + 2}", "model.scale_embeddings=false",
                       "model.norm_eps=1e-12", "training.learning_rate=3e-4"])
    again = transformers.AutoModelForMaskedLM.from_pretrained(home)
    print("and home again:", type(again).__name__)


def filled(line):
    """A line of fill-mask: a word, a space and its probability, two spaces, the next word."""
    return [(word, float(probability)) for word, probability in re.findall(r"(\S| ) (\d\.\d+)(?:  |$)", line)]


COMMANDS = {"translation": translation, "text": text, "images": images, "adapters": adapters, "gpt2": gpt2, "bert": bert}
if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] not in COMMANDS:
        sys.exit(__doc__)
    BINARY = sys.argv[1]
    os.makedirs(WORK, exist_ok=True)
    COMMANDS[sys.argv[2]](*sys.argv[3:])
