#!/usr/bin/env python3
"""Compares `tapestry evaluate --hypothesis` with sacreBLEU on random corpora, and on real ones.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install sacrebleu==2.6.0 sentencepiece
    /tmp/venv/bin/python tests/bench/scores.py build/release/apps/tapestry [--corpora 200]
        [--real REFERENCES ...]     # files of sentences, plain or .gz; hypotheses are perturbed ones

Every tokenizer, metric, smoothing, one to four references, sentence scores, confidence intervals and
both paired tests. Exits with 1 and says where, if a figure differs. SACREBLEU_SEED must not be set.
"""

import argparse
import functools
import gzip
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

FOLDER = tempfile.TemporaryDirectory()
os.environ["SACREBLEU"] = FOLDER.name  # where it looks for models of tokenizers
MODEL = pathlib.Path(FOLDER.name) / "models" / "sacrebleu_tokenizer_spm.model"

import sacrebleu  # noqa: E402
from sacrebleu.metrics import BLEU, CHRF, TER  # noqa: E402
from sacrebleu.metrics import ter as ter_module  # noqa: E402
from sacrebleu.significance import PairedTest  # noqa: E402

COUNT_EDITS = ter_module.translation_edit_rate


@functools.lru_cache(maxsize=None)
def count_edits_once(hypothesis, reference):
    return COUNT_EDITS(list(hypothesis), list(reference))


# Nearly all of the time goes into it, and each test asks for the same sentences again.
ter_module.translation_edit_rate = lambda hypothesis, reference: count_edits_once(
    tuple(hypothesis), tuple(reference))

WORDS = (
    "the a of cat cat's dog dogs' house HOUSE in on sat mat, mat. (mat) \"red\" 'blue' 3.14 1,000 5-6 "
    "x-y 7- -8 ... , . ! ? ;: e.g. U.S.A. it's It'S don't & &amp; &quot;hi&quot; &lt;b&gt; &apos; "
    "&amp;lt; <skipped> a<skipped>b -- [x] {y} $5 50% a/b a_b C++ #1 @me ^ ~ ` | \\ \u00a9 \u20ac9 "
    "\u00ab\u00ab \u201equot\u201c 12.\u0663 \u0663,\u0664 \u00bd. Stra\u00dfe \u0130stanbul "
    "\u039f\u0394\u039f\u03a3 \u01c5 \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 "
    "\U0001f1e9\U0001f1ea e\u0301 n\u0303o \u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05dc\u05d5\u05dd "
    "co\u00adop a\u2060b \u4f60\u597d \u4e16\u754c\u3002 \u300c\u6771\u4eac\u300d \u3053\u3093\u306b "
    "\u30ab\u30bf\u30ab\u30ca\u30fb\u30ab \uff0c\uff01 \uff11\uff12\uff0e\uff15 \uac00\ub098 \u3220 "
    "\U00020000\U0002a6d6 \u2026 \u2192 \u2260x \ufffd \ufeffx \u0660.\u0661 \u2160. \u00b2, a.b,c -1.5-2"
).split(" ")
SPACES = [" "] * 12 + ["  ", "\t", "\u00a0", "\u3000", "\u0085", "\u2028", "\u2009", "\u001c", "\r", "\v"]


def line_of(rng, words):
    """Words with white space between, before and behind them."""
    text = ""
    for word in words:
        text += word + rng.choice(SPACES)
    return rng.choice(["", "", "", " ", "\u3000"]) + (text if rng.random() < 0.3 else text[:-1])


def perturb(rng, words, vocabulary, strength):
    """Replaces, deletes, inserts and shifts words."""
    words = list(words)
    for _ in range(int(strength * (len(words) + 1) * rng.random())):
        at = rng.randrange(len(words) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            words.insert(at, rng.choice(vocabulary))
        elif kind == 1 and at < len(words):
            del words[at]
        elif kind == 2 and at < len(words):
            words[at] = rng.choice(vocabulary)
        else:
            run = words[at : at + rng.randint(1, 5)]
            del words[at : at + len(run)]
            to = rng.randrange(len(words) + 1)
            words[to:to] = run
    return words


def corpus(rng):
    """(lines of each system, lines of each reference)"""
    vocabulary = rng.sample(WORDS, rng.randint(4, len(WORDS)))
    lines = rng.choice([1, 2, 3, 8, 20, 40])
    longest = rng.choice([3, 12, 30])
    references, systems = rng.choice([1, 1, 2, 4]), rng.randint(2, 3)
    streams = [[] for _ in range(systems + references)]
    strengths = [rng.choice([0.1, 0.5, 1.5]) for _ in streams]
    for _ in range(lines):
        words = [rng.choice(vocabulary) for _ in range(rng.randint(0, longest))]
        if rng.random() < 0.004:  # so long that TER stops to search
            words = words * rng.randint(5, 12) + [rng.choice(vocabulary)]
        for stream, strength in zip(streams, strengths):
            changed = perturb(rng, words, vocabulary, strength)
            if rng.random() < 0.02:
                changed = changed[: rng.randint(0, 1)]
            stream.append("" if rng.random() < 0.03 else line_of(rng, changed))
    if rng.random() < 0.3:
        streams[0][0] = "\ufeff" + streams[0][0]
    return streams[:systems], streams[systems:]


def as_read(lines):
    """What sacreBLEU's command line makes of lines."""
    return [line.rstrip() for line in lines]


def equal(a, b):
    """Equal but for the last digits of a double; None stands for one that is absent."""
    if a is None or b is None:
        return a is b
    return a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-11)


