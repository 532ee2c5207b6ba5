// Attention on a GPU by itself, forward and backward, in bfloat16:
//
//   attention_times [KERNELS [LONGEST [WIDTH [CALLS]]]]
//
// KERNELS: all (by shape, the default), mma (those for any GPU), two or heads (the two forms of
// backward for compute capability 9.0).
// LONGEST (16384) tokens, in sentences of 32 tokens, 64 and so on, by heads of 64 and of
// 128 elements, WIDTH (2048) in all; and GPT-2's layer at 64 x 1024 tokens. Means of CALLS (10), by
// events around each kernel. Operations are those of the products that a mask leaves: two forward,
// five backward (though the kernels compute some twice).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "core/base/philox.h"
#include "core/cuda/hopper.h"
#include "core/device_runtime.h"
#include "core/dispatch.h"
#include "core/kernels/attention/attention.h"
#include "core/tensor.h"

namespace {

using namespace tapestry;

constexpr Device kGpu{Device::Kind::kCuda, 0};

// Random, because a GPU multiplies zeros faster; the same few again and again, because drawing
// takes longer than all else here.
Tensor random_tensor(int64_t n, uint64_t seed) {
  constexpr int64_t kDrawn = 1000003;
  const Tensor tensor = Tensor::empty({n}, DType::kFloat32);
  float* const x = tensor.data<float>();
  for (int64_t i = 0; i < std::min(n, kDrawn); ++i) {
    x[i] = 2 * to_uniform(philox_bits({seed, 1, 2}, static_cast<uint64_t>(i))) - 1;
  }
  for (int64_t i = kDrawn; i < n; ++i) x[i] = x[i - kDrawn];
  return tensor.to(DType::kBFloat16).to(kGpu);
}

// Operands for any shape of at most so many tokens and elements of a token.
struct Operands {
  explicit Operands(int64_t elements)
      : qkv(random_tensor(3 * elements, 1)),
        d_out(random_tensor(elements, 2)),
        out(Tensor::empty({elements}, DType::kBFloat16, kGpu)),
        d_qkv(Tensor::empty({3 * elements}, DType::kBFloat16, kGpu)),
        log_sum_exp(Tensor::empty({elements / 64}, DType::kFloat32, kGpu)) {}

  Tensor qkv, d_out, out, d_qkv, log_sum_exp;
};

// Column range `part` of (B, T, parts * width).
Rows<BFloat16> columns(const Tensor& x, const AttentionShape& shape, int part, int parts) {
  const int64_t width = shape.heads * shape.head_size;
  return {x.data<BFloat16>() + part * width, parts * width, parts * width * shape.queries};
}
Rows<const BFloat16> input(const Tensor& x, const AttentionShape& shape, int part, int parts) {
  const auto [data, row, batch] = columns(x, shape, part, parts);
  return {data, row, batch};
}

void forward(const AttentionShape& shape, const Operands& o) {
  kernels::attention<BFloat16>(
      Cuda{}, shape,
      {input(o.qkv, shape, 0, 3), input(o.qkv, shape, 1, 3), input(o.qkv, shape, 2, 3),
       columns(o.out, shape, 0, 1), o.log_sum_exp.data<float>()});
}

void backward(const AttentionShape& shape, const Operands& o) {
  AttentionBackward<BFloat16> args{};
  args.q = input(o.qkv, shape, 0, 3), args.k = input(o.qkv, shape, 1, 3);
  args.v = input(o.qkv, shape, 2, 3);
  args.out = input(o.out, shape, 0, 1), args.d_out = input(o.d_out, shape, 0, 1);
  args.log_sum_exp = o.log_sum_exp.data<float>();
  args.dq = columns(o.d_qkv, shape, 0, 3), args.dk = columns(o.d_qkv, shape, 1, 3);
  args.dv = columns(o.d_qkv, shape, 2, 3);
  args.dq_write = args.dk_write = args.dv_write = Write::kSet;
  kernels::attention_backward<BFloat16>(Cuda{}, shape, args);
}

// Milliseconds of one call.
template <class F>
double time_of(int64_t calls, F&& call) {
  for (int64_t i = 0; i < calls / 4; ++i) call();
  forget_kernel_times();
  for (int64_t i = 0; i < calls; ++i) call();
  double sum = 0;
  for (const KernelTime& time : kernel_times()) sum += time.milliseconds;
  return sum / static_cast<double>(calls);
}

void print_times(int64_t calls, int64_t batch, int64_t length, int64_t heads, int64_t head_size,
                 bool causal, const Operands& operands) {
  AttentionShape shape;
  shape.batch = batch;
  shape.queries = shape.keys = length;
  shape.heads = shape.kv_heads = heads;
  shape.head_size = shape.value_size = head_size;
  shape.scale = 1 / std::sqrt(static_cast<double>(head_size));
  shape.causal = causal;
  const auto t = static_cast<double>(length);
  const double pairs = causal ? t * (t + 1) / 2 : t * t;
  const double product = 2 * static_cast<double>(batch * heads * head_size) * pairs;
  const double there = time_of(calls, [&] { forward(shape, operands); });
  const double back = time_of(calls, [&] { backward(shape, operands); });
  std::printf("attention %4ldx%-5ld heads %2ldx%-3ld %-6s  forward %8.3f ms %4.0f TFLOP/s", batch,
              length, heads, head_size, causal ? "causal" : "full", there, 2e-9 * product / there);
  std::printf("  backward %8.3f ms %4.0f TFLOP/s\n", back, 5e-9 * product / back);
  std::fflush(stdout);
}

void run(int64_t longest, int64_t width, int64_t calls) {
  const int64_t gpt2_batch = std::max<int64_t>(longest / 256, 1), gpt2_length = longest / 16;
  const Operands operands(std::max(longest * width, gpt2_batch * gpt2_length * 768));
  time_kernels();
  print_times(calls, gpt2_batch, gpt2_length, 12, 64, true, operands);
  for (const int64_t head_size : {64, 128}) {
    for (const bool causal : {true, false}) {
      for (int64_t length = 32; length <= longest; length *= 2) {
        print_times(calls, longest / length, length, width / head_size, head_size, causal,
                    operands);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    using cuda::HopperAttention;
    const std::map<std::string, HopperAttention> choices = {{"all", HopperAttention::kByShape},
                                                            {"mma", HopperAttention::kNowhere},
                                                            {"two", HopperAttention::kTwoKernels},
                                                            {"heads", HopperAttention::kHeads}};
    const std::string kernels = argc > 1 ? argv[1] : "all";
    const int64_t longest = argc > 2 ? std::atol(argv[2]) : 16384;
    const int64_t width = argc > 3 ? std::atol(argv[3]) : 2048;
    const int64_t calls = argc > 4 ? std::atol(argv[4]) : 10;
    if (choices.count(kernels) == 0 || longest < 32 || longest % 32 != 0 || width < 128 ||
        width % 128 != 0 || calls < 1) {
      std::fprintf(stderr,
                   "attention_times [all|mma|two|heads [LONGEST [WIDTH [CALLS]]]]: multiples of "
                   "32 and 128\n");
      return 2;
    }
    if (kernels != "all") cuda::choose_hopper_attention(choices.at(kernels));
    run(longest, width, calls);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_times: %s\n", error.what());
    return 1;
  }
}
