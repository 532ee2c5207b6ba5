// A matrix of parameters by which layers multiply, or in which they look up rows. It may be packed
// for inference.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "autograd/ops.h"
#include "core/kernels/packed/packed_top_logits.h"

namespace tapestry {

/// W (N, K). Copies are the same matrix, so that packing reaches every layer that has one.
class WeightMatrix {
 public:
  WeightMatrix() = default;      ///< undefined
  WeightMatrix(const Var& var);  // NOLINT: matrices that others hold convert on purpose
  /// Without a parameter until set().
  WeightMatrix(Device device, DType dtype);
  /// One that does not learn, and is kept in another format; layers compute in `dtype`.
  WeightMatrix(const FrozenMatrix& frozen, DType dtype);

  bool defined() const { return state_ != nullptr; }
  /// The parameter. Throws Error(kRuntime) after pack(), before set(), and if it is frozen.
  const Var& var() const;
  operator const Var&() const { return var(); }  // NOLINT: it stands for its parameter
  operator Weight() const;                       // NOLINT: also where it is frozen
  const Tensor& value() const { return var().value(); }
  Tensor grad() const { return var().grad(); }
  int64_t size() const;  ///< N
  Device device() const;
  DType dtype() const;

  /// From now on products and look-ups round W, and products by int8 or int4 their x, too, as
  /// packing in this format would: any but float32. A packed matrix has its own format.
  void learn_for(WeightFormat format) const;
  /// x as products with the matrix see it.
  Var factor(const Var& x) const;

  /// act(x W^T + bias), as linear(). A packed matrix has no gradient: throws Error(kRuntime) if a
  /// tape asks for one.
  Var multiply(const Var& x, const Var& bias, const LinearOptions& options = {}) const;
  /// Logits are softcap(x W^T + bias); 0: without softcap.
  struct Logits {
    const Var& bias;
    double softcap = 0;
    ChosenRows chosen = {};
  };
  /// top_logits() of each row of logits, x (R, K): (R, 1 + 2 * count) float64. Packed matrices
  /// only; their logits are never stored at once.
  Tensor best(const Var& x, const Logits& logits, int64_t count,
              const std::vector<int32_t>& banned) const;
  /// packed_largest() of each row of logits: (R) int32. Needs has_largest(); the first call rounds
  /// the matrix.
  Tensor largest(const Var& x, const Logits& logits, const std::vector<int32_t>& banned) const;
  /// Packed float32 or bfloat16, on a processor where sums of integers are much faster.
  bool has_largest() const;
  /// Rows of the matrix with positions, as embedding(). Throws like multiply().
  Var look_up(const Tensor& ids, const Var& positions = {},
              const EmbeddingOptions& options = {}) const;

  /// The given rows as a matrix of its own, packed as this one is: its products have the bits of
  /// this one's. For inference.
  WeightMatrix rows(std::span<const int32_t> rows) const;

  bool packed() const;
  bool frozen() const;
  /// The square of each row's length (N), float32 of bfloat16. Throws Error(kRuntime) after pack().
  Tensor row_squares() const;
  /// Bytes of its memory.
  int64_t bytes() const;

  /// Marks the matrix as one that a layer multiplies by: float32 packing is for these.
  void will_multiply() const;
  bool multiplies() const;
  /// Gives it its parameter.
  void set(const Var& var) const;
  /// Packs a float32 matrix in host memory and drops the parameter here. No other thread may use
  /// the matrix meanwhile; the same holds for the functions below.
  void pack(WeightFormat format) const;
  /// Packs its values as they are now, in the format that it learns for or as float32, and keeps
  /// the parameter, until unpack().
  void pack_beside() const;
  void unpack() const;

 private:
  void pack_values(WeightFormat format) const;

  struct Packed;
  struct State;
  std::shared_ptr<State> state_;
};

/// A set of tokens as top_logits() reads it (core/kernels/top_logits.h), in host memory. A model
/// with more rows than its tokenizer has tokens bans many.
Tensor token_set(const std::vector<int32_t>& tokens, int64_t vocab);

}  // namespace tapestry
