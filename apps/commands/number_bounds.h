// What a number on the command line may be.
#pragma once

#include <CLI/App.hpp>
#include <charconv>
#include <limits>
#include <string>
#include <type_traits>

#include "core/base/text.h"

namespace tapestry {

/// Refuses texts that are no T, and numbers outside [least, most]. (Those of CLI11 print all digits
/// of the largest double, and take numbers that do not fit.)
template <class T>
CLI::Validator number_between(T least, std::type_identity_t<T> most) {
  const bool open = most == std::numeric_limits<T>::max();
  const std::string bounds =
      open ? concat("at least ", least) : concat("in [", least, ", ", most, ']');
  const auto check = [=](std::string& text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool fits = error == std::errc() && stop == end && value >= least && value <= most;
    const char* const kind = std::is_integral_v<T> ? "a whole number " : "a number ";
    return fits ? std::string() : concat("must be ", kind, bounds, ", got '", text, "'.");
  };
  return CLI::Validator(check, bounds);
}
template <class T>
CLI::Validator number_from(T least) {
  return number_between(least, std::numeric_limits<T>::max());
}

}  // namespace tapestry
