#!/usr/bin/env python3
"""Tests of the tests: changes one operator or constant of a source at a time, and asks whether a test fails.

    tests/mutants.py FOLDER --mutants 400 --seed 1 [--results mutants.jsonl] [--rooms optim autograd nn core/kernels]
    tests/mutants.py --report mutants.jsonl

FOLDER is a checkout of its own (git worktree add FOLDER), whose sources are changed and changed back; it is built with
the release preset. A mutant is killed if a test of its room fails or hangs; one that survives them meets the tests of the
rooms above. What is in the results already is not run again, so that a run can be ended and continued. Sources that many
others include are left out: each of their mutants would compile for minutes.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import time

# Rooms, and the tests that meet their mutants: the own ones first.
ROOMS = {
    "core/kernels": ["core_tests", "autograd_tests", "nn_tests", "optim_tests"],
    "autograd": ["autograd_tests", "nn_tests"],
    "optim": ["optim_tests", "apps_tests"],
    "nn": ["nn_tests", "apps_tests"],
}
# Of apps, those tests that hold the bits and the memory of trainings and answers.
FILTERS = {"apps_tests": "--gtest_filter=*GoldenWeights*:*GoldenRun*:InBackwardTest.*:MemoryPlanTest.*"}
SWAPS = [
    (" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "), (" % ", " / "), (" < ", " <= "), (" <= ", " < "),
    (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "), (" && ", " || "), (" || ", " && "),
    (" += ", " -= "), (" -= ", " += "), (" *= ", " /= "), ("std::min", "std::max"), ("std::max", "std::min"),
    ("true", "false"), ("false", "true"), ("++", "--"), ("(!", "("),
]  # fmt: skip
NUMBER = re.compile(r"(?<![\w.'\"])(\d+)(?![\w.'\"])")
REAL = re.compile(r"(?<![\w.'\"])(\d+\.\d+)(?![\w.'\"])")
# Lines that compute nothing, or only say what was wrong.
SKIPPED = re.compile(r"^\s*(//|#|template|using|namespace|static_assert|HWY_|check\(|fail\(|expect)|\bconcat\(|pragma")


def without_texts(line):
    """The line with its strings, characters and comment blanked, so that places stay."""
    line = re.sub(r'"(\\.|[^"\\])*"', lambda m: '"' * len(m.group()), line)
    line = re.sub(r"'(\\.|[^'\\])+'", lambda m: "'" * len(m.group()), line)
    return re.sub(r"//.*", lambda m: " " * len(m.group()), line)


def mutants_of(folder, path):
    """(path, line from 1, column, old, new) of every change that this script knows."""
    found = []
    inside = False  # of a check or a message that goes on over lines
    for number, line in enumerate((folder / path).read_text().split("\n"), 1):
        starts = SKIPPED.search(line)
        if starts or inside:
            inside = not line.rstrip().endswith((";", "{", "}")) and not line.lstrip().startswith(("//", "#"))
            continue
        code = without_texts(line)
        for old, new in SWAPS:
            for match in re.finditer(re.escape(old), code):
                if old.isalpha() and re.search(r"\w", code[match.end() : match.end() + 1] + code[match.start() - 1 : match.start()]):
                    continue
                found.append((path, number, match.start(), old, new))
        for match in NUMBER.finditer(code):
            found.append((path, number, match.start(), match.group(), str(int(match.group()) + 1)))
        for match in REAL.finditer(code):
            found.append((path, number, match.start(), match.group(), str(2 * float(match.group()) or 1.0)))
    return found


def run(command, folder, seconds):
    """The exit status, and None if it takes longer."""
    try:
        return subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=seconds).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


class Mutation:
    def __init__(self, folder, jobs):
        self.folder, self.build = folder, folder / "build/release"
        self.jobs = str(jobs)
        self.usual = {}  # seconds of a program's tests

    def make(self, program):
        return run(["ninja", "-C", str(self.build), "-j", self.jobs, program], self.folder, 3600) == 0

    def tests_pass(self, program):
        most = 600 if program not in self.usual else 30 + 10 * self.usual[program]
        begin = time.monotonic()
        command = [str(self.build / "tests" / program), "--gtest_fail_fast", "--gtest_brief=1"]
        if program in FILTERS:
            command.append(FILTERS[program])
        passed = run(command, self.folder, most) == 0
        if passed:
            self.usual.setdefault(program, time.monotonic() - begin)
        return passed

    def outcome(self, mutant, programs):
        path, number, column, old, new = mutant
        source = self.folder / path
        before = source.read_text()
        lines = before.split("\n")
        line = lines[number - 1]
        lines[number - 1] = line[:column] + new + line[column + len(old) :]
        try:
            source.write_text("\n".join(lines))
            for program in programs:
                if not self.make(program):
                    return "does not compile"
                if not self.tests_pass(program):
                    return f"killed by {program}"
            return "survived"
        finally:
            source.write_text(before)


def report(path):
    results = [json.loads(line) for line in open(path, encoding="utf-8")]
    for room in [*ROOMS, ""]:
        own = [r for r in results if r["path"].startswith(room) and r["outcome"] != "does not compile"]
        lived = [r for r in own if r["outcome"] == "survived"]
        if own:
            print(f"{room or 'all'}: {len(own) - len(lived)} of {len(own)} killed, {1 - len(lived) / len(own):.3f}")
    for r in results:
        if r["outcome"] == "survived":
            print(f"{r['path']}:{r['line']}:{r['column'] + 1}: {r['old'].strip()} -> {r['new'].strip()}: {r['text'].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--results", default="mutants.jsonl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", metavar="RESULTS", help="print the score and the survivors of a run")
    arguments = parser.parse_args()
    if arguments.report:
        return report(arguments.report)
    if arguments.folder is None:
        parser.error("expected a checkout, or --report")
    folder = arguments.folder.resolve()
    if run(["git", "diff", "--quiet"], folder, 60) != 0:
        sys.exit(f"mutants.py: {folder} has changes of its own.")
    drawn = []
    for room in arguments.rooms:
        # Rows of the gradient table are a test themselves.
        sources = sorted(s for s in (folder / room).rglob("*.cpp") if "gradcheck" not in str(s.relative_to(folder)))
        all_of_room = [m for source in sources for m in mutants_of(folder, str(source.relative_to(folder)))]
        share = arguments.mutants // len(arguments.rooms)
        random.Random(f"{arguments.seed} {room}").shuffle(all_of_room)
        drawn.append([(room, mutant) for mutant in all_of_room[:share]])
    results = pathlib.Path(arguments.results)
    done = set()
    if results.exists():
        for line in results.read_text().splitlines():
            one = json.loads(line)
            done.add((one["path"], one["line"], one["column"], one["old"], one["new"]))
    mutation = Mutation(folder, arguments.jobs)
    for program in sorted({program for room in arguments.rooms for program in ROOMS[room]}):
        if not mutation.make(program):
            sys.exit(f"mutants.py: {program} does not compile unchanged: cmake --preset release first.")
        if not mutation.tests_pass(program):
            sys.exit(f"mutants.py: {program} fails unchanged.")
    for turn in range(max(map(len, drawn))):  # rooms in turn, so that a part of a run says something of each
        for room, mutant in (of_room[turn] for of_room in drawn if turn < len(of_room)):
            if mutant in done:
                continue
            path, number, column, old, new = mutant
            text = (folder / path).read_text().split("\n")[number - 1]
            outcome = mutation.outcome(mutant, ROOMS[room])
            with results.open("a", encoding="utf-8") as out:
                record = {"path": path, "line": number, "column": column, "old": old, "new": new, "text": text, "outcome": outcome}
                out.write(json.dumps(record) + "\n")
            print(f"{path}:{number}: {old.strip()} -> {new.strip()}: {outcome}", flush=True)
    report(results)


if __name__ == "__main__":
    main()
