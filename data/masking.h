// Masked language modelling (Devlin et al. 2018, Liu et al. 2019): which tokens a model has to
// predict, and what it sees in their place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/philox.h"
#include "data/tokenizer.h"

namespace tapestry {

struct MaskingOptions {
  double probability = 0.15;  ///< chance of a token (of a word) to be predicted
  double mask_share = 0.8;    ///< of these: replaced by <mask>
  double random_share = 0.1;  ///< of these: replaced by a random piece; the rest is left as it is
  bool whole_word = false;    ///< choose words, not tokens

  /// Throws Error(kConfig) naming the first bad member.
  void validate() const;
};

/// What masking needs to know of a vocabulary.
class MaskingVocabulary {
 public:
  /// Throws Error(kConfig) when the tokenizer has no <mask>.
  explicit MaskingVocabulary(const Tokenizer& tokenizer);

  int32_t mask_id() const { return mask_id_; }
  /// Throws on an id outside the vocabulary.
  bool starts_word(int32_t id) const;
  /// Ids of pieces of text: no pad, unk, bos, eos, mask or sentinel.
  const std::vector<int32_t>& ordinary_ids() const { return ordinary_ids_; }

 private:
  int32_t mask_id_;
  std::vector<bool> starts_word_;
  std::vector<int32_t> ordinary_ids_;
};

struct MaskedTokens {
  std::vector<int32_t> ids;      ///< what the model sees
  std::vector<int32_t> targets;  ///< the token at chosen positions, kPadId elsewhere
};

/// Chooses tokens of one row and replaces them. A pure function: the draws are those of `key`, told
/// apart by `row` (below 2^32) and the position. pad, bos and eos are never chosen. Where chance
/// chooses nothing, one token (or word) is chosen, so that no row is without a target; a row of
/// pad, bos and eos alone is left as it is.
MaskedTokens mask_tokens(std::span<const int32_t> tokens, const MaskingVocabulary& vocabulary,
                         const MaskingOptions& options, const PhiloxKey& key, int64_t row);

}  // namespace tapestry
