// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tapestry {

/// The units of byte_count(), for messages.
inline constexpr const char* kByteUnits = "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB";
/// "4GB", "1.5 GiB", "600000": bytes, decimal or binary by the unit; nothing for any other text,
/// and for numbers that are not in (0, 2^62).
std::optional<int64_t> byte_count(const std::string& text);

}  // namespace tapestry
