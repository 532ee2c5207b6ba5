// Results that are kept in a file of tests/fixtures/golden, so that a change that alters one has to
// name it. With TAPESTRY_WRITE_GOLDEN=1 a test writes what it sees.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/paths.h"

namespace tapestry {

inline bool writes_golden() { return std::getenv("TAPESTRY_WRITE_GOLDEN") != nullptr; }

inline std::string golden_path(const std::string& name) {
  return project_file("tests/fixtures/golden/" + name);
}

/// Lines of a name, " = " and a value, sorted by their names, behind a remark.
class GoldenFile {
 public:
  GoldenFile(const std::string& name, std::string remark)
      : path_(golden_path(name)), remark_(std::move(remark)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find(kIs);
      if (!line.starts_with('#') && at != std::string::npos) {
        entries_[line.substr(0, at)] = line.substr(at + kIs.size());
      }
    }
  }

  const std::map<std::string, std::string>& entries() const { return entries_; }
  bool has(const std::string& name) const { return entries_.contains(name); }

  /// The value must be the file's, where that has one of this name.
  void expect(const std::string& name, const std::string& value) {
    if (writes_golden()) {
      entries_[name] = value;
      return write();
    }
    if (!has(name)) return;
    EXPECT_EQ(value, entries_.at(name)) << name << " of " << path_;
  }
  /// The same for all entries at once: none may be missing and none new.
  void expect_all(const std::map<std::string, std::string>& entries) {
    if (writes_golden()) {
      entries_ = entries;
      return write();
    }
    for (const auto& [name, value] : entries) {
      EXPECT_TRUE(has(name)) << name << " = " << value << "\nis not in " << path_;
      expect(name, value);
    }
    for (const auto& [name, value] : entries_) {
      EXPECT_TRUE(entries.contains(name)) << name << " of " << path_ << " is gone";
    }
  }

 private:
  static constexpr std::string_view kIs = " = ";

  void write() const {
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    std::ofstream file(path_);
    file << "# " << remark_ << '\n';
    for (const auto& [name, value] : entries_) file << name << kIs << value << '\n';
  }

  std::string path_;
  std::string remark_;
  std::map<std::string, std::string> entries_;
};

}  // namespace tapestry
