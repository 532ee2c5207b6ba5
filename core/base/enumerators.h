// The values of an enumeration, taken from the switch that names them.
#pragma once

#include <array>
#include <cstddef>

namespace tapestry {

/// Number of values of E.
template <class E>
constexpr int enumerator_count() {
  int count = 0;
  while (name_of(static_cast<E>(count)) != nullptr) ++count;
  return count;
}

/// All values of E, in order. E counts from 0 without gaps. Its name_of() is a constexpr switch
/// without a default, and returns null for other values: so the compiler compares the names with
/// the enumeration (-Wswitch), and no second list exists that could fall behind.
template <class E>
constexpr std::array<E, enumerator_count<E>()> enumerators() {
  std::array<E, enumerator_count<E>()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<E>(i);
  return values;
}

}  // namespace tapestry
