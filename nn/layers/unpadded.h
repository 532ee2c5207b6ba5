// Padded rows as sequences end to end: no layer of a stack computes padding.
#pragma once

#include <optional>

#include "autograd/ops.h"

namespace tapestry {

class Unpadded {
 public:
  /// While one lives, this thread computes padding as a GPU does. Dropout draws by place, so only
  /// then both draw the same.
  class Off {
   public:
    Off() { ++count; }
    ~Off() { --count; }
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;

   private:
    friend class Unpadded;
    static thread_local int count;
  };

  /// ids (B, T), lengths (B) or undefined. Nothing if rows have little padding, and on a GPU, where
  /// the lengths are not at hand.
  static std::optional<Unpadded> of(const Tensor& ids, const Tensor& lengths);

  const Sequences& sequences() const { return sequences_; }
  /// (B, T) int32 -> (1, N), or undefined.
  Tensor tokens_of(const Tensor& x) const;
  /// x (1, N, D) -> (B, T, D). Behind the end of a row its last token is repeated.
  Var with_padding(const Var& x) const;

 private:
  Unpadded(std::span<const int32_t> lengths, int64_t width);

  Sequences sequences_;
  Tensor places_;  // (1, N) int32: of each token in the padded batch, B * T in all
  Tensor rows_;    // (B, T) int32: of each place in x
};

}  // namespace tapestry
