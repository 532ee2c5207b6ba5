// Numbers on the command line, with the bounds and words of a config's.
#pragma once

#include <CLI/App.hpp>
#include <charconv>
#include <string>
#include <type_traits>

#include "apps/config/reader.h"
#include "core/base/text.h"

namespace tapestry {

/// Refuses texts that are no T, and numbers outside the range. (CLI11's own checks print all digits
/// of the largest double, and take numbers that do not fit.)
template <class T>
CLI::Validator number(const ConfigRange& range) {
  const auto check = [range](std::string& text) -> std::string {
    // Of an unsigned number the sign, too, is read, so that one below 0 is told to be out of range.
    const bool negative = std::is_unsigned_v<T> && text.starts_with('-');
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + (negative ? 1 : 0), end, value);
    if (error != std::errc() || stop != end) {
      const char* const kind = std::is_integral_v<T> ? "an integer" : "a number";
      return concat("must be ", kind, ", got '", text, "'.");
    }
    if (!negative && range.contains(static_cast<double>(value))) return "";
    return concat("must be ", range.text, ", got ", text, '.');
  };
  return CLI::Validator(check, range.text);
}

}  // namespace tapestry
