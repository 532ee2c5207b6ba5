#include "core/base/byte_count.h"

#include <cmath>
#include <cstdlib>

namespace tapestry {

std::optional<int64_t> byte_count(const std::string& text) {
  constexpr struct {
    const char* name;
    double bytes;
  } kUnits[] = {{"", 1},          {"B", 1},         {"kB", 1e3},    {"KB", 1e3},
                {"MB", 1e6},      {"GB", 1e9},      {"TB", 1e12},   {"KiB", 1 << 10},
                {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 0x1p40}};
  constexpr double kMost = 0x1p62;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  // It reads hexadecimal numbers, too, which nobody means here.
  if (text.find_first_of("xX") < static_cast<size_t>(end - text.c_str())) return std::nullopt;
  std::string unit = end;
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& [name, bytes] : kUnits) {
    if (end == text.c_str() || unit != name) continue;
    if (!(number * bytes >= 1 && number * bytes < kMost)) return std::nullopt;
    return static_cast<int64_t>(number * bytes);
  }
  return std::nullopt;
}

}  // namespace tapestry
