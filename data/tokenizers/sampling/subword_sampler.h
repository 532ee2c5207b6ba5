// Other ways to cut a text into the pieces of its vocabulary, drawn anew in every epoch: BPE
// dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018). A sampler starts from the
// tokens of encode(), so that texts need not be kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/draws.h"

namespace tapestry {

struct SubwordSampling {
  double dropout = 0;  ///< BPE: the chance of a merge to be left out, at each step; 0: none
  double alpha = 0;    ///< unigram: exponent of a segmentation's probability; 0: no sampling
  int64_t nbest = 0;   ///< unigram: draws among this number of best segmentations; 0: all

  bool is_on() const { return dropout > 0 || alpha > 0; }
};

/// Safe to use from several threads at once, with draws of their own.
class SubwordSampler {
 public:
  virtual ~SubwordSampler() = default;

  /// Sets `sampled` to another segmentation of the text that encode() cut into `ids`. Tokens that
  /// are no text (unknown ones, bytes, symbols, special ones) stay as they are.
  virtual void sample(std::span<const int32_t> ids, RowDraws& draws,
                      std::vector<int32_t>& sampled) const = 0;
};

}  // namespace tapestry
