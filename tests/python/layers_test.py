"""A layer as a notebook writes it: its gradients are checked, and it is trained."""

import gc
import unittest

import numpy

import tapestry
from tapestry import Tape, Tensor, Var, ops

try:
    import torch
except ImportError:
    torch = None

RANDOM = numpy.random.default_rng(5)


def parameter(*shape, dtype=numpy.float64):
    return Var.parameter(Tensor(RANDOM.normal(size=shape).astype(dtype)))


class Tensors(unittest.TestCase):
    def test_share_their_memory(self):
        tensor = Tensor(numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
        array = tensor.numpy()
        array[1, 2] = 50
        self.assertEqual(numpy.asarray(tensor)[1, 2], 50)
        self.assertEqual(numpy.from_dlpack(tensor)[1, 2], 50)
        self.assertEqual(memoryview(tensor)[1, 2], 50)
        self.assertEqual(memoryview(tensor).shape, (2, 3))
        memoryview(tensor)[0, 0] = -1
        self.assertEqual(array[0, 0], -1)

    def test_stand_over_others_memory(self):
        array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        tensor = tapestry.from_dlpack(array)
        array[1, 2] = 50
        self.assertEqual((tensor.shape, tensor.dtype, tensor.numpy()[1, 2]), ((2, 3), "float32", 50))
        tensor.numpy()[0, 0] = -1
        self.assertEqual(array[0, 0], -1)
        other = tapestry.from_dlpack(array[1:])
        del array
        gc.collect()
        self.assertEqual(other.numpy().tolist(), [[3, 4, 50]])
        # A parameter learns in the array's own memory.
        weight = numpy.ones(4)
        leaf = Var.parameter(tapestry.from_dlpack(weight))
        with Tape() as tape:
            tape.backward(ops.sum(leaf * leaf))
        tapestry.Optimizer({"weight": leaf}, "sgd").step(0.25)
        self.assertEqual(weight.tolist(), [0.5] * 4)
        memory = bytearray(8)
        self.assertEqual(tapestry.from_dlpack(numpy.frombuffer(memory, numpy.int32)).numpy().tolist(), [0, 0])
        fixed = numpy.ones(3)
        fixed.flags.writeable = False
        for wrong in [numpy.arange(6.0).reshape(2, 3).T, numpy.ones(3, numpy.int64), fixed, [1.0]]:
            with self.assertRaisesRegex(TypeError, "contiguous array"):
                tapestry.from_dlpack(wrong)

    def test_arrays_outlive_them(self):
        array = Tensor(numpy.full((1000, 7), 3.0)).numpy()
        gc.collect()
        self.assertEqual(array.sum(), 21000)

    def test_keep_types(self):
        for dtype in ["float32", "float64", "int32"]:
            tensor = Tensor(numpy.ones((2, 2), dtype))
            self.assertEqual((tensor.dtype, tensor.numpy().dtype, tensor.shape), (dtype, dtype, (2, 2)))
        self.assertEqual(Tensor(numpy.array([1, 2], numpy.int64)).dtype, "int32")
        self.assertEqual(Tensor(numpy.ones(3), "bfloat16").to("float32").numpy().tolist(), [1, 1, 1])
        self.assertEqual(Tensor(numpy.float32(4)).shape, ())
        # Strides are no part of a tensor: such an array is copied row by row.
        self.assertEqual(Tensor(numpy.arange(6.0).reshape(2, 3).T).numpy().tolist(), [[0, 3], [1, 4], [2, 5]])

    def test_refuse_what_they_do_not_hold(self):
        with self.assertRaises(TypeError):
            Tensor(numpy.ones(3, numpy.complex64))
        with self.assertRaisesRegex(tapestry.Error, "int32 does not hold 4294967296"):
            Tensor(numpy.array([1 << 32]))
        with self.assertRaisesRegex(tapestry.Error, "at most 4 axes, got 5"):
            Tensor(numpy.ones((1, 1, 1, 1, 1)))
        with self.assertRaises(BufferError):
            memoryview(Tensor(numpy.ones(3), "bfloat16"))

    @unittest.skipIf(torch is None, "no PyTorch here")
    def test_go_to_pytorch_and_back(self):
        tensor = Tensor(numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
        theirs = torch.from_dlpack(tensor)
        theirs[0, 1] = 9
        self.assertEqual(tensor.numpy()[0, 1], 9)
        self.assertEqual(Tensor(theirs * 2).numpy().tolist(), (tensor.numpy() * 2).tolist())
        rounded = torch.from_dlpack(Tensor(numpy.ones(3), "bfloat16"))
        self.assertEqual((rounded.dtype, Tensor(rounded).dtype), (torch.bfloat16, "bfloat16"))


class Gradients(unittest.TestCase):
    def test_of_arithmetic(self):
        a, b = parameter(3, 4), parameter(4)
        with Tape() as tape:
            loss = ops.sum((2 * a - b) * a / 4 + 1)
            tape.backward(loss)
        numpy.testing.assert_allclose(a.grad.numpy(), (4 * a.numpy() - b.numpy()) / 4)
        numpy.testing.assert_allclose(b.grad.numpy(), -a.numpy().sum(0) / 4)
        self.assertAlmostEqual(loss.item(), ((2 * a.numpy() - b.numpy()) * a.numpy() / 4 + 1).sum())
        a.zero_grad()
        self.assertIsNone(a.grad)

    def test_of_every_operation_agree_with_differences(self):
        x, y, square = parameter(2, 3, 8), parameter(2, 3, 8), parameter(8, 8)
        vector, table = parameter(8), parameter(5, 8)
        positive = Var.parameter(Tensor(RANDOM.uniform(1, 2, (2, 8))))
        ids = numpy.array([[1, 4, 0], [2, 2, 3]], numpy.int32)
        lengths = numpy.array([3, 2], numpy.int32)
        gates, states, state = parameter(2, 24), parameter(3, 2, 24), parameter(2, 8)
        recurrent, recurrent_bias = parameter(24, 8), parameter(24)
        targets = numpy.array([[1, 7, -1], [0, 3, 5]], numpy.int32)
        cases = {
            "linear": (lambda: ops.linear(x, square, vector, activation="gelu"), [x, square, vector]),
            "matmul": (lambda: ops.matmul(x, y, trans_b=True), [x, y]),
            "at": (lambda: x @ square, [x, square]),
            "glu": (lambda: ops.glu("silu", x), [x]),
            "silu": (lambda: ops.silu(ops.gelu_tanh(x)), [x]),
            "tanh": (lambda: ops.tanh(ops.sigmoid(x)), [x]),
            "exp": (lambda: ops.exp(ops.softcap(x, 3)), [x]),
            "log": (lambda: ops.log(ops.sqrt(positive)), [positive]),
            "softmax": (lambda: ops.softmax(x), [x]),
            "log_softmax": (lambda: ops.log_softmax(x), [x]),
            "dropout": (lambda: ops.dropout(x, 0.3), [x]),
            "masked_fill": (lambda: ops.masked_fill(x, ids[:, :, None].repeat(8, 2) % 2, 0.5), [x]),
            "shapes": (lambda: ops.permute(ops.reshape(x, [3, 2, 8]), [2, 0, 1]), [x]),
            "concat": (lambda: ops.concat([ops.slice(x, 2, 1, 5), y], 2), [x, y]),
            "mean": (lambda: ops.mean(x, 1) - ops.sum(y, 1), [x, y]),
            "embedding": (lambda: ops.embedding(ids, table, scale=2.0), [table]),
            "norm": (lambda: ops.norm(x, vector, vector), [x, vector]),
            "residual_norm": (lambda: ops.residual_norm(x, y, vector, kind="rms")[0], [x, y, vector]),
            "batch_norm": (lambda: ops.batch_norm(x, vector, None, Tensor(numpy.zeros(8)), Tensor(numpy.ones(8))),
                           [x, vector]),
            "attention": (lambda: ops.attention(x, y, x, heads=2, causal=True, key_lengths=lengths), [x, y]),
            "masked_softmax": (lambda: ops.masked_softmax(x, numpy.array([8, 5], numpy.int32)), [x]),
            "rope": (lambda: ops.rope(x, numpy.cos(numpy.arange(12.0)).reshape(3, 4), heads=2), [x]),
            "additive_attention": (lambda: ops.additive_attention(state, x, y, vector, lengths)[0],
                                   [state, x, y, vector]),
            "gru_step": (lambda: ops.gru_step(gates, gates, state), [gates, state]),
            "gru": (lambda: ops.gru(states, recurrent, recurrent_bias, lengths, state),
                    [states, recurrent, recurrent_bias, state]),
            "ssru": (lambda: ops.ssru(ops.concat([x, y], 2), vector), [x, y, vector]),
            "cross_entropy": (lambda: ops.cross_entropy(x, targets, label_smoothing=0.1)[0], [x]),
            "linear_cross_entropy": (lambda: ops.linear_cross_entropy(x, square, vector, targets)[0],
                                     [x, square, vector]),
        }
        for name, (function, inputs) in cases.items():
            with self.subTest(name):
                result = tapestry.gradcheck(function, inputs)
                self.assertTrue(result, result)
                self.assertGreater(result.elements, 0)

    def test_that_are_wrong_are_found(self):
        x = parameter(4)
        # What is computed behind the tape's back has no gradient.
        result = tapestry.gradcheck(lambda: x * x.numpy(), [x])
        self.assertFalse(result)
        with self.assertRaisesRegex(tapestry.Error, "expected parameters of float64, got float32"):
            tapestry.gradcheck(lambda: x, [parameter(3, dtype=numpy.float32)])
        with self.assertRaises(ZeroDivisionError):
            tapestry.gradcheck(lambda: 1 / 0, [x])

    def test_come_only_from_what_records(self):
        x = parameter(2)
        with self.assertRaisesRegex(tapestry.Error, "with Tape"):
            Tape().backward(ops.sum(x))
        with Tape() as tape:
            with self.assertRaisesRegex(tapestry.Error, r"inner dimensions differ"):
                ops.matmul(parameter(2, 3), parameter(2, 3))
            self.assertEqual(tape.size, 0)
            y = x * 2
            self.assertTrue(y.needs_grad)
        self.assertFalse((x * 2).needs_grad)


class TwoLayers:
    def __init__(self, seed):
        draw = numpy.random.default_rng(seed)

        def drawn(*shape):
            return Var.parameter(Tensor(draw.normal(size=shape).astype(numpy.float32)))

        self.parameters = {"hidden.weight": drawn(8, 2), "hidden.bias": drawn(8), "output.weight": drawn(2, 8),
                           "output.bias": drawn(2)}

    def __call__(self, x):
        p = self.parameters
        hidden = ops.linear(x, p["hidden.weight"], p["hidden.bias"], activation="gelu")
        return ops.linear(hidden, p["output.weight"], p["output.bias"])


class Learns(unittest.TestCase):
    def test_exclusive_or_with_every_optimizer(self):
        inputs = numpy.array([[0, 0], [0, 1], [1, 0], [1, 1]], numpy.float32)
        labels = numpy.array([0, 1, 1, 0], numpy.int32)
        for name, rate in [("adamw", 0.05), ("sgd", 0.5), ("momentum", 0.1), ("rmsprop", 0.02)]:
            with self.subTest(name):
                model = TwoLayers(1)
                optimizer = tapestry.Optimizer(model.parameters, name, weight_decay=0)
                for step in range(400):
                    with Tape(seed=1, step=step) as tape:
                        loss, tokens = ops.cross_entropy(model(inputs), labels)
                        tape.backward(loss)
                    norm, finite = optimizer.step(rate, max_grad_norm=1.0)
                    optimizer.zero_grad()
                    self.assertTrue(finite)
                self.assertEqual(tokens, 4)
                self.assertLess(loss.item(), 0.1)
                self.assertEqual(model(inputs).numpy().argmax(1).tolist(), labels.tolist())

    @unittest.skipIf(torch is None, "no PyTorch here")
    def test_as_pytorch_does(self):
        ours = TwoLayers(2)
        theirs = {name: torch.tensor(var.numpy().copy(), requires_grad=True) for name, var in ours.parameters.items()}
        inputs = RANDOM.normal(size=(6, 2)).astype(numpy.float32)
        labels = numpy.array([0, 1, 1, 0, 1, 0], numpy.int32)
        adam = tapestry.Optimizer(ours.parameters, "adam")
        their_adam = torch.optim.Adam(list(theirs.values()), lr=0.01)
        for _ in range(20):
            with Tape() as tape:
                loss, _ = ops.cross_entropy(ours(inputs), labels)
                tape.backward(loss)
            adam.step(0.01)
            adam.zero_grad()
            hidden = torch.nn.functional.gelu(torch.tensor(inputs) @ theirs["hidden.weight"].T + theirs["hidden.bias"])
            logits = hidden @ theirs["output.weight"].T + theirs["output.bias"]
            their_loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels).long())
            their_adam.zero_grad()
            their_loss.backward()
            their_adam.step()
            self.assertAlmostEqual(loss.item(), their_loss.item(), places=5)

    def test_clips_by_the_norm_of_the_update_before(self):
        def stepped(**clip):
            leaf = Var.parameter(Tensor(numpy.zeros(2, numpy.float32)))
            with Tape() as tape:
                tape.backward(ops.sum(ops.mul(leaf, numpy.array([3, 4], numpy.float32))))
            result = tapestry.Optimizer({"weight": leaf}, "sgd", weight_decay=0).step(1.0, **clip)
            return result, leaf.numpy().tolist()

        self.assertEqual(stepped(max_grad_norm=1.0, norm=0.0), ((5.0, True), [-3.0, -4.0]))
        result, weights = stepped(max_grad_norm=1.0, norm=10.0)
        self.assertEqual(result, (5.0, True))
        numpy.testing.assert_allclose(weights, [-0.3, -0.4], rtol=1e-6)
        numpy.testing.assert_allclose(stepped(max_grad_norm=1.0)[1], [-0.6, -0.8], rtol=1e-6)
        with self.assertRaisesRegex(tapestry.ConfigError, "norm has no effect without max_grad_norm, got 2"):
            stepped(norm=2.0)
        with self.assertRaisesRegex(tapestry.ConfigError, "norm must be at least 0, got -1"):
            stepped(max_grad_norm=1.0, norm=-1.0)

    def test_names_what_is_wrong(self):
        with self.assertRaisesRegex(tapestry.ConfigError, "name must be one of sgd, .* got 'adm'"):
            tapestry.Optimizer({}, "adm")


if __name__ == "__main__":
    unittest.main()
