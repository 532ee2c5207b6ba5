#!/usr/bin/env python3
"""Times training updates of a config's model in PyTorch, for tests/bench/compare.py.

    tests/bench/peers/torch_training.py configs/gpt2_124m.yaml --shape 4x256 [model.dropout=0.1 ...]
    tests/bench/peers/torch_training.py configs/multi30k_small.yaml --shape 128x32x32 --dtype bfloat16

The counterpart of `tapestry bench CONFIG --shape SHAPE`: the same layers, sizes, loss, clipping and optimizer over drawn
tokens. It reads those keys that change the work, and refuses a model that it would build otherwise. bfloat16 is
PyTorch's autocast over float32 weights. The last line is a JSON object with tokens_per_s.
Needs: pip install torch pyyaml.
"""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import yaml

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}
# Keys of `model` that are read, with what they are without the key; None: must be there.
MODEL = {
    "type": None, "hidden_size": None, "intermediate_size": None, "num_attention_heads": None, "num_hidden_layers": 0,
    "encoder_layers": 0, "decoder_layers": 0, "hidden_act": "relu", "norm_position": "post", "bias": True,
    "dropout": 0.1, "position_embedding": "sinusoidal", "max_position_embeddings": 1024,
    "tie_word_embeddings": True, "scale_embeddings": True, "share_encoder_decoder_embeddings": True,
}  # fmt: skip
# Keys that change no operation.
OF_VALUES = {"initializer_range", "initializer", "norm_eps"}


def read_config(path, overrides):
    config = yaml.safe_load(open(path, encoding="utf-8"))
    for override in overrides:
        names, _, value = override.partition("=")
        place = config
        *outer, last = names.split(".")
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = yaml.safe_load(value)
    model = config["model"]
    if unknown := set(model) - set(MODEL) - OF_VALUES:
        raise SystemExit(f"torch_training.py: {path}: model has {sorted(unknown)}, which this program does not build.")
    if missing := [key for key, preset in MODEL.items() if preset is None and key not in model]:
        raise SystemExit(f"torch_training.py: {path}: model needs {missing}.")
    return config, argparse.Namespace(**{key: model.get(key, preset) for key, preset in MODEL.items()})


class Attention(nn.Module):
    """Heads of queries from x over keys and values from y, or from x where there is no y."""

    def __init__(self, m, crossed=False):
        super().__init__()
        d = m.hidden_size
        self.heads, self.dropout = m.num_attention_heads, m.dropout
        self.queries = nn.Linear(d, d, bias=m.bias) if crossed else None
        self.packed = nn.Linear(d, 2 * d if crossed else 3 * d, bias=m.bias)
        self.out = nn.Linear(d, d, bias=m.bias)

    def forward(self, x, y=None, causal=False):
        parts = list(self.packed(x if y is None else y).chunk(3 if y is None else 2, dim=-1))
        if y is not None:
            parts.insert(0, self.queries(x))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """Attention to itself, to an encoder if `crossed`, and a feed-forward network."""

    def __init__(self, m, causal, crossed=False):
        super().__init__()
        d, count = m.hidden_size, 3 if crossed else 2
        self.pre, self.causal = m.norm_position == "pre", causal
        self.norms = nn.ModuleList(nn.LayerNorm(d, bias=m.bias) for _ in range(count))
        self.self_attention = Attention(m)
        self.cross_attention = Attention(m, crossed=True) if crossed else None
        self.up = nn.Linear(d, m.intermediate_size, bias=m.bias)
        self.down = nn.Linear(m.intermediate_size, d, bias=m.bias)
        self.activation, self.dropout = ACTIVATIONS[m.hidden_act], nn.Dropout(m.dropout)

    def forward(self, x, memory=None):
        branches = [
            lambda h: self.self_attention(h, causal=self.causal),
            *([lambda h: self.cross_attention(h, memory)] if self.cross_attention else []),
            lambda h: self.down(self.activation(self.up(h))),
        ]
        for norm, branch in zip(self.norms, branches):
            if self.pre:
                x = x + self.dropout(branch(norm(x)))
            else:
                x = norm(x + self.dropout(branch(x)))
        return x


