// The table of kernel benchmarks: a row is one kernel at one shape. Operations that have gradients
// are those of `tapestry bench --ops`.
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
  int64_t batch;  ///< B
  int64_t hidden, intermediate, layers, vocab;
};

/// configs/multi30k_small.yaml (one side of a batch), shakespeare_char.yaml, gpt2_124m.yaml.
inline constexpr ModelShape kModels[] = {
    {"multi30k", 128, 256, 1024, 6, 8000},
    {"shakespeare", 12, 128, 512, 4, 65},
    {"gpt2", 4, 768, 3072, 12, 50257},
};

/// float32 with different values in (-1, 1).
Tensor values(const Shape& shape);

Table row_wise_rows(const ModelShape& model);  ///< of updates and searches
Table packed_rows();                           ///< dense layers of few rows, plain and packed
Table attention_length_rows();                 ///< attention at equal tokens, 512 to 16384 long

}  // namespace tapestry::bench
