#!/usr/bin/env python3
"""Translates a file with this program and with ctranslate2, in turn, the same weights on both sides.

    tests/bench/decoding.py build/release/apps/tapestry RUN SOURCE [REFERENCE] --rounds 5

RUN is a trained translation model whose tokenizer is SentencePiece's. Seconds are those of whole processes, loading
included, and what remains of them without the seconds of one empty line. ctranslate2 gets the better of its two ways to
use N threads (N translators of one thread, one of N), the same limit of tokens and its own default of everything else.
Needs: pip install ctranslate2 sentencepiece sacrebleu.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PEER = r"""
import os, sys, time, ctranslate2, sentencepiece
folder, source, output, beams, inter, intra, kind, most, vmap = sys.argv[1:10]
begin = time.perf_counter()
def tokenizer_of(side):
    one = f"{folder}/tokenizer.model"
    return sentencepiece.SentencePieceProcessor(model_file=one if os.path.exists(one) else f"{folder}/{side}.model")
source_tokenizer, target_tokenizer = map(tokenizer_of, ["source", "target"])
translator = ctranslate2.Translator(folder, compute_type=kind, inter_threads=int(inter), intra_threads=int(intra))
loaded = time.perf_counter()
lines = [line.rstrip("\n") for line in open(source, encoding="utf-8")]
pieces = source_tokenizer.encode(lines, out_type=str)
longest = max(map(len, pieces), default=1)
found = translator.translate_batch(
    pieces, beam_size=int(beams), max_batch_size=64, length_penalty=1.0,
    max_decoding_length=int(most) or int(1.5 * longest) + 10, use_vmap=vmap == "vmap")
with open(output, "w", encoding="utf-8") as out:
    for one in found:
        out.write(target_tokenizer.decode(one.hypotheses[0]) + "\n")
print(loaded - begin, time.perf_counter() - loaded)
"""


def timed(command, **kwargs):
    """Seconds by the clock, peak memory in MB, standard output."""
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, **kwargs)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"decoding.py: exit code {child.returncode} from {command}")
        output.seek(0)
        return seconds, usage.ru_maxrss / 1024, output.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("run")
    parser.add_argument("source")
    parser.add_argument("reference", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--kinds", default="float32", help="of ctranslate2 and --weights: float32,int8")
    parser.add_argument("--options", default="", help="more of `translate`, such as --early-stopping true")
    parser.add_argument("--shortlist", help="of both: a file of `tapestry shortlist --model RUN`")
    parser.add_argument("--shortlist-size", default="100")
    parser.add_argument("--most-tokens", default="0", help="of an output, for models that have not learnt to end")
    arguments = parser.parse_args()

    folder = pathlib.Path(tempfile.mkdtemp())
    shortlist = []
    if arguments.shortlist:
        shortlist = ["--shortlist", arguments.shortlist, "--shortlist-size", arguments.shortlist_size]
    subprocess.run([arguments.binary, "export", "--model", arguments.run, "--format", "ctranslate2", "--output",
                    folder / "peer", *shortlist], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "peer.py").write_text(PEER)
    (folder / "empty").write_text("\n")

    def ours(source, output, beams, threads, kind):
        weights = ["--weights", kind] if kind != "float32" else []
        if arguments.most_tokens != "0":
            weights += ["--max-new-tokens", arguments.most_tokens]
        return timed([arguments.binary, "translate", "--model", arguments.run, "--beam-size", str(beams), "--input",
                      source, "--output", output, "--threads", str(threads), *weights, *shortlist,
                      *arguments.options.split()])

    def peer(source, output, beams, inter, intra, kind):
        seconds, memory, said = timed([sys.executable, folder / "peer.py", folder / "peer", source, output, str(beams),
                                       str(inter), str(intra), kind, arguments.most_tokens,
                                       "vmap" if shortlist else ""])
        return seconds, memory, float(said.split()[1])

    def bleu(output):
        if not arguments.reference:
            return ""
        import sacrebleu
        lines = pathlib.Path(output).read_text().split("\n")[:-1]
        wanted = pathlib.Path(arguments.reference).read_text().split("\n")[:-1]
        return f"BLEU {sacrebleu.corpus_bleu(lines, [wanted], tokenize='none').score:.1f}"

    for kind in arguments.kinds.split(","):
        for threads in map(int, arguments.threads.split(",")):
            for beams in map(int, arguments.beams.split(",")):
                ways = [(threads, 1), (1, threads)] if threads > 1 else [(1, 1)]
                mine, start, theirs = [], [], {way: [] for way in ways}
                for _ in range(arguments.rounds):
                    mine.append(ours(arguments.source, folder / "mine", beams, threads, kind))
                    start.append(ours(folder / "empty", folder / "none", beams, threads, kind)[0])
                    for way in ways:
                        theirs[way].append(peer(arguments.source, folder / "theirs", beams, *way, kind))
                median = statistics.median
                best = min(ways, key=lambda way: median(run[0] for run in theirs[way]))
                whole, other = median(r[0] for r in mine), median(r[0] for r in theirs[best])
                bare, other_bare = whole - median(start), median(r[2] for r in theirs[best])
                same = sum(a == b for a, b in zip((folder / "mine").read_text().split("\n"),
                                                  (folder / "theirs").read_text().split("\n"))) - 1
                print(f"{kind}, {threads} thread(s), {beams} beam(s): {whole:.2f} s and {other:.2f} s "
                      f"({best[0]} x {best[1]} threads), ratio {other / whole:.2f}; without loading {bare:.2f} and "
                      f"{other_bare:.2f}, ratio {other_bare / bare:.2f}; {median(r[1] for r in mine):.0f} and "
                      f"{median(r[1] for r in theirs[best]):.0f} MB; {bleu(folder / 'mine')} and "
                      f"{bleu(folder / 'theirs')}; {same} lines equal")
                print("   " + " ".join(f"{r[0]:.2f}" for r in mine) + " | "
                      + " ".join(f"{r[0]:.2f}" for r in theirs[best]), flush=True)


if __name__ == "__main__":
    main()
