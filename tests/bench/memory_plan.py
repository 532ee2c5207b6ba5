#!/usr/bin/env python3
"""Compares what `tapestry plan` says of configs with the most memory that their trainings take.

    tests/bench/memory_plan.py build/release/apps/tapestry --updates 40 CONFIG [KEY=VALUE ...]

The peak is the kernel's of a process of its own (VmHWM). It is the second start of a run: the first one
trains the tokenizer and encodes the corpora, which no later start does again.
"""
import argparse
import os
import subprocess
import sys
import tempfile

def planned(tapestry, arguments):
    text = subprocess.run([tapestry, "plan", *arguments], check=True, capture_output=True, text=True).stdout
    rows = {line[:38].strip(): line[38:].split() for line in text.splitlines()}
    return float(rows["most memory, a save included"][0]) * 1e6


def measured(tapestry, arguments, updates):
    with tempfile.TemporaryDirectory() as folder:
        for steps in (1, updates):
            command = [tapestry, "train", *arguments, f"output_dir={folder}/run", f"training.max_steps={steps}",
                       "training.num_train_epochs=0"]
            child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            messages = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"memory_plan.py: exit code {child.returncode} from {command}\n{messages}")
        return usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tapestry")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("arguments", nargs="+", metavar="CONFIG [KEY=VALUE ...]")
    options = parser.parse_args()
    plan = planned(options.tapestry, options.arguments)
    peak = measured(options.tapestry, options.arguments, options.updates)
    name = os.path.basename(options.arguments[0])
    print(f"{' '.join([name, *options.arguments[1:]]):<60} planned {plan / 1e6:7.0f} MB  "
          f"measured {peak / 1e6:7.0f} MB  {100 * (plan / peak - 1):+.1f} %")


if __name__ == "__main__":
    main()
