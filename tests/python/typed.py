"""What the stubs must accept: tests/python.sh checks it with mypy --strict, and nothing runs it."""

import numpy
import tapestry
from tapestry import ops

run: str = tapestry.train({"task": "clm"}, ["seed=1"], on_update=lambda step, metrics: print(step, metrics["loss"]))
model = tapestry.Model.load(run, weights="int8")
texts: list[str] = model.translate(["a"], num_beams=3)
scores = [one.score for one in model.translate_n_best(["a"], 2)[0]]
vectors = model.embed(texts).sum()
x = tapestry.Var.parameter(tapestry.Tensor(numpy.ones(3)))
y: tapestry.Var = ops.linear(x, x, activation="gelu") * 2 + x
with tapestry.Tape() as tape:
    tape.backward(ops.sum(y))
if tapestry.gradcheck(lambda: ops.tanh(x), [x]).passed and x.grad is not None:
    print(x.grad.numpy())
try:
    model.score(["a"])
except tapestry.ConfigError as error:
    print(error.places)
