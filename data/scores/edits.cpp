#include "data/scores/edits.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tapestry::scores {
namespace {

constexpr int32_t kNever = 1 << 29;  // cost of a cell that is not computed

// Tercom's limits, and the last one sacreBLEU's.
constexpr int64_t kLongestShift = 10;
constexpr int64_t kFarthestShift = 50;
constexpr int64_t kBeam = 25;
constexpr int kMostShiftsTried = 1000;

// The table's result for the words: which are edited, and the place in the hypothesis of each word
// of the reference (or of the word behind which it would be inserted).
struct Alignment {
  std::vector<int64_t> place;  // of each word of the reference
  std::vector<bool> hypothesis_edited, reference_edited;
};

Alignment align(const EditTable& table, size_t hypothesis_size, size_t reference_size) {
  using Edit = EditTable::Edit;
  Alignment alignment;
  alignment.place.resize(reference_size);
  alignment.hypothesis_edited.resize(hypothesis_size);
  alignment.reference_edited.resize(reference_size);
  for (size_t h = hypothesis_size, r = reference_size; h > 0 || r > 0;) {
    const Edit edit = table.edit(static_cast<int64_t>(h), static_cast<int64_t>(r));
    if (edit != Edit::kDelete) {
      alignment.place[r - 1] = static_cast<int64_t>(h) - 1;
      alignment.reference_edited[r - 1] = edit != Edit::kNone;
      --r;
    }
    if (edit != Edit::kInsert) {
      alignment.hypothesis_edited[h - 1] = edit != Edit::kNone;
      --h;
    }
  }
  return alignment;
}

struct Shift {
  int64_t saves = 0;
  int64_t length = 0;
  int64_t start = 0;
  int64_t target = 0;

  // Saves more, or is longer, or starts earlier, or ends earlier.
  bool beats(const Shift& other) const {
    return std::tuple(saves, length, other.start, other.target) >
           std::tuple(other.saves, other.length, start, target);
  }
};

// The words [start, start + length) move before the word `target`, or, where that is one of them,
// as many words to the right. Returns the words [begin, end) that change.
std::pair<int64_t, int64_t> move_run(const Shift& shift, Symbols& words) {
  const int64_t behind = shift.start + shift.length;
  int64_t begin = shift.start, middle = behind, end = shift.target;
  if (shift.target < shift.start) {
    begin = shift.target, middle = shift.start, end = behind;
  } else if (shift.target <= behind) {
    end = std::min(shift.length + shift.target, static_cast<int64_t>(words.size()));
  }
  std::rotate(words.begin() + begin, words.begin() + middle, words.begin() + end);
  return {begin, end};
}

// Searches the shift that saves most. `tried` counts the shifts of a whole sentence.
class ShiftSearch {
 public:
  ShiftSearch(EditTable& table, const Symbols& words, const Symbols& reference)
      : table_(table),
        words_(words),
        reference_(reference),
        distance_(table.distance()),
        alignment_(align(table, words.size(), reference.size())) {}

  Shift best(int& tried) {
    const auto starts = static_cast<int64_t>(words_.size());
    const auto targets = static_cast<int64_t>(reference_.size());
    for (int64_t start = 0; start < starts; ++start) {
      const int64_t last = std::min(targets - 1, start + kFarthestShift);
      for (int64_t r = std::max<int64_t>(0, start - kFarthestShift); r <= last; ++r) {
        bool hypothesis_edited = false, reference_edited = false;
        const int64_t longest = std::min({kLongestShift, starts - start, targets - r});
        for (int64_t length = 1; length <= longest; ++length) {
          const auto h_word = static_cast<size_t>(start + length - 1);
          const auto r_word = static_cast<size_t>(r + length - 1);
          if (words_[h_word] != reference_[r_word]) break;
          hypothesis_edited = hypothesis_edited || alignment_.hypothesis_edited[h_word];
          reference_edited = reference_edited || alignment_.reference_edited[r_word];
          // Words that are right stay, and so does a run that is in its place.
          if (!hypothesis_edited || !reference_edited) continue;
          const int64_t place = alignment_.place[static_cast<size_t>(r)];
          if (start <= place && place < start + length) continue;
          try_targets(start, r, length, tried);
          if (tried >= kMostShiftsTried) return best_;
        }
      }
    }
    return best_;
  }

 private:
  // Before the run's first word in the reference, and behind each of its words.
  void try_targets(int64_t start, int64_t r, int64_t length, int& tried) {
    int64_t before = -1;
    for (int64_t offset = -1; offset < length; ++offset) {
      const int64_t target =
          r + offset == -1 ? 0 : alignment_.place[static_cast<size_t>(r + offset)] + 1;
      if (target == before) continue;
      before = target;
      ++tried;
      Shift shift{0, length, start, target};
      shifted_ = words_;
      const auto [begin, end] = move_run(shift, shifted_);
      // Shifts that save nothing, or less than the best one, are skipped.
      const int64_t limit = distance_ - std::max<int64_t>(1, best_.saves);
      const int64_t distance = table_.distance_of(shifted_, begin, end, limit);
      if (distance > limit) continue;
      shift.saves = distance_ - distance;
      if (shift.beats(best_)) best_ = shift;
    }
  }

  EditTable& table_;
  const Symbols& words_;
  const Symbols& reference_;
  const int64_t distance_;
  const Alignment alignment_;
  Shift best_;
  Symbols shifted_;
};

}  // namespace

