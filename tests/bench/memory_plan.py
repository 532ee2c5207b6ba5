#!/usr/bin/env python3
"""Compares what `tapestry plan` says of configs with the most memory that their trainings take.

    tests/bench/memory_plan.py build/release/apps/tapestry --updates 40 CONFIG [KEY=VALUE ...]

The peak is the kernel's of a process of its own (VmHWM), of two starts of a run: the first one trains the
tokenizer and encodes the corpora, which no later start does again.
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
    """Of a first start with half of the updates, and of a second one with the rest."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for steps in (updates // 2, updates):
            command = [tapestry, "train", *arguments, f"output_dir={folder}/run", f"training.max_steps={steps}",
                       "training.num_train_epochs=0"]
            child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            messages = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"memory_plan.py: exit code {child.returncode} from {command}\n{messages}")
            peaks.append(usage.ru_maxrss * 1024)
    return peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tapestry")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("arguments", nargs="+", metavar="CONFIG [KEY=VALUE ...]")
    options = parser.parse_args()
    plan = planned(options.tapestry, options.arguments)
    peaks = measured(options.tapestry, options.arguments, options.updates)
    starts = "  ".join(f"{peak / 1e6:6.0f} MB {100 * (plan / peak - 1):+5.1f} %" for peak in peaks)
    print(f"{os.path.basename(options.arguments[0]):<26} planned {plan / 1e6:6.0f} MB, taken {starts}", flush=True)


if __name__ == "__main__":
    main()
