// Messages of the operations about inputs that do not fit: `[who] expectation, got actual values.`
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

using test::error_of;
using test::ints;
using test::parameter;
using test::uniform;

TEST(Errors, Backward) {
  const Var x = parameter({2, 3}, 1), frozen = parameter({2, 3}, 2);
  frozen.set_requires_grad(false);
  Tape tape;
  const Var y = x * x;
  EXPECT_EQ(error_of([&] { tape.backward(y); }),
            "[backward] the loss must have one element, got (2, 3).");
  EXPECT_EQ(error_of([&] {
              tape.backward(y, uniform({3, 2}, 1));
            }),
            "[backward] the gradient is float64 (3, 2), the value float64 (2, 3).");
  EXPECT_EQ(error_of([&] {
              tape.backward(y, Tensor::zeros({2, 3}));
            }),
            "[backward] the gradient is float32 (2, 3), the value float64 (2, 3).");
  const char* elsewhere =
      "[backward] the value was not recorded on this tape, or depends on no parameter.";
  EXPECT_EQ(error_of([&] { tape.backward(sum(frozen)); }), elsewhere);
  EXPECT_EQ(error_of([&] { tape.backward(x, uniform({2, 3}, 1)); }), elsewhere);
  const Var loss = sum(y);
  {
    Tape inner;
    const Var other = sum(x);
    EXPECT_EQ(error_of([&] { inner.backward(loss); }), elsewhere);
    EXPECT_EQ(inner.size(), 1u);
  }
  tape.backward(loss);
  EXPECT_EQ(error_of([&] { tape.backward(loss); }), elsewhere) << "a tape is walked once";
}

TEST(Errors, NameTheOperationAndTheShapes) {
  const auto zeros = [](const Shape& shape) { return Var(Tensor::zeros(shape)); };
  EXPECT_EQ(error_of([&] {
              matmul(zeros({8, 16, 512}), zeros({256, 1024}));
            }),
            "[matmul] inner dimensions differ: a is (8, 16, 512), b is (256, 1024).");
  EXPECT_EQ(error_of([&] {
              matmul(zeros({4, 3}), zeros({4, 3}),
                     {
                         .trans_b = true,
                     });
            }),
            "");
  EXPECT_EQ(error_of([&] {
              matmul(zeros({3, 4}), zeros({4, 3}), {.trans_b = true});
            }),
            "[matmul] inner dimensions differ: a is (3, 4), b is (4, 3) transposed.");
  EXPECT_EQ(error_of([&] {
              matmul(zeros({2, 3, 4}), zeros({5, 4, 3}));
            }),
            "[matmul] batch sizes differ: a is (2, 3, 4), b is (5, 4, 3).");
  EXPECT_EQ(error_of([&] {
              matmul(zeros({3}), zeros({3, 4}));
            }),
            "[matmul] expected matrices or equal batches of them: a is (3), b is (3, 4).");
  EXPECT_EQ(error_of([&] {
              zeros({2, 3}) + zeros({4});
            }),
            "[add] shapes do not broadcast: (2, 3) and (4).");
  EXPECT_EQ(error_of([&] {
              zeros({2, 3}) / zeros({3, 3});
            }),
            "[div] shapes do not broadcast: (2, 3) and (3, 3).");
  EXPECT_EQ(error_of([&] {
              linear(zeros({2, 3}), zeros({5, 4}));
            }),
            "[linear] inner dimensions differ: x is (2, 3), weight is (5, 4).");
  EXPECT_EQ(error_of([&] {
              linear(zeros({2, 4}), zeros({5, 4}), zeros({4}));
            }),
            "[linear] weight is (5, 4), bias is (4).");
  EXPECT_EQ(error_of([&] {
              reshape(zeros({2, 3}), {4, 2});
            }),
            "[reshape] element counts differ: (2, 3) to (4, 2).");
  EXPECT_EQ(error_of([&] {
              slice(zeros({2, 3}), 1, 1, 4);
            }),
            "[slice] [1, 4) is not in axis 1 of (2, 3).");
  EXPECT_EQ(error_of([&] {
              concat({zeros({2, 3}), zeros({3, 3})}, 1);
            }),
            "[concat] parts differ outside axis 1: (2, 3) and (3, 3).");
  EXPECT_EQ(error_of([&] { permute(zeros({2, 3}), {0, 0}); }), "[permute] axis 0 is named twice.");
  EXPECT_EQ(error_of([&] { sum(zeros({2, 3}), 2); }), "[shape] axis 2 is out of range for (2, 3).");
  EXPECT_EQ(error_of([&] { dropout(zeros({2}), 1.0); }),
            "[dropout] the probability must be in [0, 1), got 1.");
  EXPECT_EQ(error_of([&] {
              masked_fill(zeros({2, 3}), ints({1, 0, 1, 0}, {4}), 0);
            }),
            "[masked_fill] the mask must have x's leading or trailing sizes: the mask is (4), "
            "x (2, 3).");
  EXPECT_EQ(error_of([&] {
              norm(zeros({2, 3}), zeros({2}), {});
            }),
            "[norm] x is (2, 3), gamma (2), beta ().");
  EXPECT_EQ(error_of([&] {
              residual_norm(zeros({2, 3}), zeros({3, 3}), zeros({3}), {});
            }),
            "[residual_norm] x is (2, 3), residual (3, 3).");
}

