"""The whole way of a Hugging Face folder: made by transformers, imported, used, trained on and exported.

    python3 -P tests/bench/there_and_back.py TAPESTRY MULTI30K_FOLDER [WORK]    # TAPESTRY: the binary

For a tiny random model of each class, with a tokenizer of its kind and more rows than tokens: what `generate`,
`score`, `evaluate` and `fill-mask` say must be what transformers says, to 1e-4; then a few updates with
init_from, `export`, and the same comparison with the exported folder, which transformers loads with its tokenizer.
Needs the wheels torch, transformers and tokenizers.
"""

import gzip
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS = ["A man in a blue shirt", "Two young people", "The dog <s> runs", "caf\u00e9 \u4e2d\u6587 \U0001f600"]
ROWS = 520  # of the embeddings: more than there are tokens
NEW_TOKENS = 12


def tokenizers_of(lines, folder):
    path = os.path.join(HERE, "..", "fixtures", "train_tokenizers.py")
    spec = importlib.util.spec_from_file_location("train_tokenizers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SIZE = 500
    kinds = {}
    for name in ("gpt2", "llama3", "unigram_bytes", "bert", "roberta"):
        kinds[name] = os.path.join(folder, name + ".json")
        module.KINDS[name](lines).save(kinds[name])
    return kinds


def models():
    sizes = {"vocab_size": ROWS, "initializer_range": 0.3}
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    t = transformers
    yield ("gpt2", "gpt2", "clm", t.GPT2LMHeadModel(t.GPT2Config(
        **sizes, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)),
        {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})
    yield ("llama", "llama3", "clm", t.LlamaForCausalLM(t.LlamaConfig(
        **sizes, **small, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1,
        pad_token_id=None)), {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})
    wide = dict(sizes, vocab_size=800)
    yield ("llama", "unigram_bytes", "clm", t.LlamaForCausalLM(t.LlamaConfig(
        **wide, **small, max_position_embeddings=64, bos_token_id=1, eos_token_id=1, pad_token_id=0)),
        {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})
    yield ("bert", "bert", "mlm", t.BertForMaskedLM(t.BertConfig(**sizes, **small, max_position_embeddings=64)),
           {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]",
            "mask_token": "[MASK]"})
    yield ("roberta", "roberta", "mlm", t.RobertaForMaskedLM(t.RobertaConfig(
        **sizes, **small, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
        eos_token_id=2)),
        {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>",
         "unk_token": "<unk>", "mask_token": "<mask>"})


class Binary:
    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, text=""):
        run = subprocess.run([self.path, *arguments], input=text.encode(), capture_output=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(arguments)} ended with {run.returncode}:\n{run.stderr.decode()}")
        return run.stdout.decode()