class Comparison:
    """Runs the binary, asks the wheel, and collects what differs."""

    def __init__(self, binary):
        self.binary = binary
        self.figures = 0
        self.inexact = 0
        self.problems = []

    def run(self, systems, references, *options):
        command = [self.binary, "evaluate", "--json"]
        for kind, streams in (("hypothesis", systems), ("reference", references)):
            for i, stream in enumerate(streams):
                path = pathlib.Path(FOLDER.name) / f"{kind}{i}"
                with open(path, "w", encoding="utf-8", newline="\n") as out:
                    out.write("".join(line + "\n" for line in stream))
                command += [f"--{kind}", str(path)]
        self.command = command + list(options)
        result = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(f"{' '.join(self.command)}\n{result.stderr}")
        return [json.loads(line) for line in result.stdout.splitlines()]

    def expect(self, what, ours, theirs):
        self.figures += 1
        if isinstance(theirs, str):
            same = ours.rsplit("|version:", 1)[0] == theirs.rsplit("|version:", 1)[0]
        else:
            theirs = None if theirs is None else float(theirs)
            same = equal(ours, theirs)
            self.inexact += ours != theirs
        if not same:
            self.problems.append(f"{what}: {ours} here, {theirs} there: {' '.join(self.command)}")

    def signature(self, what, ours, metric):
        self.expect(what + " signature", ours["signature"], str(metric.get_signature()))


def bleu_settings(rng, tokenizer):
    """(options of the command, arguments of the class)"""
    options = ["--tokenize", tokenizer, "--force"]
    arguments = {"tokenize": tokenizer, "force": True}
    if tokenizer == "flores101":
        options += ["--spm-model", str(MODEL)]
    smooth = rng.choice(["exp", "exp", "floor", "add-k", "none"])
    options += ["--smooth-method", smooth]
    arguments["smooth_method"] = smooth
    if smooth in ("floor", "add-k") and rng.random() < 0.5:
        value = rng.choice([0.0, 0.01, 0.5, 1.0, 2.5])
        options += ["--smooth-value", str(value)]
        arguments["smooth_value"] = value
    return options, arguments


def other_settings(rng):
    chrf, ter, options = {}, {}, []
    if rng.random() < 0.5:
        chrf = {"char_order": rng.randint(1, 8), "beta": rng.randint(1, 4)}
        options += ["--chrf-char-order", str(chrf["char_order"]), "--chrf-beta", str(chrf["beta"])]
    if rng.random() < 0.3:
        chrf["word_order"] = rng.randint(1, 3)
        options += ["--chrf-word-order", str(chrf["word_order"])]
    for name in ("whitespace", "eps_smoothing", "lowercase"):
        if rng.random() < 0.25:
            chrf[name] = True
            options.append("--chrf-" + name.replace("_", "-"))
    for name in ("normalized", "no_punct", "asian_support", "case_sensitive"):
        if rng.random() < 0.5:
            ter[name] = True
            options.append("--ter-" + name.replace("_", "-"))
    return options, chrf, ter


def metrics_of(bleu, chrf, ter, references, lowercase):
    words = dict(chrf, word_order=chrf.get("word_order", 2))
    if lowercase:
        bleu, chrf, words = (dict(one, lowercase=True) for one in (bleu, chrf, words))
    return {
        "bleu": BLEU(references=references, **bleu),
        "chrf": CHRF(references=references, **chrf),
        "chrf++": CHRF(references=references, **words),
        "ter": TER(references=references, **ter),
    }


