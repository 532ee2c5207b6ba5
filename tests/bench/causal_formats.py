#!/usr/bin/env python3
"""Random models of causal classes, with transformers and in the formats of other programs.

    causal_formats.py make FOLDER TOKENIZERS      folders of transformers, one for each class (torch, transformers;
                                                  TOKENIZERS is tests/fixtures/tokenizers)
    causal_formats.py gguf FOLDER TAPESTRY        imported, exported as GGUF, run by llama.cpp, imported again
    causal_formats.py ctranslate2 FOLDER TAPESTRY imported, exported, run by CTranslate2

Prints for each model the largest difference from transformers' logits, and whether the most probable tokens are
the same. llama.cpp keeps keys and values in float16 and has a table for gelu: two hundredths at most.
Needs llama_cpp (package llama-cpp-python) and ctranslate2.
"""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import torch
import transformers as t

IDS = [0, 5, 77, 300, 9, 41, 260, 17, 8, 120, 33, 4, 90, 200]
FORMATS = {"gguf": ["gemma", "gemma2", "gemma3", "olmo2", "smollm3", "gpt_neox", "gpt_neox_serial", "qwen3", "phi",
                    "phi3", "phi3_longrope", "cohere", "cohere2", "llama_llama3", "llama_yarn", "llama_longrope",
                    "qwen2_yarn"],
           "ctranslate2": ["gemma", "qwen2", "qwen3", "mistral", "opt"]}


