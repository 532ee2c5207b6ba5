// The pages of a column: their headers, and how their bytes are packed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tapestry::parquet {

constexpr int64_t kMostPageBytes = int64_t{1} << 28;

struct PageHeader {
  enum class Kind { kData, kDictionary, kDataV2, kOther };
  Kind kind = Kind::kOther;
  int64_t unpacked_bytes = 0, packed_bytes = 0;
  std::optional<uint32_t> checksum = {};
  int64_t values = 0;  ///< nulls included
  int64_t encoding = -1;
  int64_t defined_encoding = -1, repeated_encoding = -1;  ///< of kData
  int64_t defined_bytes = 0, repeated_bytes = 0;          ///< of kDataV2
  bool is_packed = true;
  size_t bytes = 0;  ///< of this header
};

/// Reads a header at the beginning of `bytes`. Throws ThriftReader::Damage; `cut` if it ends behind
/// them.
PageHeader read_page_header(std::string_view bytes);

/// Unpacks snappy's raw format (google/snappy, format_description.txt) to `size` bytes. Returns
/// what is wrong, or null. Own code: it is 60 lines, and a library is a package more for everybody.
const char* unpack_snappy(std::string_view packed, size_t size, std::string& out);

/// Unpacks a page. Returns what is wrong, or null.
const char* unpack_page(int64_t codec, std::string_view packed, size_t size, std::string& out);
/// True for the codecs that unpack_page() knows.
bool is_known_codec(int64_t codec);

}  // namespace tapestry::parquet
