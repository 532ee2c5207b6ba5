#!/usr/bin/env python3
"""What PyTorch does with the shapes of `tests/gpu.sh bench`, on the same GPU.

    tests/bench/gpu/torch_peer.py gpt2 [--compile]          training steps of GPT-2 124M, 64 x 1024 tokens
    tests/bench/gpu/torch_peer.py translation [--compile]   of an encoder-decoder, 256 x (32 + 32) tokens
    tests/bench/gpu/torch_peer.py attention                 scaled_dot_product_attention by itself
    tests/bench/gpu/torch_peer.py decode                    greedy search of the encoder-decoder, 32 tokens, with
                                                            caches of keys and values; eager and as CUDA graphs

Each line that begins with "PyTorch" is a result. Steps are those of a careful user: autocast to bfloat16 over
float32 weights, scaled_dot_product_attention, a fused optimizer, clipping. Where memory is short, half of the
batch is tried. --device cpu --small tries the script itself.
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Gpt2Layer(nn.Module):
    """norm -> attention -> add, norm -> feed-forward -> add."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_ffn = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (part.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for part in self.qkv(self.before_attention(x)).split(d, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.before_ffn(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.last_norm = nn.LayerNorm(width)
        for weight in (self.tokens.weight, self.positions.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.last_norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Translator(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, dropout):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        self.between = nn.Transformer(width, heads, layers, layers, 4 * width, dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.factor = math.sqrt(width)

    def embed(self, ids, places):
        return self.dropout(self.factor * self.tokens(ids) + places[:ids.shape[1]])

    def forward(self, source, ids, targets, places, mask):
        out = self.between(self.embed(source, places), self.embed(ids, places), tgt_mask=mask, tgt_is_causal=True)
        logits = F.linear(out, self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


def sinusoids(length, width, device):
    place = torch.arange(length, device=device)[:, None]
    angle = place * torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000) / width))
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def seconds_of_a_step(model, batch, optimizer, device, compiled, steps):
    run = torch.compile(model) if compiled else model
    for i in range(3 + steps):
        if i == 3:  # the first ones compile
            wait(device)
            start = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = run(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    wait(device)
    return (time.perf_counter() - start) / steps


def gpt2(device, small, rows):
    vocabulary, length, width, heads, layers = (97, 16, 32, 4, 2) if small else (50257, 1024, 768, 12, 12)
    model = Gpt2(vocabulary, length, width, heads, layers).to(device)
    ids = torch.randint(4, vocabulary, (2, rows, length), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=device == "cuda")
    return model, (ids[0], ids[1]), optimizer, rows * length, f"GPT-2 124M, {rows} x {length}"


def translation(device, small, rows):
    vocabulary, length, width, heads, layers = (97, 8, 32, 4, 2) if small else (8000, 32, 512, 8, 6)
    model = Translator(vocabulary, width, heads, layers, 0.1).to(device)
    ids = torch.randint(4, vocabulary, (3, rows, length), device=device)
    mask = nn.Transformer.generate_square_subsequent_mask(length, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4, betas=(0.9, 0.98), eps=1e-9, fused=device == "cuda")
    batch = (ids[0], ids[1], ids[2], sinusoids(length, width, device), mask)
    return model, batch, optimizer, 2 * rows * length, f"translation d {width}, {rows} x ({length} + {length})"


def train(build, rows, device, small, compiled):
    if small:
        rows = 2
    while True:
        try:
            model, batch, optimizer, tokens, name = build(device, small, rows)
            seconds = seconds_of_a_step(model, batch, optimizer, device, compiled, 2 if small else 10)
            break
        except torch.OutOfMemoryError:
            model = batch = optimizer = None
        if rows == 1:
            raise SystemExit("PyTorch: out of memory")
        rows //= 2
        torch.compiler.reset()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    memory = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0
    name = f"PyTorch {name}, {'compiled' if compiled else 'eager'}"
    print(f"{name:<52} {tokens / seconds:9.0f} tokens/s, {memory:.1f} GB", flush=True)


def milliseconds(call, device, calls=10):
    for _ in range(2):
        call()
    wait(device)
    if device != "cuda":
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return 1e3 * (time.perf_counter() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    wait(device)
    return begin.elapsed_time(end) / calls


def time_attention(batch, length, heads, size, causal, device, backend):
    qkv = torch.randn(batch, length, 3, heads, size, device=device, dtype=torch.bfloat16).requires_grad_()
    q, k, v = (qkv[:, :, part].transpose(1, 2) for part in range(3))
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    with backend():
        out = forward()
        d_out = torch.randn_like(out)
        there = milliseconds(forward, device)
        back = milliseconds(lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True), device)
    pairs = length * (length + 1) / 2 if causal else length * length
    product = 2 * batch * heads * size * pairs
    return there, 2e-9 * product / there, back, 5e-9 * product / back


def attention(device, small):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    longest, width = (64, 128) if small else (16384, 2048)
    shapes = [(max(longest // 256, 1), longest // 16, 2 if small else 12, 64, True)]
    for size in (64, 128):
        for causal in (True, False):
            length = longest // 32
            while length <= longest:
                shapes.append((longest // length, length, width // size, size, causal))
                length *= 2
    backends = [("math", SDPBackend.MATH)] if small else [("flash", SDPBackend.FLASH_ATTENTION),
                                                         ("cudnn", SDPBackend.CUDNN_ATTENTION)]
    for name, backend in backends:
        for batch, length, heads, size, causal in shapes:
            what = f"PyTorch {name:<5} {batch:4}x{length:<5} heads {heads:2}x{size:<3} {'causal' if causal else 'full':<6}"
            try:
                there, rate, back, back_rate = time_attention(batch, length, heads, size, causal, device,
                                                              lambda: sdpa_kernel(backend))
            except RuntimeError as error:
                print(f"{what}  {str(error).splitlines()[0][:80]}", flush=True)
                continue
            print(f"{what}  forward {there:8.3f} ms {rate:4.0f} TFLOP/s  "
                  f"backward {back:8.3f} ms {back_rate:4.0f} TFLOP/s", flush=True)


class DecoderStep(nn.Module):
    """One step of a decoder layer with the keys and values of all steps, in place."""

    def __init__(self, width, heads, rows, source, steps, device, dtype):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.cross_out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        size = width // heads
        self.keys, self.values = (torch.zeros(rows, heads, steps, size, device=device, dtype=dtype) for _ in range(2))
        self.memory = [torch.randn(rows, heads, source, size, device=device, dtype=dtype) for _ in range(2)]

    def split(self, x):
        return x.view(x.shape[0], 1, self.heads, -1).transpose(1, 2)

    def forward(self, x, place, mask):
        q, k, v = (self.split(part) for part in self.qkv(x).chunk(3, dim=1))
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        seen = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = self.norms[0](x + self.out(seen.reshape(x.shape)))
        seen = F.scaled_dot_product_attention(self.split(self.query(x)), *self.memory)
        x = self.norms[1](x + self.cross_out(seen.reshape(x.shape)))
        return self.norms[2](x + self.down(F.relu(self.up(x))))


@torch.inference_mode()
def decode(device, small):
    vocabulary, source, steps, width, heads, layers = (97, 8, 8, 32, 4, 2) if small else (8000, 32, 32, 512, 8, 6)
    dtype = torch.float32 if small else torch.bfloat16
    for rows in [2] if small else [1, 64, 256]:
        tokens = nn.Embedding(vocabulary, width).to(device, dtype)
        decoder = [DecoderStep(width, heads, rows, source, steps, device, dtype).to(device, dtype)
                   for _ in range(layers)]
        places = sinusoids(steps, width, device).to(dtype)
        ids, place = torch.zeros(rows, dtype=torch.long, device=device), torch.zeros(1, dtype=torch.long, device=device)
        columns = torch.arange(steps, device=device)

        def step():
            x = tokens(ids) * math.sqrt(width) + places[place]
            for layer in decoder:
                x = layer(x, place, (columns <= place)[None])
            ids.copy_(F.linear(x, tokens.weight).argmax(1))
            place.add_(1)

        def search(one):
            place.zero_()
            for _ in range(steps):
                one()

        search(step)
        kinds = [("eager", step)]
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            place.zero_()
            with torch.cuda.graph(graph):
                step()
            kinds.append(("graphs", graph.replay))
        for name, one in kinds:
            search(one)
            wait(device)
            start = time.perf_counter()
            for _ in range(3):
                search(one)
            wait(device)
            seconds = (time.perf_counter() - start) / 3 / steps
            print(f"PyTorch greedy search of {rows} sentences, {name:<7} {rows / seconds:9.0f} tokens/s "
                  f"{1e3 * seconds:.3f} ms a step", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gpt2", "translation", "attention", "decode"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(7)
    if given.what == "attention":
        attention(given.device, given.small)
    elif given.what == "decode":
        decode(given.device, given.small)
    else:
        build, rows = {"gpt2": (gpt2, 64), "translation": (translation, 256)}[given.what]
        train(build, rows, given.device, given.small, given.compile)


if __name__ == "__main__":
    main()
