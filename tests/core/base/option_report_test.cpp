#include "core/base/option_report.h"

#include <gtest/gtest.h>

#include <vector>

namespace tapestry {
namespace {

TEST(OptionReport, HearsEveryProblemWithItsMember) {
  std::vector<std::string> heard;
  const OptionReport report([&](const std::string& member, const std::string& problem) {
    heard.push_back(member + ": " + problem);
  });
  const char* const names[] = {"a", "b"};
  EXPECT_TRUE(report.expect(true, "size", "is never said"));
  EXPECT_FALSE(report.expect(false, "size", "must be ", 1, ", got ", 2, '.'));
  EXPECT_TRUE(report.expect_one_of("name", "b", names));
  EXPECT_FALSE(report.expect_one_of("name", "c", names));
  EXPECT_EQ(heard, (std::vector<std::string>{"size: must be 1, got 2.",
                                             "name: must be one of a, b, got 'c'."}));
}

TEST(OptionReport, ThrowsAtTheFirstProblemWhereNobodyCollectsThem) {
  const OptionReport report = OptionReport::throwing("data");
  report.expect(true, "size", "is never said");
  const auto message = [&](const char* member) {
    try {
      report.expect(false, member, "must be 1.");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("size"), "[data] size must be 1.");
  EXPECT_EQ(message(""), "[data] must be 1.");
}

}  // namespace
}  // namespace tapestry