def compare_corpus(comparison, rng, systems, references, samples=(200, 300), tokenizers=None):
    read_systems = [as_read(stream) for stream in systems]
    read_references = [as_read(stream) for stream in references]
    other, chrf, ter = other_settings(rng)
    tokenizers = tokenizers or ["13a", "none", "intl", "char", "zh", "flores101"]
    for number, tokenizer in enumerate(tokenizers):
        bleu_options, bleu = bleu_settings(rng, tokenizer)
        lowercase = rng.random() < 0.3
        options = bleu_options + other + (["--lowercase"] if lowercase else [])
        names = ["bleu", "chrf", "chrf++", "ter"] if number == 0 else ["bleu"]
        options += ["--metrics", ",".join(names)]
        make = lambda **more: metrics_of(  # noqa: E731
            dict(bleu, **more), chrf, ter, read_references, lowercase)

        metrics = make()
        ours = comparison.run(systems[:1], references, *options)[0]
        for name in names:
            theirs = metrics[name].corpus_score(read_systems[0], None)
            comparison.expect(f"{name} {tokenizer}", ours[name]["score"], theirs.score)
            comparison.signature(name, ours[name], metrics[name])
            comparison.expect(f"{name} name", ours[name]["name"], theirs.name)
            if name == "bleu":
                for a, b in zip(ours[name]["precisions"], theirs.precisions):
                    comparison.expect("precision", a, b)
                comparison.expect("length", ours[name]["hypothesis_tokens"], theirs.sys_len)
                comparison.expect("length", ours[name]["reference_tokens"], theirs.ref_len)
            if name == "ter":
                comparison.expect("edits", ours[name]["edits"], theirs.num_edits)

        metrics = make(effective_order=True)
        lines = comparison.run(systems[1:2], references, "--sentence-level", *options)
        for i, (ours, hypothesis) in enumerate(zip(lines, read_systems[1])):
            for name in names:
                theirs = metrics[name].sentence_score(hypothesis, [one[i] for one in read_references])
                comparison.expect(f"{name} {tokenizer} line {i + 1}", ours[name]["score"], theirs.score)
                if i == 0:
                    comparison.signature(name, ours[name], metrics[name])
        if number > 0:
            continue

        metrics = make()
        count = str(samples[0])
        ours = comparison.run(
            systems[:1], references, "--confidence", "--confidence-n", count, *options)[0]
        for name in names:
            try:
                theirs = metrics[name].corpus_score(
                    read_systems[0], None, n_bootstrap=samples[0])
            except TypeError:  # it cannot average single and double precision
                continue
            comparison.expect(f"{name} mean", ours[name]["mean"], theirs._mean)
            comparison.expect(f"{name} interval", ours[name]["interval"], theirs._ci)
            comparison.signature(name, ours[name], metrics[name])

        named = [(str(i), stream) for i, stream in enumerate(read_systems)]
        for kind, count in zip(("bs", "ar"), samples):
            ours = comparison.run(
                systems, references, f"--paired-{kind}", f"--paired-{kind}-n", str(count), *options)[0]
            for name in names:
                metric = make()[name]
                signatures, scores = PairedTest(
                    named, {name: metric}, None, test_type=kind, n_samples=count)()
                (title, signature), = signatures.items()
                comparison.expect("signature", ours["signatures"][name], str(signature))
                for i, theirs in enumerate(scores[title]):
                    system = ours["systems"][i][name]
                    for key, value in (("score", theirs.score), ("mean", theirs.mean),
                                       ("interval", theirs.ci), ("p_value", theirs.p_value)):
                        comparison.expect(f"{name} {kind} {key}", system.get(key), value)


def train_model(lines):
    """A small SentencePiece model, in the place of the one that sacreBLEU would download."""
    import sentencepiece

    MODEL.parent.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(MODEL)[: -len(".model")], vocab_size=300,
        hard_vocab_limit=False, character_coverage=0.98, minloglevel=2)


def read(path):
    opening = gzip.open if path.endswith(".gz") else open
    with opening(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--corpora", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first corpus")
    parser.add_argument("--real", nargs="*", default=[])
    parser.add_argument("--real-lines", type=int, default=300)
    arguments = parser.parse_args()
    rng = random.Random(1)
    train_model([line_of(rng, rng.choices(WORDS, k=12)) for _ in range(2000)])
    comparison = Comparison(arguments.binary)
    for number in range(arguments.first, arguments.first + arguments.corpora):
        rng = random.Random(number)
        compare_corpus(comparison, rng, *corpus(rng))
        if comparison.problems:
            print(f"corpus {number}:", *comparison.problems[:20], sep="\n")
            sys.exit(1)
        if number % 20 == 19:
            print(f"{number + 1} corpora, {comparison.figures} figures", flush=True)
    for path in arguments.real:
        rng = random.Random(path)
        lines = read(path)[: arguments.real_lines]
        vocabulary = " ".join(lines).split()
        streams = [
            [" ".join(perturb(rng, line.split(), vocabulary, strength)) for line in lines]
            for strength in (0.4, 0.45, 0.3)
        ]
        compare_corpus(comparison, rng, streams[:2], [lines, streams[2]], samples=(1000, 2000))
        print(f"{path}: {len(lines)} lines, {comparison.figures} figures in all", flush=True)
    print(f"{comparison.figures} figures, {comparison.inexact} of them equal but for the last digits, "
          f"{len(comparison.problems)} differ")
    print(*comparison.problems[:20], sep="\n")
    sys.exit(bool(comparison.problems))


if __name__ == "__main__":
    main()
