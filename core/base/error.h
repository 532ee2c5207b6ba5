// Errors: every failure in the libraries is an Error; main() prints it once and exits with its
// kind.
#pragma once

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>

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

/// One part of a message: an object that streams, by reference. Messages are put together out of
/// line, because the code that streams would otherwise be compiled into every caller.
class MessagePart {
 public:
  MessagePart(const char* text) : value_(text), print_(print_text) {}
  template <class T>
  requires(!std::is_array_v<T>) MessagePart(const T& value)
      : value_(&value), print_(print_value<T>) {}

  friend std::ostream& operator<<(std::ostream& out, const MessagePart& part) {
    part.print_(out, part.value_);
    return out;
  }

 private:
  static void print_text(std::ostream& out, const void* text) {
    out << static_cast<const char*>(text);
  }
  template <class T>
  static void print_value(std::ostream& out, const void* value) {
    out << *static_cast<const T*>(value);
  }

  const void* value_;
  void (*print_)(std::ostream& out, const void* value);
};

std::string join(std::initializer_list<MessagePart> parts);
[[noreturn]] void fail_with(ErrorKind kind, std::initializer_list<MessagePart> parts);

/// Joins anything streamable: concat("got ", 3, '.') == "got 3."
template <class... Parts>
std::string concat(const Parts&... parts) {
  return join({parts...});
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  fail_with(kind, {parts...});
}

/// Throws Error(kRuntime, "[who] parts...") unless `ok`. State the expectation, then the actual
/// values: check(a == b, "matmul", "inner dimensions differ: a is ", a, ", b is ", b, '.').
template <class... Parts>
void check(bool ok, const char* who, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_with(ErrorKind::kRuntime, {'[', who, "] ", parts...});
}

}  // namespace tapestry
