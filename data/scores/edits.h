// The edits that TER counts. Private to data/scores.
#pragma once

#include <cstdint>
#include <vector>

#include "data/scores/ngrams.h"

namespace tapestry::scores {

/// The table of Levenshtein's distance between prefixes of a hypothesis and of a reference, of
/// which only a band about the diagonal is computed: 25 cells to both sides, or more where the
/// reference is more than 50 times as long. Its size is linear in the hypothesis.
class EditTable {
 public:
  enum class Edit : uint8_t { kNone, kReplace, kDelete, kInsert };
  struct Row {
    int64_t begin = 0;  // columns [begin, end) are computed
    int64_t end = 0;
    size_t at = 0;  // place of its cells
  };

  EditTable(const Symbols& reference, size_t hypothesis_size);

  /// Computes all rows. `hypothesis` has the size given at first.
  void fill(const Symbols& hypothesis);

  int64_t distance() const;
  /// The edit at the end of the best way to (words of the hypothesis, words of the reference).
  Edit edit(int64_t hypothesis_words, int64_t reference_words) const;

  /// The distance of a hypothesis that differs from that of fill() only in the words [begin, end);
  /// something above `limit` if it is above `limit`.
  int64_t distance_of(const Symbols& hypothesis, int64_t begin, int64_t end, int64_t limit);

 private:
  template <bool kKeepsEdits>
  int32_t next_row(char32_t word, const Row& row, const int32_t* above, int32_t* here, Edit* edits);

  const Symbols& reference_;
  std::vector<Row> rows_;  // of 1, 2, ... words of the hypothesis
  std::vector<int32_t> costs_;
  std::vector<Edit> edits_;
  std::vector<int32_t> above_, here_;  // whole rows; cells that are not computed cost kNever
};

/// The fewest edits that make `hypothesis` the reference, with the heuristics and limits of Tercom
/// as sacreBLEU has them: greedily the shift that saves most, while one saves any.
int64_t shift_edits(const Symbols& hypothesis, const Symbols& reference);

}  // namespace tapestry::scores
