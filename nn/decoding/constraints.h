// Texts that an output must contain (lexical constraints): how many of them it has so far.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tapestry {

/// Texts as tokens, at least one each.
using Phrases = std::vector<std::vector<int32_t>>;

/// Which tokens of a vocabulary are parts of words at their edges, by id.
struct TokenEdges {
  std::vector<bool> continues_word;  ///< glued to the token before it, and begins within a word
  std::vector<bool> ends_in_word;    ///< ends with a letter or digit

  bool glues(int32_t before, int32_t token) const {
    return at(ends_in_word, before) && at(continues_word, token);
  }

 private:
  static bool at(const std::vector<bool>& set, int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < set.size() && set[static_cast<size_t>(id)];
  }
};

/// Follows an output token by token. A phrase is met once all its tokens stood there in a row, and
/// neither end of it is inside a longer word. Tokens count for one phrase only, the longest one
/// that they complete, so that a phrase that is asked for twice must come twice.
class ConstraintTracker {
 public:
  /// Both must outlive this.
  ConstraintTracker(const Phrases& phrases, const TokenEdges& edges)
      : phrases_(&phrases), edges_(&edges), met_(phrases.size(), false) {}
  ConstraintTracker(const Phrases&, TokenEdges&&) = delete;

  void add(int32_t token);
  void add(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) add(token);
  }

  /// True if the output may end here.
  bool all_met() const;
  const Phrases& phrases() const { return *phrases_; }
  /// Tokens of phrases that are met, or begun by the last tokens.
  int64_t tokens() const;
  /// Tokens that begin an unmet phrase here, or go on with the one that is begun; ascending.
  std::vector<int32_t> next() const;
  /// The phrases that the output would lack if it ended here, by their numbers.
  std::vector<size_t> unmet() const;

 private:
  bool begins_unmet(std::span<const int32_t> tokens) const;
  void drop_front();
  std::vector<bool> met_at_end() const;

  const Phrases* phrases_;
  const TokenEdges* edges_;
  std::vector<bool> met_;
  std::vector<int32_t> window_;  // the last tokens, which begin unmet phrases
  int64_t complete_ = -1;        // the phrase that window_ begins with, if it has one whole
  int32_t before_ = -1;          // the token before window_
};

/// Tokens of all phrases.
int64_t constraint_tokens(const Phrases& phrases);

}  // namespace tapestry
