#include "data/filter_counts.h"

#include "core/error.h"

namespace tapestry {

const char* name_of(Drop reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "invalid_utf8", "nul_byte",  "missing_column", "empty",    "overlong",
      "malformed",    "unaligned", "too_short",      "duplicate"};
  return kNames[static_cast<int>(reason)];
}

int64_t FilterCounts::total_dropped() const {
  int64_t total = 0;
  for (const int64_t count : dropped) total += count;
  return total;
}

void FilterCounts::drop(Drop reason, const std::string& place) {
  const auto i = static_cast<size_t>(reason);
  if (dropped[i]++ == 0) first[i] = place;
}

void FilterCounts::add(const FilterCounts& other) {
  read += other.read;
  kept += other.kept;
  truncated += other.truncated;
  other_split += other.other_split;
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) first[i] = other.first[i];
    dropped[i] += other.dropped[i];
  }
}

std::string FilterCounts::summary() const {
  std::string text = concat(read, " read, ", kept, " kept");
  if (truncated > 0) text += concat(" (", truncated, " truncated)");
  if (other_split > 0) text += concat(", ", other_split, " in other splits");
  const char* separator = "; dropped: ";
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) continue;
    text += concat(separator, dropped[i], ' ', name_of(static_cast<Drop>(i)), " (first ", first[i],
                   ')');
    separator = ", ";
  }
  return text;
}

}  // namespace tapestry
