"""Tiny trainings by the binary, and what its commands print."""

import functools
import os
import pathlib
import signal
import subprocess

BINARY = os.environ["TAPESTRY_BINARY"]
TASKS = pathlib.Path(os.environ["TAPESTRY_TINY_TASKS"])


def heed_ctrl_c():
    """For a child: a job in the background of a script ignores SIGINT, and its children would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(*arguments, text=None, check=True):
    """`tapestry ARGUMENTS` in the folder of the tiny tasks, with this standard input."""
    return subprocess.run([BINARY, *map(str, arguments)], cwd=TASKS, input=text, text=True,
                          capture_output=True, check=check)


@functools.lru_cache(maxsize=None)
def trained(task, *overrides):
    """The run folder of <task>.yaml, trained once by the binary."""
    run = TASKS / "-".join(["run", task, *overrides]).replace("=", "_")
    command("train", f"{task}.yaml", f"output_dir={run}", *overrides)
    return str(run)


def answers(name, run, lines, *options):
    """The lines that a filter prints for these lines."""
    text = "".join(line + "\n" for line in lines)
    return command(name, "--model", run, *options, text=text).stdout.split("\n")[:-1]


def lines_of(name):
    return (TASKS / name).read_text().split("\n")[:-1]
