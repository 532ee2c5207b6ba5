// The cache of decoding: keys and values of earlier tokens, a row of numbers for each. A token is
// written once. Sequences with a common beginning, such as beams, point to the same rows, so
// nothing is copied when beams follow their parents or sentences come and go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "nn/attention/position_table.h"

namespace tapestry {

/// The layers' view of the fed tokens, n for each of R sequences.
struct DecodingStep {
  Positions positions;   ///< of the tokens
  Tensor written;        ///< (R * n) int32: the row of the caches for each token; -1: none
  int64_t capacity = 0;  ///< rows that the caches must have
  /// The rows that the tokens attend to. Undefined: these are first tokens, which attend to each
  /// other.
  Tensor key_rows;  ///< (R, S) int32: a row of the caches for each token of the sequence
  Tensor lengths;   ///< (R) int32: how many of them there are

  bool reads_prompts() const { return !key_rows.defined(); }
};

/// The rows of the caches that each sequence has. The caches of all layers share it.
class CacheRows {
 public:
  int64_t sequences() const { return std::ssize(rows_); }
  /// Tokens of a sequence.
  int64_t length(int64_t sequence) const { return std::ssize(rows_.at(sequence)); }

  /// Adds new sequences with lengths[b] tokens each, from a batch whose rows are `width` tokens
  /// long.
  DecodingStep add(std::span<const int32_t> lengths, int64_t width, Device device);
  /// One more token for each sequence.
  DecodingStep next(Device device);
  /// The cached rows of all sequences, without a new token.
  DecodingStep held(Device device) const;
  /// Takes back the last token of the sequences from `first` on.
  void drop_last(int64_t first);
  /// New sequence i is old sequence sequences[i].
  void select(std::span<const int32_t> sequences);

 private:
  int32_t take();
  void attend(DecodingStep& step, Device device) const;

  std::vector<std::vector<int32_t>> rows_;
  std::vector<int32_t> free_;
  int32_t capacity_ = 0;
};

/// The rows of one layer, W numbers each: 2G * K, or in latent attention
/// (nn/attention/latent_attention.h) the latent and the rotary key.
struct KeyValueCache {
  Tensor kv;  ///< (1, N, W)

  /// Writes columns [first, first + width) of the tokens (R, n, ...) that a step feeds.
  void write(const Tensor& tokens, int64_t first, int64_t width, const DecodingStep& step);
};

/// Rows `rows` (int32, any length) of a tensor's first axis.
Tensor gather_rows(const Tensor& x, const Tensor& rows);

}  // namespace tapestry
