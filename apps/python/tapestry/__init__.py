"""Tapestry trains Transformers and answers with them.

>>> import tapestry
>>> model = tapestry.Model.load("runs/multi30k_small")
>>> model.translate(["Ein Haus.", "Zwei Hunde."])
"""

from . import ops
from ._tapestry import (
    Answer, GradcheckResult, Model, Optimizer, Score, Tape, Tensor, Var, evaluate, from_dlpack, gradcheck, num_threads,
    set_num_threads, train, version,
)
from .errors import ConfigError, DataError, DivergedError, Error, OutOfMemoryError

__version__ = version()
__all__ = [
    "Answer", "ConfigError", "DataError", "DivergedError", "Error", "GradcheckResult", "Model", "Optimizer",
    "OutOfMemoryError", "Score", "Tape", "Tensor", "Var", "evaluate", "from_dlpack", "gradcheck", "num_threads", "ops",
    "set_num_threads", "train",
]
