// Masked language modelling (Devlin et al. 2019, Liu et al. 2019): the tokens that a model must
// predict, and their replacements in its input.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/philox.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

struct MaskingOptions {
  double probability = 0.15;  ///< probability that a token (or word) is chosen for prediction
  double mask_share = 0.8;    ///< of these: replaced by <mask>
  double random_share = 0.1;  ///< of these: replaced by a random piece; the rest stays
  /// Chooses words, not tokens. In scripts without spaces (Han, Kana, Thai, ...) each token is a
  /// word, and so it is in a run of more than kLongestWord tokens.
  bool whole_word = false;
  static constexpr int64_t kLongestWord = 16;

  /// Throws Error(kConfig) naming the first bad member.
  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// The facts about a vocabulary that masking needs.
class MaskingVocabulary {
 public:
  /// Throws Error(kConfig) if the tokenizer has no <mask>.
  explicit MaskingVocabulary(const Tokenizer& tokenizer);

  int32_t mask_id() const { return mask_id_; }
  /// False for pad, bos and eos.
  bool may_be_masked(int32_t id) const {
    return id != special_.pad && id != special_.bos && id != special_.eos;
  }
  /// Also true for a piece that begins in a script without spaces. Throws on an id outside the
  /// vocabulary.
  bool starts_word(int32_t id) const;
  /// The share of the ordinary ids that start a word. If it is small, masking whole words makes no
  /// sense.
  double word_share() const;
  /// Ids of pieces of text: no pad, unk, bos, eos, mask or sentinel.
  const std::vector<int32_t>& ordinary_ids() const { return ordinary_ids_; }

 private:
  SpecialIds special_;
  int32_t mask_id_;
  std::vector<bool> starts_word_;
  std::vector<int32_t> ordinary_ids_;
};

struct MaskedTokens {
  std::vector<int32_t> ids;      ///< the model's input
  std::vector<int32_t> targets;  ///< the token at chosen positions, kNoTarget elsewhere
};

/// Chooses tokens of one row and replaces them. A pure function: `key`, `row` (below 2^32) and the
/// position decide the draws. pad, bos and eos are never chosen. If no token is drawn, one token
/// (or word, up to the share `probability` of the row) is chosen, so that every row has a target; a
/// row of only pad, bos and eos stays unchanged.
MaskedTokens mask_tokens(std::span<const int32_t> tokens, const MaskingVocabulary& vocabulary,
                         const MaskingOptions& options, const PhiloxKey& key, int64_t row);

}  // namespace tapestry
