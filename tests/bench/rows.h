// The table of kernel benchmarks: a row is one kernel at one shape.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapestry::bench {

struct Row {
  std::string name;   ///< kernel/pass/model
  double operations;  ///< additions, multiplications and elementary functions of one run
  double bytes;       ///< read and written when each operand moves once
  /// Allocates the operands and returns a function that runs the kernel once.
  std::function<std::function<void()>()> prepare;
};
using Table = std::vector<Row>;

/// The shapes that a model's training step gives to its kernels.
struct ModelShape {
  const char* name;
  int64_t batch, length;  ///< B, T
  int64_t hidden, intermediate, heads, layers, vocab;
  bool causal;

  int64_t rows() const { return batch * length; }
};

/// configs/multi30k_small.yaml (one side of a batch), shakespeare_char.yaml, gpt2_124m.yaml.
inline constexpr ModelShape kModels[] = {
    {"multi30k", 128, 32, 256, 1024, 4, 6, 8000, false},
    {"shakespeare", 12, 64, 128, 512, 4, 4, 65, true},
    {"gpt2", 4, 256, 768, 3072, 12, 12, 50257, true},
};

/// float32 with different values in (-1, 1).
Tensor values(const Shape& shape);
/// int32 in [0, bound).
Tensor ids(int64_t n, int64_t bound);

Table product_rows(const ModelShape& model);    ///< gemm, linear, linear_cross_entropy
Table attention_rows(const ModelShape& model);  ///< attention, rope, additive attention, gru, ssru
Table row_wise_rows(const ModelShape& model);   ///< norm, embedding, softmax, cross_entropy, ...
Table packed_rows();                            ///< dense layers of few rows, plain and packed
Table attention_length_rows();                  ///< attention at equal tokens, 512 to 16384 long

}  // namespace tapestry::bench