EditTable::EditTable(const Symbols& reference, size_t hypothesis_size)
    : reference_(reference),
      rows_(hypothesis_size),
      above_(reference.size() + 2, kNever),
      here_(reference.size() + 2, kNever) {
  const auto size = static_cast<int64_t>(reference.size());
  const double ratio = hypothesis_size == 0 ? 1
                                            : static_cast<double>(reference.size()) /
                                                  static_cast<double>(hypothesis_size);
  // Else rows of a much longer reference would have no column in common.
  const int64_t beam =
      kBeam < ratio / 2 ? static_cast<int64_t>(std::ceil(ratio / 2 + kBeam)) : kBeam;
  size_t at = 0;
  for (size_t i = 0; i < hypothesis_size; ++i) {
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i + 1) * ratio));
    Row& row = rows_[i];
    row.begin = std::max<int64_t>(0, diagonal - beam);
    row.end = i + 1 == hypothesis_size ? size + 1 : std::min(size + 1, diagonal + beam);
    row.at = at;
    at += static_cast<size_t>(row.end - row.begin);
  }
  costs_.resize(at);
  edits_.resize(at);
}

// Computes the columns of a row from the row above and returns the least cost. Costs stand at
// [column + 1], so that the column before the first one can be read. Of edits that cost the same
// the first one of replace, delete, insert is taken.
template <bool kKeepsEdits>
int32_t EditTable::next_row(char32_t word, const Row& row, const int32_t* above, int32_t* here,
                            Edit* edits) {
  int32_t left = kNever;
  here[row.begin] = kNever;
  int32_t least = kNever;
  for (int64_t column = row.begin; column < row.end; ++column) {
    const bool same = column > 0 && reference_[static_cast<size_t>(column - 1)] == word;
    int32_t cost = above[column] + (same ? 0 : 1);
    Edit edit = same ? Edit::kNone : Edit::kReplace;
    if (above[column + 1] + 1 < cost) {
      cost = above[column + 1] + 1;
      edit = Edit::kDelete;
    }
    if (left + 1 < cost) {
      cost = left + 1;
      edit = Edit::kInsert;
    }
    left = std::min(cost, kNever);
    here[column + 1] = left;
    least = std::min(least, left);
    if constexpr (kKeepsEdits) *edits++ = edit;
  }
  return least;
}

void EditTable::fill(const Symbols& hypothesis) {
  std::fill(here_.begin(), here_.end(), kNever);
  above_[0] = kNever;
  for (size_t j = 0; j + 1 < above_.size(); ++j) above_[j + 1] = static_cast<int32_t>(j);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    next_row<true>(hypothesis[i], row, above_.data(), here_.data(), edits_.data() + row.at);
    std::copy(here_.begin() + row.begin + 1, here_.begin() + row.end + 1,
              costs_.begin() + static_cast<std::ptrdiff_t>(row.at));
    if (i == 0) std::fill(above_.begin(), above_.end(), kNever);
    std::swap(above_, here_);
  }
}

int64_t EditTable::distance() const {
  return rows_.empty() ? static_cast<int64_t>(reference_.size()) : costs_.back();
}

EditTable::Edit EditTable::edit(int64_t hypothesis_words, int64_t reference_words) const {
  if (hypothesis_words == 0) return Edit::kInsert;
  const Row& row = rows_[static_cast<size_t>(hypothesis_words - 1)];
  return edits_[row.at + static_cast<size_t>(reference_words - row.begin)];
}

int64_t EditTable::distance_of(const Symbols& hypothesis, int64_t begin, int64_t end,
                               int64_t limit) {
  std::fill(here_.begin(), here_.end(), kNever);
  std::fill(above_.begin(), above_.end(), kNever);
  if (begin == 0) {
    for (size_t j = 0; j + 1 < above_.size(); ++j) above_[j + 1] = static_cast<int32_t>(j);
  } else {
    const Row& row = rows_[static_cast<size_t>(begin - 1)];
    std::copy_n(costs_.begin() + static_cast<std::ptrdiff_t>(row.at), row.end - row.begin,
                above_.begin() + row.begin + 1);
  }
  for (auto i = static_cast<size_t>(begin); i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const int32_t least = next_row<false>(hypothesis[i], row, above_.data(), here_.data(), nullptr);
    if (least > limit) return least;
    // From here on the table keeps the rows.
    if (i + 1 >= static_cast<size_t>(end) &&
        std::equal(here_.begin() + row.begin + 1, here_.begin() + row.end + 1,
                   costs_.begin() + static_cast<std::ptrdiff_t>(row.at))) {
      return distance();
    }
    if (i == 0) std::fill(above_.begin(), above_.end(), kNever);
    std::swap(above_, here_);
  }
  return above_[reference_.size() + 1];
}

int64_t shift_edits(const Symbols& hypothesis, const Symbols& reference) {
  if (reference.empty()) return static_cast<int64_t>(hypothesis.size());
  EditTable table(reference, hypothesis.size());
  Symbols words = hypothesis;
  int64_t shifts = 0;
  for (int tried = 0;;) {
    table.fill(words);
    const Shift shift = ShiftSearch(table, words, reference).best(tried);
    if (tried >= kMostShiftsTried || shift.saves <= 0) return shifts + table.distance();
    move_run(shift, words);
    ++shifts;
  }
}

}  // namespace tapestry::scores
