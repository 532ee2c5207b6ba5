// What readers of corpora leave out, and why: data/corpus.h has the table of the reasons.
#pragma once

#include <array>
#include <cstdint>
#include <string>

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
};
constexpr int kDropReasons = 9;
/// "invalid_utf8", as in the table of data/corpus.h.
const char* name_of(Drop reason);

struct FilterCounts {
  int64_t read = 0;  ///< all pairs found
  int64_t kept = 0;
  int64_t truncated = 0;    ///< kept, cut to max_length
  int64_t other_split = 0;  ///< left out because they belong to another split
  std::array<int64_t, kDropReasons> dropped{};
  /// "file:line" of the first pair dropped for each reason.
  std::array<std::string, kDropReasons> first{};

  int64_t of(Drop reason) const { return dropped[static_cast<size_t>(reason)]; }
  int64_t total_dropped() const;
  void drop(Drop reason, const std::string& place);
  void add(const FilterCounts& other);
  /// "29000 read, 28990 kept; dropped: 7 empty (first train.de:12), 3 overlong (first ...)"
  std::string summary() const;
};

}  // namespace tapestry
