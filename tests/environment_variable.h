// A variable of the environment while a test runs, for the programs that it starts.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace tapestry {

class EnvironmentVariable {
 public:
  /// Without a value: unset.
  EnvironmentVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~EnvironmentVariable() { set(before_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    value ? setenv(name_, value->c_str(), 1) : unsetenv(name_);
  }

  const char* name_;
  std::optional<std::string> before_ = {};
};

}  // namespace tapestry
