// Texts that vary from epoch to epoch: changed words and sampled pieces on either side, and source
// tokens that become unknown (word dropout). Special tokens and the users' symbols stay as they
// are, and so do the words of a text that has some.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "data/corpora/text_changes.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

struct VariationOptions {
  SubwordSampling source, target;
  double word_dropout = 0;  ///< the chance of a source token to become unk
  TextChanges changes = {};

  bool is_on() const {
    return source.is_on() || target.is_on() || word_dropout > 0 || changes.is_on();
  }
};

/// Most tokens of a side, without the frame.
struct SideLimits {
  int64_t source = 0;
  int64_t target = 0;
};

/// Everything is a function of (seed, epoch, row, side). Safe to use from several threads at once.
class TextVariation {
 public:
  /// Throws Error(kConfig) if a tokenizer cannot do what the options say.
  TextVariation(const VariationOptions& options, const TokenizerPair& tokenizers,
                const SideLimits& limits, uint64_t seed);

  /// True if lengths differ from those of the encoded texts.
  bool changes_lengths() const {
    return source_.sampler != nullptr || target_.sampler != nullptr || changes_.is_on();
  }

  /// Sets `varied` to the row's tokens in an epoch. A changed or sampled text that is longer than
  /// the limit gives way to the encoded one.
  void source(int64_t epoch, int64_t row, std::span<const int32_t> ids,
              std::vector<int32_t>& varied) const;
  void target(int64_t epoch, int64_t row, std::span<const int32_t> ids,
              std::vector<int32_t>& varied) const;

 private:
  struct Side {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::shared_ptr<const SubwordSampler> sampler;  // null: none
    uint32_t stream;
    int64_t most;
    bool is_source;
    std::vector<char> marks = {};  // by id, 1: it stays as it is; empty if nothing asks
  };
  // The tokens of the changed text; none if it stays, or is too long.
  std::vector<int32_t> changed(const Side& side, int64_t epoch, int64_t row,
                               std::span<const int32_t> ids) const;
  void sample(const Side& side, int64_t epoch, int64_t row, std::span<const int32_t> ids,
              std::vector<int32_t>& varied) const;

  Side source_, target_;
  const float word_dropout_;
  const int32_t unk_;
  const TextChanges changes_;
  const uint64_t seed_;
};

}  // namespace tapestry