TEST(Errors, KindsThatDiffer) {
  const Var a = Tensor::zeros({2}, DType::kFloat64), b = Tensor::zeros({2});
  EXPECT_EQ(error_of([&] { a + b; }),
            "[add] inputs differ in dtype or device: float64 on cpu, float32 on cpu.");
  EXPECT_EQ(error_of([&] { a + Var(); }), "[add] an input is undefined.");
  EXPECT_EQ(error_of([&] { Var() + a; }), "[add] an input is undefined.");
  EXPECT_EQ(error_of([&] {
              exp(Var(ints({1, 2}, {2})));
            }),
            "[dispatch] expected a floating dtype, got int32.");
}

TEST(Errors, AttentionEmbeddingAndLosses) {
  const auto zeros = [](const Shape& shape) { return Var(Tensor::zeros(shape)); };
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 8}), {.heads = 3});
            }),
            "[attention] qkv is (2, 3, 8), its width is not a multiple of 9 heads.");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 8}), zeros({2, 3, 8}), zeros({2, 4, 8}), {.heads = 2});
            }),
            "[attention] head sizes or lengths differ: q is (2, 3, 8) with 2 heads, k is (2, 3, 8) "
            "and v is (2, 4, 8) with 2.");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 8}), zeros({1, 3, 8}), zeros({1, 3, 8}), {.heads = 2});
            }),
            "[attention] batch sizes differ: q is (2, 3, 8), k is (1, 3, 8).");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 24}), {.heads = 2, .key_lengths = ints({3}, {1})});
            }),
            "[attention] key_lengths must be (2), got (1).");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 40}), {
                                               .heads = 6,
                                               .kv_heads = 2,
                                           });
            }),
            "");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 42}), {.heads = 3, .kv_heads = 2});
            }),
            "[attention] key/value heads must divide heads, got 2 and 3.");
  const auto masked = [&](const Tensor& mask) {
    return error_of([&] { attention(zeros({2, 3, 24}), {.heads = 2, .mask = mask}); });
  };
  EXPECT_EQ(masked(Tensor::zeros({3, 4})),
            "[attention] the mask must be (3, 3), (2, 3, 3) or (2, 2, 3, 3), got (3, 4).");
  EXPECT_EQ(masked(Tensor::zeros({3, 3, 3})),
            "[attention] the mask must be (3, 3), (2, 3, 3) or (2, 2, 3, 3), got (3, 3, 3).");
  EXPECT_EQ(masked(Tensor::zeros({1, 3, 3, 3})),
            "[attention] the mask must be (3, 3), (2, 3, 3) or (2, 2, 3, 3), got (1, 3, 3, 3).");
  EXPECT_EQ(masked(Tensor::zeros({3, 3}, DType::kFloat64)),
            "[attention] the mask must be int32 or float32 on cpu, got float64 on cpu.");
  EXPECT_EQ(masked(Tensor::zeros({1, 1, 3, 3})), "");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 24}), {.heads = 2, .relative_bias = zeros({2, 4})});
            }),
            "[attention] the relative bias must be (2, 2R - 1), got (2, 4).");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 24}), {.heads = 2, .window = -1});
            }),
            "[attention] the window must be at least 0, got -1.");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 24}), {.heads = 2, .prefix_lengths = ints({3}, {1})});
            }),
            "[attention] prefix_lengths must be (2), got (1).");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 24}), {.heads = 2, .value_size = 5});
            }),
            "[attention] qkv is (2, 3, 24), too wide or too narrow for 2 + 2 heads and values of 2 "
            "x 5.");
  EXPECT_EQ(error_of([&] {
              attention(zeros({2, 3, 8}), zeros({2, 3, 14}), {.heads = 2, .value_size = 4});
            }),
            "[attention] expected values of 2 x 4, got 6 columns.");
  EXPECT_EQ(
      error_of([&] {
        attention(zeros({2, 3, 8}), zeros({1, 9, 16}),
                  {.heads = 2, .key_lengths = ints({1, 2}, {2}), .key_rows = ints({0, 1}, {2, 1})});
      }),
      "[attention] with key_rows expected one query per batch element, their lengths, and keys "
      "of one batch element, got q (2, 3, 8), k (1, 9, 16) and key_rows (2, 1).");
  EXPECT_EQ(error_of([&] {
              embedding(ints({0, 1}, {2, 1}), zeros({5, 4}), zeros({6, 4}),
                        {.position_offset = 5, .position_offsets = ints({5}, {1})});
            }),
            "[embedding] position_offsets must be (2), got (1).");
  EXPECT_EQ(error_of([&] {
              embedding(ints({0, 1, 4, 2, 7, 1}, {2, 3}), zeros({5, 4}));
            }),
            "[embedding] ids must be in [0, 5), got 7 at (1, 1).");
  EXPECT_EQ(error_of([&] {
              embedding(ints({0, -1}, {1, 2}), zeros({5, 4}));
            }),
            "[embedding] ids must be in [0, 5), got -1 at (0, 1).");
  EXPECT_EQ(
      error_of([&] {
        embedding(ints({0, 1}, {1, 2}), zeros({5, 4}), zeros({6, 4}), {.position_offset = 5});
      }),
      "[embedding] positions 5 to 6 of width 4 are needed, the table of positions is (6, 4).");
  EXPECT_EQ(error_of([&] {
              cross_entropy(zeros({2, 3}), ints({0, 3}, {2}));
            }),
            "[cross_entropy] targets must be in [0, 3), got 3 at row 1.");
  EXPECT_EQ(error_of([&] {
              cross_entropy(zeros({2, 3}), ints({0, 1, 2}, {3}));
            }),
            "[cross_entropy] expected 2 int32 targets, got (3).");
  EXPECT_EQ(
      error_of([&] {
        cross_entropy(zeros({2, 3}), ints({0, 1}, {2}),
                      {.weights = Tensor::full({3}, 1, DType::kFloat32)});
      }),
      "[cross_entropy] expected a float32 weight in host memory for each of 2 rows, got (3).");
  EXPECT_EQ(error_of([&] {
              cross_entropy(zeros({2, 3}), ints({0, 1}, {2}),
                            {.weights = Tensor::full({2}, 0, DType::kFloat32)});
            }),
            "[cross_entropy] weights must be positive and finite, got 0 at row 0.");
  EXPECT_EQ(error_of([&] {
              linear_cross_entropy(zeros({2, 3}), zeros({5, 4}), {}, {});
            }),
            "[linear_cross_entropy] x is (2, 3), weight is (5, 4).");
}

}  // namespace
}  // namespace tapestry
