// What the tests of configs share: a folder with data files, and the message of a broken config.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "core/base/error.h"

namespace tapestry {

/// A folder with data files, gone after the test.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '-');
    folder_ =
        std::filesystem::temp_directory_path() / concat("tapestry-config-", getpid(), "-", name);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "data");
    for (const char* file : {"a.en", "a.de", "b.tsv", "ding.txt", "c.txt", "d.jsonl"}) {
      std::ofstream(folder_ / "data" / file) << "text\n";
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) const {
    std::ofstream(folder_ / "c.yaml") << text;
    return (folder_ / "c.yaml").string();
  }

  /// The message for this text, with the folder's name cut out.
  std::string error_of(const std::string& text,
                       const std::vector<std::string>& overrides = {}) const {
    try {
      load_config(write(text), overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return without_folder(error.what());
    }
    return "no error";
  }

  std::string without_folder(std::string message) const {
    const std::string prefix = folder_.string() + "/";
    for (size_t at = 0; (at = message.find(prefix)) != std::string::npos;) {
      message.erase(at, prefix.size());
    }
    return message;
  }

  std::filesystem::path folder_;
};

}  // namespace tapestry
