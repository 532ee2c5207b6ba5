// What is left out of the pairs that a translation model learns from, beside what cannot be read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/option_report.h"
#include "data/corpora/filter_counts.h"

namespace tapestry {

struct CleaningOptions {
  static constexpr const char* kDuplicates[] = {"none", "pairs", "source", "target"};

  double max_ratio = 0;              ///< characters of a side for each of the other; 0: any
  std::string deduplicate = "none";  ///< what must not come a second time: one of kDuplicates
  bool drop_copies = false;          ///< pairs whose sides are the same text
  /// Scripts by their names in Unicode ("Latin", "Han"); none: any.
  std::vector<std::string> source_script, target_script;
  double script_share = 0.5;  ///< the least share of a side's letters that are of its scripts

  bool is_on() const;
  bool operator==(const CleaningOptions&) const = default;
  void validate(const OptionReport& report) const;
};

/// Hashes of the texts that came before.
using SeenTexts = std::unordered_set<uint64_t>;

class Cleaning {
 public:
  /// `seen` is shared by corpora in which nothing may come twice. Throws Error(kConfig) for scripts
  /// that Unicode does not have.
  Cleaning(const CleaningOptions& options, std::shared_ptr<SeenTexts> seen);

  struct Finding {
    Drop reason;
    std::string what = {};  ///< for a message; may be empty
  };
  /// Why the pair is left out, if it is.
  std::optional<Finding> operator()(const std::string& source, const std::string& target);

 private:
  bool is_new(const std::string& source, const std::string& target);

  CleaningOptions options_;
  std::vector<int> source_scripts_, target_scripts_;
  std::shared_ptr<SeenTexts> seen_;
};

}  // namespace tapestry
