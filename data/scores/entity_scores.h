// Precision, recall and F1 of named entities, as seqeval counts them in its default mode, which is
// that of conlleval.pl (Tjong Kim Sang and Buchholz 2000): an entity counts if its type and both of
// its ends are right. Tags are IOB1, IOB2, IOE1, IOE2 or IOBES: B-PER, I-PER, E-PER, S-PER and O.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/scores/class_scores.h"

namespace tapestry {

/// Words [first, last] of a sentence.
struct Entity {
  std::string type;
  int64_t first = 0, last = 0;

  auto operator<=>(const Entity&) const = default;
};

/// The entities of a sentence's tags, in their order. The first byte of a tag is its kind, the part
/// behind its first hyphen its type, or else all that follows the first byte; "_" for nothing. A
/// tag that goes on with another type, or where nothing began, begins an entity.
std::vector<Entity> entities_of(const std::vector<std::string_view>& tags);

class EntityCounts {
 public:
  /// Counts a sentence: the tags of its words, and those that a model gave them. Throws
  /// Error(kRuntime) if their numbers differ.
  void add(const std::vector<std::string_view>& truth, const std::vector<std::string_view>& given);

  /// In percent: precision, recall and f1 of all entities together, each 0 where it would be 0 / 0,
  /// and accuracy, the share of words with their own tag.
  std::map<std::string, double> metrics() const;
  /// The same for each type, in byte order; without a confusion.
  ClassScores scores() const;
  int64_t words() const { return words_; }
  int64_t entities() const;

 private:
  struct Counts {
    int64_t right = 0, given = 0, truth = 0;
  };
  std::map<std::string, Counts> types_;
  int64_t words_ = 0, right_words_ = 0;
};

}  // namespace tapestry
