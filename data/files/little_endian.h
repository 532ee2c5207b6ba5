// Numbers as files hold them: the lowest byte first.
#pragma once

#include <concepts>
#include <string>

namespace tapestry {

template <std::unsigned_integral T>
void append_little_endian(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> 8 * i);
}

}  // namespace tapestry
