// BPE dropout over the tokens of a text; private to data/tokenizers/.
#pragma once

#include <vector>

#include "data/tokenizers/bpe.h"
#include "data/tokenizers/sampling/subword_sampler.h"

namespace tapestry::tokenizers {

/// What the sampler knows of each id.
struct MergePieces {
  /// The characters of a piece, which merges put together; empty: it is no text.
  std::vector<std::vector<int32_t>> characters;
  std::vector<char> begins_word;  ///< 1: it begins with U+2581
};

/// Takes a text apart into its characters, and merges those of each word again, with dropout.
class MergeSampler final : public SubwordSampler {
 public:
  MergeSampler(bpe::Merger merger, MergePieces pieces, double dropout)
      : merger_(std::move(merger)), pieces_(std::move(pieces)), p_(static_cast<float>(dropout)) {}

  void sample(std::span<const int32_t> ids, RowDraws& draws,
              std::vector<int32_t>& sampled) const override;

 private:
  const bpe::Merger merger_;
  const MergePieces pieces_;
  const float p_;
};

}  // namespace tapestry::tokenizers
