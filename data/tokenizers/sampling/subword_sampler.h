// Other ways to cut a text into the pieces of its vocabulary, drawn anew in every epoch: BPE
// dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018). A sampler starts from the
// tokens of encode(), so that texts need not be kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/option_report.h"
#include "core/base/philox.h"

namespace tapestry {

struct SubwordSampling {
  double dropout = 0;  ///< BPE: the chance of a merge to be left out, at each step; 0: none
  double alpha = 0;    ///< unigram: exponent of a segmentation's probability; 0: no sampling
  int64_t nbest = 0;   ///< unigram: draws among this number of best segmentations; 0: all

  bool is_on() const { return dropout > 0 || alpha > 0; }
};

/// The draws of one text, in order.
class SubwordDraws {
 public:
  SubwordDraws(const PhiloxKey& key, int64_t row)
      : key_(key), next_(static_cast<uint64_t>(row) << 32) {}

  /// Uniform in [0, 1) with 24 bits.
  float uniform() {
    if (used_ == 4) {
      bits_ = philox(key_, next_++);
      used_ = 0;
    }
    return to_uniform(bits_.v[used_++]);
  }
  /// Uniform in [0, 1) with 53 bits; skips what is left of a block.
  double fine_uniform() {
    bits_ = philox(key_, next_++);
    used_ = 4;
    return to_uniform(bits_.v[0], bits_.v[1]);
  }

 private:
  PhiloxKey key_;
  uint64_t next_;
  Philox4 bits_{};
  int used_ = 4;
};

/// Safe to use from several threads at once, with draws of their own.
class SubwordSampler {
 public:
  virtual ~SubwordSampler() = default;

  /// Sets `sampled` to another segmentation of the text that encode() cut into `ids`. Tokens that
  /// are no text (unknown ones, bytes, symbols, special ones) stay as they are.
  virtual void sample(std::span<const int32_t> ids, SubwordDraws& draws,
                      std::vector<int32_t>& sampled) const = 0;
};

}  // namespace tapestry
