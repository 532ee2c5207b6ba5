#!/usr/bin/env python3
"""Compares what `tapestry plan` says of configs with the most memory that their trainings take.

    tests/bench/memory_plan.py build/release/apps/tapestry --updates 40 CONFIG [KEY=VALUE ...]

The peak is the kernel's of a process of its own (VmHWM), of two starts of a run, each planned before: the first
one trains the tokenizer and encodes the corpora, which no later start does again.
"""
import argparse
import os
import subprocess
import sys
import tempfile

def planned(tapestry, arguments):
    text = subprocess.run([tapestry, "plan", *arguments], check=True, capture_output=True, text=True).stdout
    rows = {line[:38].strip(): line[38:].split() for line in text.splitlines()}
    names = ("most memory, a save included", "and tokens, mapped while there is room")
    return sum(float(rows[name][0]) for name in names) * 1e6


def starts(tapestry, arguments, updates):
    """Planned and taken, of a first start and of a second one that goes on."""
    with tempfile.TemporaryDirectory() as folder:
        for steps in (updates, 2 * updates):
            settings = [*arguments, f"output_dir={folder}/run", f"training.max_steps={steps}",
                        "training.num_train_epochs=0"]
            plan = planned(tapestry, settings)
            child = subprocess.Popen([tapestry, "train", *settings], stderr=subprocess.PIPE, text=True)
            messages = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"memory_plan.py: exit code {child.returncode} from {settings}\n{messages}")
            yield plan, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tapestry")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("arguments", nargs="+", metavar="CONFIG [KEY=VALUE ...]")
    options = parser.parse_args()
    text = "".join(f"  planned {plan / 1e6:4.0f} MB, taken {peak / 1e6:4.0f} MB: {100 * (plan / peak - 1):+5.1f} %"
                   for plan, peak in starts(options.tapestry, options.arguments, options.updates))
    print(f"{os.path.basename(options.arguments[0]):<24}{text}", flush=True)


if __name__ == "__main__":
    main()
