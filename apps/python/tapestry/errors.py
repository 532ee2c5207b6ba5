"""What goes wrong: one class for each exit code of the program, with the program's own text."""

import re


class Error(RuntimeError):
    """Every error of the libraries. `exit_code` is the program's for the same one."""

    exit_code = 1


class ConfigError(Error, ValueError):
    """A config or an argument that is wrong: all that is wrong with it, a line each."""

    exit_code = 2

    @property
    def places(self) -> "list[tuple[str, int, int]]":
        """The file, line and column of each problem that has them."""
        found = re.findall(r"^ *(.+?):(\d+):(\d+): ", str(self), re.MULTILINE)
        return [(file, int(line), int(column)) for file, line, column in found]


class DataError(Error, ValueError):
    """A file that is missing, damaged, or does not fit."""

    exit_code = 3


class DivergedError(Error, ArithmeticError):
    """A training whose loss or weights are not finite."""

    exit_code = 4


class OutOfMemoryError(Error, MemoryError):
    """A training or model that needs more memory than there is."""

    exit_code = 5
