// Rules about a struct of options. A rule stands in the validate() of its struct and nowhere else:
// a library call throws at the first problem, a config reads all of them and reports each at the
// key of the member.
//
//   void BlockOptions::validate(const OptionReport& report) const {
//     report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
//   }
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {

class OptionReport {
 public:
  /// Receives the member at fault and the rest of the sentence: ("limit", "must be at least 0,
  /// ..."). The member is empty if the sentence is complete.
  using Hear = std::function<void(const std::string& member, const std::string& problem)>;

  explicit OptionReport(Hear hear) : hear_(std::move(hear)) {}
  /// Throws Error(kConfig, "[who] member problem") at the first problem.
  static OptionReport throwing(const char* who) {
    return OptionReport([who](const std::string& member, const std::string& problem) {
      fail(ErrorKind::kConfig, '[', who, "] ", member, member.empty() ? "" : " ", problem);
    });
  }

  /// Reports concat(parts...) unless `ok`, and returns `ok`.
  template <class... Parts>
  bool expect(bool ok, const char* member, const Parts&... parts) const {
    if (!ok) hear_(member, concat(parts...));
    return ok;
  }

  /// Reports unless `value` is one of `names`.
  template <class Names>
  bool expect_one_of(const char* member, const std::string& value, const Names& names) const {
    for (const char* name : names) {
      if (value == name) return true;
    }
    return expect(false, member, "must be one of ", join(names, ", "), ", got '", value, "'.");
  }

 private:
  Hear hear_;
};

}  // namespace tapestry
