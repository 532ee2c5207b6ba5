// The main function of all test programs: Google Test's, which can also run one of several parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

// Tests that may share a set-up: those of a suite, or of one parameter of a suite. Google Test's
// shards would tear them apart, and each shard would train their models again.
std::string group_of(const testing::TestInfo& test) {
  const std::string name = test.name();
  const bool has_parameter = test.value_param() != nullptr;
  return test.test_suite_name() + (has_parameter ? name.substr(name.rfind('/')) : "");
}

// The tests of part `number` of `parts`, counted from 1, as a filter. Each group goes where the
// fewest tests are up to now.
std::string tests_of_part(size_t number, size_t parts) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::map<std::string, std::vector<std::string>> groups;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      groups[group_of(test)].push_back(std::string(suite.name()) + '.' + test.name());
    }
  }
  std::vector<size_t> counts(parts, 0);
  std::string filter;
  for (const auto& [group, tests] : groups) {
    const auto least = std::min_element(counts.begin(), counts.end());
    *least += tests.size();
    if (least - counts.begin() + 1 != static_cast<std::ptrdiff_t>(number)) continue;
    for (const std::string& test : tests) filter += (filter.empty() ? "" : ":") + test;
  }
  return filter.empty() ? "none" : filter;
}

}  // namespace

/// TAPESTRY_TEST_PART=3/8 runs the third of eight parts, without what a filter takes out. A filter
/// that names tests comes first: the process of a death test runs that test and no other.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string given = GTEST_FLAG_GET(filter);
  const size_t without = given.find('-');
  const bool names_tests = without != 0 && given != "*";
  const char* const part = std::getenv("TAPESTRY_TEST_PART");
  if (part != nullptr && !names_tests) {
    size_t number = 0, parts = 0;
    if (std::sscanf(part, "%zu/%zu", &number, &parts) != 2 || number < 1 || number > parts) {
      std::fprintf(stderr, "TAPESTRY_TEST_PART is %s, expected a part such as 3/8.\n", part);
      return 2;
    }
    GTEST_FLAG_SET(filter, tests_of_part(number, parts) +
                               (without == std::string::npos ? "" : given.substr(without)));
  }
  return RUN_ALL_TESTS();
}
