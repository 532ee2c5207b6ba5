// Counts of examples that readers of corpora leave out, by reason: data/corpora/corpus.h has the
// table of the reasons.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tapestry {

enum class Drop : int {
  kInvalidUtf8,
  kNulByte,
  kMissingColumn,
  kEmpty,
  kOverlong,
  kMalformed,
  kUnaligned,
  kTooShort,
  kDuplicate,
  kNoWeight,
  kRatio,
  kCopy,
  kScript,
};
constexpr int kDropReasons = 13;
/// "invalid_utf8", as in the table of data/corpora/corpus.h.
const char* name_of(Drop reason);

/// A share of unknown tokens from which on one must be warned of them.
inline constexpr double kManyUnknown = 0.005;

/// Counts the tokens of texts, and those that stand for text that the vocabulary does not know.
struct UnknownTokens {
  int64_t tokens = 0;
  int64_t unknown = 0;
  std::string first = {};  ///< place of the first text that has some

  /// Counts a text. `unk` is the vocabulary's, if it has one.
  void count(std::span<const int32_t> ids, std::optional<int32_t> unk, const std::string& place);
  void add(const UnknownTokens& other);
  double share() const;
  /// "1.25 % of the tokens (first train.de:12)", with `whose`: "the source's tokens"; "" if all are
  /// known.
  std::string summary(const std::string& whose = "the tokens") const;
};

struct FilterCounts {
  int64_t read = 0;  ///< all pairs found
  int64_t kept = 0;
  int64_t truncated = 0;    ///< kept, cut to max_length
  int64_t other_split = 0;  ///< left out because they belong to another split
  std::array<int64_t, kDropReasons> dropped{};
  /// "file:line" of the first pair dropped for each reason, and what is wrong if that adds
  /// something.
  std::array<std::string, kDropReasons> first{};
  /// Counts of the kept texts: the source, or the only text, and the target.
  std::array<UnknownTokens, 2> unknown{};
  /// Counts of each corpus, if these are the sums of several; `corpus` then names its files.
  std::vector<FilterCounts> of_corpora = {};
  std::string corpus = {};

  int64_t of(Drop reason) const { return dropped[static_cast<size_t>(reason)]; }
  int64_t total_dropped() const;
  /// "12 of 300 examples are left out, 4.0 %: ..." if more than one in a hundred is damaged or too
  /// long; else "". Empty examples, and those that their format excludes, are not a loss.
  std::string loss() const;
  void drop(Drop reason, const std::string& place);
  void add(const FilterCounts& other);
  /// The counts of several corpora together, each of which has its `corpus`; of one its own.
  static FilterCounts of_all(std::vector<FilterCounts> corpora);
  /// "29000 read, 28990 kept; dropped: 7 empty (first train.de:12), 3 overlong (first ...)"
  std::string summary() const;
  /// "0.21 % of the source's tokens (first train.de:3)", of each side with at least `share` of
  /// unknown tokens.
  std::string unknown_summary(double share = 0) const;

 private:
  std::string list_of_drops(const char* separator) const;
};

}  // namespace tapestry