def log_probabilities(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def expect(what, ours, theirs, tolerance=1e-4):
    bad = abs(ours - theirs) > tolerance * max(1, abs(theirs))
    if bad:
        sys.exit(f"{what}: {ours}, transformers says {theirs}")


def causal(binary, checkpoint, model, tokenizer, text_file, block):
    ids_of = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    framed = tokenizer.encode("")
    eos = tokenizer.eos_token_id
    begin = framed[:1] if framed and framed != [eos] else [tokenizer.bos_token_id]
    if tokenizer.bos_token_id == eos:
        begin = [eos]
    before = [] if not framed or framed == [eos] else framed
    # generate
    special = {tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id} - {None, eos}
    banned = special | set(range(len(tokenizer), model.config.vocab_size))
    found = binary("generate", "--model", checkpoint, "--no-do-sample", "--beam-size", "1", "--max-new-tokens",
                   str(NEW_TOKENS), "--detail", "jsonl", text="".join(p + "\n" for p in PROMPTS))
    for prompt, line in zip(PROMPTS, found.splitlines()):
        ids = before + ids_of(prompt)
        wanted = []
        for _ in range(NEW_TOKENS):
            scores = log_probabilities(model, ids + wanted)[-1]
            scores[list(banned)] = -math.inf
            wanted.append(int(scores.argmax()))
            if wanted[-1] == eos:
                break
        ours = json.loads(line)["continuations"][0]["tokens"]
        theirs = tokenizer.convert_ids_to_tokens([i for i in wanted if i != eos])
        if ours != theirs:
            sys.exit(f"generate {prompt!r}: {ours}, transformers {theirs}")
    # score
    found = binary("score", "--model", checkpoint, "--target", "-", text="".join(p + "\n" for p in PROMPTS))
    for prompt, line in zip(PROMPTS, found.splitlines()):
        ids = begin + ids_of(prompt) + [eos]
        rows = log_probabilities(model, ids[:-1])
        expect(f"score of {prompt!r}", float(line.split("\t")[0]),
               float(sum(rows[i, t] for i, t in enumerate(ids[1:]))))
    # evaluate
    stream = []
    border = [eos] + (begin if begin != [eos] and framed[-1:] != [eos] else [])
    with open(text_file, encoding="utf-8") as f:
        for i, line in enumerate(f.read().splitlines()):
            stream += (border if i else []) + ids_of(line)
    total = 0.0
    for at in range(0, len(stream) - 1, block):
        inputs, targets = stream[at:min(at + block, len(stream) - 1)], stream[at + 1:at + 1 + block]
        rows = log_probabilities(model, inputs)
        total -= float(sum(rows[i, t] for i, t in enumerate(targets)))
    ours = json.loads(binary("evaluate", "--model", checkpoint, "--text", text_file, "--json"))
    expect("perplexity", ours["perplexity"], math.exp(total / (len(stream) - 1)))
    return f"perplexity {ours['perplexity']:.4f}"


def masked(binary, checkpoint, model, tokenizer, text_file, block):
    del text_file, block
    mask = tokenizer.mask_token
    lines = [f"A {mask} in a blue shirt .", f"Two {mask} people {mask}"]
    found = binary("fill-mask", "--model", checkpoint, "--top-k", "4", text="".join(line + "\n" for line in lines))
    for line, answer in zip(lines, found.splitlines()):
        ids = tokenizer.encode(line)
        rows = log_probabilities(model, ids)[:, :].exp()
        places = [i for i, id in enumerate(ids) if id == tokenizer.mask_token_id]
        for place, guesses in zip(places, answer.split(" | "), strict=True):
            best = rows[place].topk(4)
            # A guess is a word, which may begin with a space, and its probability.
            ours = [float(part) for part in guesses.split() if part.count(".") == 1 and len(part) == 6]
            for mine, theirs in zip(ours, best.values.tolist()):
                expect(f"fill-mask {line!r}", mine, theirs)
            word = tokenizer.decode([int(best.indices[0])]) or tokenizer.convert_ids_to_tokens(int(best.indices[0]))
            if not guesses.strip().startswith(word.strip()) and int(best.indices[0]) < len(tokenizer):
                sys.exit(f"fill-mask {line!r}: {guesses!r}, transformers {word!r}")
    return f"fill-mask {found.splitlines()[0][:60]}"


def main():
    binary, data = Binary(os.path.abspath(sys.argv[1])), sys.argv[2]
    work = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    with gzip.open(os.path.join(data, "train.en.gz"), "rt", encoding="utf-8") as f:
        lines = [line.rstrip("\n") for line in f]
    text = os.path.join(work, "some.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("\n".join(lines[:60]) + "\n")
    kinds = tokenizers_of(lines[:4000], work)
    torch.manual_seed(1)
    for number, (name, kind, task, model, tokens) in enumerate(models()):
        folder, checkpoint, run, back = (os.path.join(work, f"{number}_{part}")
                                         for part in ("theirs", "imported", "run", "back"))
        for path in (folder, checkpoint, run, back):
            shutil.rmtree(path, ignore_errors=True)
        model = model.eval()
        model.save_pretrained(folder)
        shutil.copy(kinds[kind], os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **tokens}, f)
        use = causal if task == "clm" else masked
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        binary("import", folder, "--output", checkpoint)
        with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        block = config["data"]["block_size"]
        first = use(binary, checkpoint, model, tokenizer, text, block)
        # A few updates, and home again.
        config = {"task": task, "output_dir": run, "init_from": folder, "threads": 1, "model": config["model"],
                  "data": {"train": {"text": text}, "block_size": 32, "cache": False},
                  "training": {"batch_type": "sentences", "batch_size": 4, "max_steps": 5, "learning_rate": 1e-3}}
        with open(os.path.join(work, "config.yaml"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        binary("train", os.path.join(work, "config.yaml"))
        binary("export", "--model", run, "--format", "huggingface", "--architecture", name, "--output", back)
        same = open(os.path.join(back, "tokenizer.json"), "rb").read() == open(kinds[kind], "rb").read()
        if not same:
            sys.exit("tokenizer.json changed on its way")
        tokenizer = transformers.AutoTokenizer.from_pretrained(back)
        auto = transformers.AutoModelForCausalLM if task == "clm" else transformers.AutoModelForMaskedLM
        trained = auto.from_pretrained(back).eval()
        second = use(binary, run, trained, tokenizer, text, block if task != "clm" else 32)
        print(f"{name} with {kind}: {first}; after 5 updates {second}")


main()