class Model(nn.Module):
    def __init__(self, m, vocabulary):
        super().__init__()
        d = m.hidden_size
        crossed = m.type == "encoder_decoder"
        if not crossed and m.type not in ("decoder", "encoder"):
            raise SystemExit(f"torch_training.py: this program builds no model of type {m.type}.")
        self.words = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.words.weight, std=0.02)
        self.scale = math.sqrt(d) if m.scale_embeddings else 1.0
        if m.position_embedding == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(m.max_position_embeddings, d))
        elif m.position_embedding == "sinusoidal":
            angles = torch.arange(m.max_position_embeddings)[:, None] * 1e4 ** (-torch.arange(0, d, 2) / d)
            self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))
        else:
            raise SystemExit(f"torch_training.py: this program has no positions of kind {m.position_embedding}.")
        self.dropout = nn.Dropout(m.dropout)
        below = m.encoder_layers if crossed else 0
        self.encoder = nn.ModuleList(Layer(m, causal=False) for _ in range(below))
        own = m.decoder_layers if crossed else m.num_hidden_layers
        self.layers = nn.ModuleList(Layer(m, causal=m.type != "encoder", crossed=crossed) for _ in range(own))
        ends = (2 if crossed else 1) if m.norm_position == "pre" else 0
        self.final_norms = nn.ModuleList(nn.LayerNorm(d, bias=m.bias) for _ in range(ends))
        self.head = None if m.tie_word_embeddings else nn.Linear(d, vocabulary, bias=False)

    def embed(self, tokens):
        return self.dropout(self.words(tokens) * self.scale + self.positions[: tokens.shape[1]])

    def forward(self, tokens, source=None):
        memory = None
        if source is not None:
            memory = self.embed(source)
            for layer in self.encoder:
                memory = layer(memory)
            if self.final_norms:
                memory = self.final_norms[1](memory)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, memory)
        if self.final_norms:
            x = self.final_norms[0](x)
        return F.linear(x, self.words.weight if self.head is None else self.head.weight)


def optimizer_of(model, training):
    options = training.get("optimizer", {})
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    name = options.get("name", "adam")
    if name not in kinds:
        raise SystemExit(f"torch_training.py: this program has no optimizer {name}.")
    return kinds[name](model.parameters(), lr=1e-4, betas=tuple(options.get("betas", (0.9, 0.98))),
                       weight_decay=float(options.get("weight_decay", 0)))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", help="section.key=value")
    parser.add_argument("--shape", required=True, help="BxT, or BxSxT of pairs")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--vocabulary", type=int, help="default: tokenizer.vocab_size")
    arguments = parser.parse_args()
    config, m = read_config(arguments.config, arguments.overrides)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    vocabulary = arguments.vocabulary or config.get("tokenizer", {}).get("vocab_size")
    if not vocabulary:
        raise SystemExit("torch_training.py: the config has no tokenizer.vocab_size: give --vocabulary.")
    *batch, length = map(int, arguments.shape.split("x"))
    if len(batch) != (2 if m.type == "encoder_decoder" else 1):
        raise SystemExit(f"torch_training.py: {arguments.shape} is no shape of a model of type {m.type}.")
    model = Model(m, vocabulary).train()
    run = torch.compile(model) if arguments.compile else model
    training = config.get("training", {})
    optimizer = optimizer_of(model, training)
    most_norm, smoothing = float(training.get("max_grad_norm", 0)), float(training.get("label_smoothing", 0))
    seconds = []
    for step in range(arguments.warmup_steps + arguments.steps):
        source = torch.randint(vocabulary, (batch[0], batch[1])) if len(batch) == 2 else None
        tokens = torch.randint(vocabulary, (batch[0], length + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.dtype == "bfloat16"):
            logits = run(tokens[:, :-1], source)
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if most_norm > 0:
            nn.utils.clip_grad_norm_(model.parameters(), most_norm)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[arguments.warmup_steps :])
    count = batch[0] * (length + (batch[1] if len(batch) == 2 else 0))
    print(json.dumps({
        "peer": "torch " + torch.__version__, "seconds": round(median, 5), "tokens_per_s": round(count / median, 1),
        "loss": round(loss.item(), 4), "parameters": sum(p.numel() for p in model.parameters()),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
