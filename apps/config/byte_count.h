// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tapestry {

/// "4GB", "1.5 GiB", "600000": bytes, decimal or binary by the unit; nothing where it is none, or
/// no positive number below 2^62.
std::optional<int64_t> byte_count(const std::string& text);

}  // namespace tapestry
