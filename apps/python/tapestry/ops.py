"""The differentiable operations: what a layer is written with."""

from ._tapestry.ops import *  # noqa: F403
