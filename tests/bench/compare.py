#!/usr/bin/env python3
"""Runs two benchmarks in turn and prints the ratio of their speeds.

    tests/bench/compare.py --pairs 5 \\
        --ours "build/release/apps/tapestry bench configs/shakespeare_char.yaml --shape 12x64 --steps 50" \\
        --peer "OPENBLAS_CORETYPE=SkylakeX python3 torch_gpt.py" --peer "..."

Each command must print tokens_per_s: as a JSON object on its last line, or as `tapestry bench` does
("tokens_per_s  7348.1"). What a command warns of ("warning: ...") is printed below its figures, as is an
OPENBLAS_CORETYPE that all of them inherit. Peak memory is that of the process. Alternating runs see the same weather on a
machine that others use too; the medians and every single run are printed.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--peer", action="append", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", help="also write all figures to this file")
    arguments = parser.parse_args()
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
