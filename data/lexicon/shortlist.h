// The target tokens that a search considers for a source.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/lexicon/lexicon.h"

namespace tapestry {

struct ShortlistOptions {
  int64_t size = 100;  ///< N: see Shortlist
  int64_t target_tokens = 0;
  std::vector<int32_t> always = {};  ///< end, start, unknown and the like
  bool one_vocabulary = false;       ///< tokens of a source may be copied
};

/// The union of the N most frequent target tokens, of the N most probable translations of each
/// token of the source, of that token itself where both sides have one vocabulary, and of the
/// tokens that are always there. It depends on the source only.
class Shortlist {
 public:
  Shortlist(const Lexicon& lexicon, ShortlistOptions options);

  /// Ascending. `more` are taken, too.
  std::vector<int32_t> of(std::span<const int32_t> source,
                          std::span<const int32_t> more = {}) const;

  /// What every source has, ascending: the most frequent ones and those that are always there.
  const std::vector<int32_t>& common() const { return common_; }
  /// The translations of a source token, the most probable first.
  std::span<const int32_t> translations(int32_t source) const;
  int64_t source_tokens() const { return std::ssize(translations_); }

 private:
  int64_t target_tokens_;
  bool one_vocabulary_;
  std::vector<int32_t> common_;
  std::vector<std::vector<int32_t>> translations_;
};

}  // namespace tapestry
