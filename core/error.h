// Errors: every failure in the libraries is an Error; main() prints it once and exits with its
// kind.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace tapestry {

/// The kind of failure. Its value is the exit code of the process.
enum class ErrorKind : int {
  kRuntime = 1,
  kConfig = 2,
  kData = 3,
  kDiverged = 4,
  kOutOfMemory = 5,
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Joins anything streamable: concat("got ", 3, '.') == "got 3."
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

/// Throws Error(kRuntime, "[who] parts...") unless `ok`. State the expectation, then the actual
/// values: check(a == b, "matmul", "inner dimensions differ: a is ", a, ", b is ", b, '.').
template <class... Parts>
void check(bool ok, const char* who, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::kRuntime, '[', who, "] ", parts...);
}

}  // namespace tapestry
