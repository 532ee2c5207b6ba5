// Memory that attention takes from the allocator, forward and backward: linear in the length for
// the fused operation, quadratic for the composed one.
#include "core/allocator.h"
#include "tests/autograd/support.h"

namespace tapestry {
namespace {

constexpr int64_t kFewHeads = 2, kHeadSize = 8, kWidth = kFewHeads * kHeadSize;

Var packed(int64_t length) {
  return Var::parameter(Tensor::full({1, length, 3 * kWidth}, 0.25, DType::kFloat32));
}

// The peak memory of a training pass of f, including its inputs and their gradients.
template <class F>
int64_t peak_bytes(int64_t length, F f) {
  const test::WithThreads one(1);  // each thread has scratch memory of its own
  const int64_t before = host_memory().bytes_in_use;
  reset_peak_bytes();
  const Var qkv = packed(length);
  Tape tape;
  const Var y = f(qkv);
  tape.backward(y, Tensor::full(y.shape(), 1, DType::kFloat32));
  EXPECT_TRUE(qkv.grad().defined());
  return host_memory().peak_bytes - before;
}

int64_t fused_peak(int64_t length) {
  return peak_bytes(
      length, [](const Var& qkv) { return attention(qkv, {.heads = kFewHeads, .causal = true}); });
}

int64_t reference_peak(int64_t length) {
  return peak_bytes(length, [](const Var& qkv) {
    const auto part = [&](int64_t i) { return slice(qkv, 2, i * kWidth, (i + 1) * kWidth); };
    return attention_reference(part(0), part(1), part(2), {.heads = kFewHeads, .causal = true}).out;
  });
}

// Per token: q, k, v and their gradients, the output, two gradients of it (one is the caller's),
// and two numbers per head for the rows' sums.
TEST(AttentionMemory, FusedIsAFewRowsATokenUpTo16384) {
  fused_peak(512);  // takes the scratch memory of the thread
  constexpr int64_t kFloats = 9 * kWidth + 2 * kFewHeads;
  for (const int64_t length : {1024, 16384}) {
    // A block of the allocator has up to a quarter of slack.
    EXPECT_LE(fused_peak(length), length * kFloats * 4 * 5 / 4 + 65536) << length;
  }
}

// Masks add nothing but what the caller brings: here a table of 2 x 4095 biases, its gradient, and
// the sums of that in double.
TEST(AttentionMemory, MaskedIsLinearToo) {
  const Var table = Var::parameter(Tensor::full({kFewHeads, 4095}, 0.5, DType::kFloat32));
  const auto masked_peak = [&](int64_t length) {
    const Tensor prefixes = Tensor::full({1}, 100, DType::kInt32);
    return peak_bytes(length, [&](const Var& qkv) {
      return attention(qkv, {.heads = kFewHeads,
                             .causal = true,
                             .window = 300,
                             .prefix_lengths = prefixes,
                             .relative_bias = table});
    });
  };
  masked_peak(512);
  constexpr int64_t kFloats = 9 * kWidth + 2 * kFewHeads;
  const int64_t tables = 4095 * kFewHeads * (4 + 8);
  for (const int64_t length : {1024, 16384}) {
    EXPECT_LE(masked_peak(length), (length * kFloats * 4 + tables) * 5 / 4 + 65536) << length;
  }
}

// A dense mask is the caller's, and the kernel reads it in place.
TEST(AttentionMemory, ADenseMaskIsNotCopied) {
  for (const DType dtype : {DType::kInt32, DType::kFloat32}) {
    const Tensor mask = Tensor::full({2048, 2048}, 1, dtype);
    const auto peak = [&](const Tensor& mask) {
      return peak_bytes(
          2048, [&](const Var& qkv) { return attention(qkv, {.heads = kFewHeads, .mask = mask}); });
    };
    peak(mask);
    EXPECT_EQ(peak(mask), peak({}));
  }
}

TEST(AttentionMemory, ComposedIsSeveralSquares) {
  for (const int64_t length : {256, 512, 1024}) {
    EXPECT_GE(reference_peak(length), 2 * kFewHeads * length * length * 4) << length;
  }
}

}  // namespace
}  // namespace tapestry
