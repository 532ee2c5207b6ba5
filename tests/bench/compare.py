#!/usr/bin/env python3
"""Runs two benchmarks in turn and prints the ratio of their speeds, or compares two tables of operations.

    tests/bench/compare.py --pairs 5 \\
        --ours "build/release/apps/tapestry bench configs/shakespeare_char.yaml --shape 12x64 --steps 50" \\
        --peer "OPENBLAS_CORETYPE=SkylakeX python3 torch_gpt.py" --peer "..."

Each command must print tokens_per_s: as a JSON object on its last line, or as `tapestry bench` does
("tokens_per_s  7348.1"). What a command warns of ("warning: ...") is printed below its figures, as is an
OPENBLAS_CORETYPE that all of them inherit. Peak memory is that of the process. Alternating runs see the same weather on a
machine that others use too; the medians and every single run are printed.

    before/tapestry bench --ops --json before.json
    now/tapestry bench --ops --json now.json
    tests/bench/compare.py --against before.json now.json

prints before / now of each operation's fastest round: others on the machine only add time. Where they are many, run
both in turn several times and give all files: --against a.json b.json --now c.json d.json. Exit code 1: an operation
has less than --bound of its speed; 2: the files are from different machines, or are no such tables.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile


def run(command):
    """tokens/s, peak memory (bytes) and the warnings of one run of a shell command."""
    read, write = os.pipe()
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(["/bin/sh", "-c", "exec env " + command], stdout=write, stderr=said)
        os.close(write)
        with os.fdopen(read) as pipe:
            output = pipe.read()
        _, status, usage = os.wait4(child.pid, 0)
        said.seek(0)
        errors = said.read()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"compare.py: exit code {child.returncode} from: {command}\n{output}{errors}")
    found = re.search(r'tokens_per_s["\s:]+([0-9.eE+]+)', output)
    if not found:
        sys.exit(f"compare.py: no tokens_per_s in the output of: {command}\n{output}")
    warnings = re.findall(r"^warning: .*", errors, re.MULTILINE)
    return float(found.group(1)), usage.ru_maxrss * 1024, warnings


MACHINE = ["processor", "BLAS", "bfloat16", "int8", "threads", "precision"]
RATES = ["products_gflops", "memory_gb_per_s"]


def refuse(message):
    print(f"compare.py: {message}", file=sys.stderr)
    sys.exit(2)


def read_operations(path):
    """What `bench --ops --json` wrote: its facts, and its rows by operation, pass, config and shapes."""
    try:
        with open(path) as file:
            facts = json.load(file)
        rows = {}
        for row in facts.pop("rows"):
            key = tuple(row[name] for name in ("operation", "pass", "config", "shapes"))
            rows[key] = float(row["least_s"])
        missing = [name for name in MACHINE + RATES if name not in facts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        refuse(f"{path} is not a table of `tapestry bench --ops --json`: {error!r}")
    if missing or not rows:
        refuse(f"{path} is not a table of `tapestry bench --ops --json`: it has no {(missing or ['rows'])[0]}")
    return facts, rows


def read_fastest(paths, machine):
    """The facts of the first of the files with the best rates of all, and the least time of each row."""
    first, rows = None, {}
    for path in paths:
        facts, own = read_operations(path)
        machine = machine or (path, facts)
        other = [f"{name} {machine[1][name]} and {facts[name]}" for name in MACHINE
                 if machine[1][name] != facts[name]]
        if other:
            refuse(f"{machine[0]} and {path} are from different machines: {', '.join(other)}")
        first = first or facts
        if facts.get("commit") != first.get("commit"):
            refuse(f"{paths[0]} and {path} are of different commits: {first.get('commit')}, {facts.get('commit')}")
        first.update({name: max(first[name], facts[name]) for name in RATES})
        for key, seconds in own.items():
            rows[key] = min(seconds, rows.get(key, seconds))
    return first, rows, machine


def compare_operations(before_paths, now_paths, bound):
    """Prints the ratio of each row; the number of those below the bound."""
    old, before, machine = read_fastest(before_paths, None)
    new, now, _ = read_fastest(now_paths, machine)
    before_path, now_path = " ".join(before_paths), " ".join(now_paths)
    rates = {name: new[name] / old[name] for name in RATES}
    print(f"commits {old.get('commit')} and {new.get('commit')}; the machine itself, now / before: " +
          ", ".join(f"{name} {ratio:.2f}" for name, ratio in rates.items()))
    if any(not 0.9 <= ratio <= 1 / 0.9 for ratio in rates.values()):
        print("warning: the machine was not as fast both times: run both in turn, several times")
    print(f"{'before ms':>10} {'now ms':>10} {'ratio':>6}  operation")
    slow = 0
    for key in before:
        if key not in now:
            continue
        ratio = before[key] / now[key]
        slow += ratio < bound
        print(f"{1e3 * before[key]:10.4f} {1e3 * now[key]:10.4f} {ratio:6.2f}  {', '.join(key)}" +
              (f"  SLOWER than {bound:g}" if ratio < bound else ""))
    for path, rows, others in ((before_path, before, now), (now_path, now, before)):
        for key in rows:
            if key not in others:
                print(f"only in {path}: {', '.join(key)}")
    both = sum(key in now for key in before)
    if both == 0:
        refuse(f"{before_path} and {now_path} have no row in common")
    print(f"{both - slow} of {both} operations have {bound:g} of their speed or more")
    return slow


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours")
    parser.add_argument("--peer", action="append")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--against", nargs="+", metavar="FILE", help="tables of operations of before; of two files the "
                        "second is of now, unless --now names others")
    parser.add_argument("--now", nargs="+", metavar="FILE", help="tables of operations, compared with --against")
    parser.add_argument("--bound", type=float, default=0.9, help="the least ratio of --against (default 0.9)")
    arguments = parser.parse_args()
    if arguments.against:
        if arguments.ours or arguments.peer:
            parser.error("--against runs nothing: it goes without --ours and --peer")
        before, now = arguments.against, arguments.now
        if not now and len(before) == 2:
            before, now = before[:1], before[1:]
        if not now:
            parser.error("--against takes two files, or some and --now others")
        sys.exit(1 if compare_operations(before, now, arguments.bound) else 0)
    if arguments.now:
        parser.error("--now goes with --against")
    if not arguments.ours or not arguments.peer:
        parser.error("expected --ours and --peer, or --against")
    commands = [arguments.ours] + arguments.peer
    runs = [[] for _ in commands]
    for _ in range(arguments.pairs):
        for command, results in zip(commands, runs):
            results.append(run(command))
    medians = [statistics.median(speed for speed, _, _ in results) for results in runs]
    print(f"{'tokens/s':>12} {'ours / it':>10} {'peak MB':>8}  command")
    for command, results, median in zip(commands, runs, medians):
        memory = max(memory for _, memory, _ in results)
        print(f"{median:12.0f} {medians[0] / median:10.2f} {memory / 1e6:8.0f}  {command}")
        print(" " * 13 + "runs: " + ", ".join(f"{speed:.0f}" for speed, _, _ in results))
        for warning in dict.fromkeys(warning for _, _, said in results for warning in said):
            print(" " * 13 + warning)
    core = os.environ.get("OPENBLAS_CORETYPE")
    if core:
        print(f"OPENBLAS_CORETYPE={core} is set for all of these commands.")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{"command": c, "tokens_per_s": [s for s, _, _ in r],
                        "peak_bytes": [m for _, m, _ in r]} for c, r in zip(commands, runs)], file,
                      indent=2)


if __name__ == "__main__":
    main()
