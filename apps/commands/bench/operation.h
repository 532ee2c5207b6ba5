// Single operations of the vocabulary (autograd/ops.h) at the sizes that a model gives them, with
// the work that each must do: the rows of `tapestry bench --ops`.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "autograd/ops.h"

namespace tapestry {

/// B rows of T tokens of a model: D, F, H, G, K and V.
struct OperationSizes {
  std::string config;  ///< the file's name without its ending
  int64_t batch = 1, length = 1;
  int64_t source = 0;  ///< S, tokens of a source row; 0: the model reads one text
  int64_t hidden = 1, intermediate = 1, heads = 1, kv_heads = 1, head_size = 1, vocab = 1;
  Activation activation = Activation::kRelu;  ///< of the feed-forward network
  Numbers numbers = {};

  bool operator==(const OperationSizes&) const = default;
  int64_t rows() const { return batch * length; }
};

/// The least that a pass must do: additions, multiplications and elementary functions, and floating
/// numbers that it reads or writes when each moves once.
struct Work {
  double operations = 0;
  double moved = 0;
};

/// One operation. `run` computes it from values of the shapes in `inputs`, drawn from [low, 1), all
/// of which take gradients. Constants such as masks and token ids are its own.
struct OperationRow {
  std::string name;  ///< of its row in the gradient table (autograd/gradcheck_operations.cpp)
  std::vector<Shape> inputs;
  Work forward;   ///< as a training pass runs it: with a tape, saving what backward needs
  Work backward;  ///< none where gradients are handed on as they are
  std::function<Var(std::span<const Var> inputs)> run;
  double low = -1;
};
using OperationRows = std::vector<OperationRow>;

/// int32 in [0, bound).
Tensor random_ids(const Shape& shape, int64_t bound);

// Each adds the rows of some operations, by the sections of autograd/ops.h.
void add_elementwise(OperationRows& rows,
                     const OperationSizes& sizes);  ///< and softmax, shapes, sums
void add_products(OperationRows& rows,
                  const OperationSizes& sizes);  ///< and norms, embedding, losses
void add_attention(OperationRows& rows, const OperationSizes& sizes);  ///< and rope, recurrence

OperationRows operations_of(const OperationSizes& sizes);

/// The sizes of a config's model on a batch of this shape. Throws Error(kConfig) if the model reads
/// no tokens.
OperationSizes operation_sizes(const Config& config, const std::string& name,
                               const std::string& shape);

/// Those of three shipped configs: a translation model, a small and a large causal one.
std::span<const OperationSizes> shipped_operation_sizes();

}  // namespace tapestry