def save(folder, name, model, tokenizer, tokens):
    draw = torch.Generator().manual_seed(len(name))
    for key, tensor in model.named_parameters():
        whole = "norm" in key and key.endswith("weight") and not name.startswith("gemma")
        with torch.no_grad():
            tensor.copy_(torch.randn(tensor.shape, generator=draw) * 0.25 + (1 if whole else 0))
    path = os.path.join(folder, name)
    shutil.rmtree(path, ignore_errors=True)
    model.eval().save_pretrained(path)
    if os.path.exists(path + "/generation_config.json"):
        os.remove(path + "/generation_config.json")
    shutil.copy(os.path.join(tokenizer, "tokenizer.json"), path)
    with open(path + "/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **tokens}, file)


def make(folder, tokenizers):
    size = {"vocab_size": 512, "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 64}
    inner = {"intermediate_size": 64}
    llama3 = os.path.join(tokenizers, "llama3"), {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    gpt2 = os.path.join(tokenizers, "gpt2"), {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    ids = {"bos_token_id": 0, "eos_token_id": 1, "num_key_value_heads": 2, **inner}
    gemma = {"head_dim": 16, "pad_token_id": None, **ids}
    scaled = {"query_pre_attn_scalar": 16, "sliding_window": 4}
    one = {"bos_token_id": 0, "eos_token_id": 0}
    three = {**size, **ids, "num_hidden_layers": 3}

    def rope(kind, **more):
        first = {"rope_theta": 100.0, "original_max_position_embeddings": 8}
        return {"rope_parameters": {"rope_type": kind, **first, **more}}

    stretched = {"short_factor": [1.0, 1.25, 1.5, 1.75], "long_factor": [1.5, 2.0, 4.0, 8.0]}
    of_three = {key: factors[:3] for key, factors in stretched.items()}
    rows = [
        ("gemma", t.GemmaForCausalLM(t.GemmaConfig(**size, **gemma, num_hidden_layers=3)), llama3),
        ("gemma2", t.Gemma2ForCausalLM(t.Gemma2Config(
            **size, **gemma, **scaled, num_hidden_layers=4, attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0)), llama3),
        ("gemma3", t.Gemma3ForCausalLM(t.Gemma3TextConfig(**size, **gemma, **scaled, num_hidden_layers=7)), llama3),
        ("olmo2", t.Olmo2ForCausalLM(t.Olmo2Config(**size, **ids, num_hidden_layers=3, pad_token_id=None)), llama3),
        ("smollm3", t.SmolLM3ForCausalLM(t.SmolLM3Config(
            **size, **ids, num_hidden_layers=5, pad_token_id=None)), llama3),
        ("gpt_neox", t.GPTNeoXForCausalLM(t.GPTNeoXConfig(
            **size, **inner, **one, num_hidden_layers=3, hidden_act="gelu_new", rotary_pct=0.5)), gpt2),
        ("gpt_neox_serial", t.GPTNeoXForCausalLM(t.GPTNeoXConfig(
            **size, **inner, **one, num_hidden_layers=3, use_parallel_residual=False,
            tie_word_embeddings=True)), gpt2),
        ("qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**size, **ids, num_hidden_layers=3)), llama3),
        ("qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**size, **ids, num_hidden_layers=3, head_dim=16)), llama3),
        ("mistral", t.MistralForCausalLM(t.MistralConfig(
            **size, **ids, num_hidden_layers=3, sliding_window=None)), llama3),
        ("phi", t.PhiForCausalLM(t.PhiConfig(**three, partial_rotary_factor=0.5)), llama3),
        ("phi3", t.Phi3ForCausalLM(t.Phi3Config(**three, pad_token_id=None, sliding_window=None)), llama3),
        ("phi3_longrope", t.Phi3ForCausalLM(t.Phi3Config(
            **three, pad_token_id=None, sliding_window=None, original_max_position_embeddings=8,
            **rope("longrope", partial_rotary_factor=0.75, **of_three))), llama3),
        ("cohere", t.CohereForCausalLM(t.CohereConfig(**three, pad_token_id=None, logit_scale=0.25)), llama3),
        ("cohere2", t.Cohere2ForCausalLM(t.Cohere2Config(
            **size, **ids, num_hidden_layers=5, pad_token_id=None, sliding_window=4, logit_scale=0.25)), llama3),
        ("llama_llama3", t.LlamaForCausalLM(t.LlamaConfig(**three, **rope(
            "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0))), llama3),
        ("llama_yarn", t.LlamaForCausalLM(t.LlamaConfig(**three, **rope("yarn", factor=4.0))), llama3),
        ("llama_longrope", t.LlamaForCausalLM(t.LlamaConfig(**three, **rope("longrope", **stretched))), llama3),
        ("qwen2_yarn", t.Qwen2ForCausalLM(t.Qwen2Config(
            **three, **rope("yarn", factor=8.0, attention_factor=1.4))), llama3),
        ("opt", t.OPTForCausalLM(t.OPTConfig(**size, **one, ffn_dim=64, num_hidden_layers=3, pad_token_id=None)), gpt2),
    ]
    for name, model, (tokenizer, tokens) in rows:
        save(folder, name, model, tokenizer, tokens)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def of_llama_cpp(path):
    from llama_cpp import Llama
    model = Llama(path + "/model.gguf", logits_all=True, n_ctx=64, n_threads=1, verbose=False)
    model.eval(IDS)
    return np.array(model.scores[:len(IDS)])


def of_ctranslate2(path):
    import ctranslate2
    with open(path + "/vocabulary.json") as file:
        pieces = json.load(file)
    model = ctranslate2.Generator(path, device="cpu", intra_threads=1)
    return np.array(model.forward_batch([[pieces[i] for i in IDS]]))[0]


def compare(kind, folder, tapestry):
    for name in FORMATS[kind]:
        source = os.path.join(folder, name)
        with torch.no_grad():
            theirs = t.AutoModelForCausalLM.from_pretrained(source).eval()(torch.tensor([IDS])).logits[0].numpy()
        ours, out = f"{source}.imported", f"{source}.{kind}"
        for path in (ours, out, out + ".imported"):
            shutil.rmtree(path, ignore_errors=True)
        run(tapestry, "import", source, "--output", ours)
        run(tapestry, "export", "--model", ours, "--format", kind, "--output", out, "--dtype", "float32")
        found = of_llama_cpp(out) if kind == "gguf" else of_ctranslate2(out)
        found = found[:, :theirs.shape[1]]
        same = (found.argmax(1) == theirs.argmax(1)).all()
        print(f"{name:16} largest difference {np.abs(found - theirs).max():.1e} of {np.abs(theirs).max():.2f},",
              "same tokens" if same else "OTHER TOKENS")
        if kind == "gguf":
            run(tapestry, "import", out + "/model.gguf", "--output", out + ".imported")


if __name__ == "__main__":
    what, folder, other = sys.argv[1:]
    make(folder, other) if what == "make" else compare(what, folder, other)
