#include "data/corpora/filter_counts.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>

#include "core/base/error.h"

namespace tapestry {

const char* name_of(Drop reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "invalid_utf8", "nul_byte",  "missing_column", "empty",     "overlong",
      "malformed",    "unaligned", "too_short",      "duplicate", "weight_0",
      "ratio",        "copy",      "other_script"};
  return kNames[static_cast<int>(reason)];
}

void UnknownTokens::count(std::span<const int32_t> ids, std::optional<int32_t> unk,
                          const std::string& place) {
  tokens += std::ssize(ids);
  if (!unk) return;
  const int64_t found = std::count(ids.begin(), ids.end(), *unk);
  if (found > 0 && unknown == 0) first = place;
  unknown += found;
}

void UnknownTokens::add(const UnknownTokens& other) {
  if (unknown == 0) first = other.first;
  tokens += other.tokens;
  unknown += other.unknown;
}

double UnknownTokens::share() const {
  return tokens == 0 ? 0 : static_cast<double>(unknown) / static_cast<double>(tokens);
}

std::string UnknownTokens::summary(const std::string& whose) const {
  if (unknown == 0) return "";
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%.3g", 100 * share());
  return concat(percent, " % of ", whose, " (first ", first, ')');
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
  for (size_t side = 0; side < unknown.size(); ++side) unknown[side].add(other.unknown[side]);
}

FilterCounts FilterCounts::of_all(std::vector<FilterCounts> corpora) {
  FilterCounts sum;
  for (const FilterCounts& one : corpora) sum.add(one);
  if (corpora.size() > 1) sum.of_corpora = std::move(corpora);
  return sum;
}

std::string FilterCounts::loss() const {
  constexpr double kMuch = 0.01;
  constexpr Drop kLosses[] = {Drop::kInvalidUtf8, Drop::kNulByte, Drop::kMissingColumn,
                              Drop::kOverlong, Drop::kMalformed};
  FilterCounts lost;
  for (const Drop reason : kLosses) {
    const auto i = static_cast<size_t>(reason);
    lost.dropped[i] = dropped[i];
    lost.first[i] = first[i];
  }
  const auto count = lost.total_dropped();
  const double share = static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, read));
  if (share <= kMuch) return "";
  return concat(count, " of ", read, " examples are left out, ", std::setiosflags(std::ios::fixed),
                std::setprecision(1), 100 * share, " %", lost.list_of_drops(": "));
}

std::string FilterCounts::list_of_drops(const char* separator) const {
  std::string text;
  for (size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) continue;
    text += concat(separator, dropped[i], ' ', name_of(static_cast<Drop>(i)), " (first ", first[i],
                   ')');
    separator = ", ";
  }
  return text;
}

std::string FilterCounts::unknown_summary(double share) const {
  const bool two = unknown[1].tokens > 0;
  std::string text;
  for (size_t side = 0; side < unknown.size(); ++side) {
    if (unknown[side].unknown == 0 || unknown[side].share() < share) continue;
    text += text.empty() ? "" : ", ";
    text += unknown[side].summary(!two        ? "the tokens"
                                  : side == 0 ? "the source's tokens"
                                              : "the target's tokens");
  }
  return text;
}

std::string FilterCounts::summary() const {
  std::string text = concat(read, " read, ", kept, " kept");
  if (truncated > 0) text += concat(" (", truncated, " truncated)");
  if (other_split > 0) text += concat(", ", other_split, " in other splits");
  text += list_of_drops("; dropped: ");
  const std::string strange = unknown_summary();
  if (!strange.empty()) text += "; unknown: " + strange;
  return text;
}

}  // namespace tapestry
