#include "data/parquet/pages.h"

#include <algorithm>
#include <cstring>

#include "data/files/decompress.h"
#include "data/parquet/thrift.h"

namespace tapestry::parquet {
namespace {

using Type = ThriftReader::Type;
using Damage = ThriftReader::Damage;

enum Codec : int64_t { kUncompressed = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };

// The numbers of a header of one kind of page: each is a field of 32 bits.
void read_kind(ThriftReader& in, PageHeader& header, PageHeader::Kind kind,
               std::initializer_list<int64_t PageHeader::*> members) {
  header.kind = kind;
  in.read_struct([&](int64_t number, Type type) {
    if (kind == PageHeader::Kind::kDataV2 && number == 7) {
      header.is_packed = type == Type::kTrue;
      return false;  // it has no bytes
    }
    if (type != Type::kInt32 || number < 1 || number > std::ssize(members)) return false;
    const auto member = members.begin()[number - 1];
    const int64_t value = in.read_integer();
    if (member != nullptr) header.*member = value;
    return true;
  });
}

// gzip and zstd, of which text files are read, too. Several streams are one page.
const char* unpack_streams(std::string_view packed, size_t size, std::string& out) {
  const CompressedFormat* const format = find_compressed_format(packed);
  if (format == nullptr) return "it is not packed as its column says";
  const auto decompressor = format->make();
  decompressor->start();
  constexpr size_t kPiece = size_t{1} << 20, kMostPacked = size_t{16} << 20;
  while (true) {
    const size_t before = out.size();
    out.resize(std::min(size, before + kPiece));
    const Decompressor::Step step = decompressor->step(packed.substr(0, kMostPacked),
                                                       {out.data() + before, out.size() - before});
    out.resize(before + step.produced);
    packed.remove_prefix(step.consumed);
    if (step.damage != nullptr) return step.damage;
    if (step.ended) {
      if (packed.empty()) return out.size() == size ? nullptr : "it unpacks to too little";
      if (format->starts(packed) && out.size() < size) {
        decompressor->start();
        continue;
      }
      return "other bytes follow its packed ones";
    }
    if (step.consumed == 0 && step.produced == 0) {
      return out.size() == size ? "it unpacks to too much" : "it is cut short";
    }
  }
}

}  // namespace

PageHeader read_page_header(std::string_view bytes) {
  ThriftReader in(bytes);
  PageHeader header;
  in.read_struct([&](int64_t number, Type type) {
    using enum PageHeader::Kind;
    if (type == Type::kInt32 && number >= 2 && number <= 4) {
      const int64_t value = in.read_integer();
      if (number == 2) header.unpacked_bytes = value;
      if (number == 3) header.packed_bytes = value;
      if (number == 4) header.checksum = static_cast<uint32_t>(value);
      return true;
    }
    if (type != Type::kStruct) return false;
    if (number == 5) {
      read_kind(in, header, kData,
                {&PageHeader::values, &PageHeader::encoding, &PageHeader::defined_encoding,
                 &PageHeader::repeated_encoding});
    } else if (number == 7) {
      read_kind(in, header, kDictionary, {&PageHeader::values, &PageHeader::encoding});
    } else if (number == 8) {
      read_kind(in, header, kDataV2,
                {&PageHeader::values, nullptr, nullptr, &PageHeader::encoding,
                 &PageHeader::defined_bytes, &PageHeader::repeated_bytes});
    } else {
      return false;
    }
    return true;
  });
  header.bytes = in.consumed();
  const auto is_size = [](int64_t size) { return size >= 0 && size <= kMostPageBytes; };
  if (!is_size(header.unpacked_bytes) || !is_size(header.packed_bytes)) {
    throw Damage{"a page of it must have at most 256 MiB"};
  }
  if (header.values < 0 || header.defined_bytes < 0 || header.repeated_bytes < 0 ||
      header.defined_bytes > header.unpacked_bytes ||
      header.repeated_bytes > header.unpacked_bytes - header.defined_bytes) {
    throw Damage{"a page of it has a number out of bounds"};
  }
  return header;
}

const char* unpack_snappy(std::string_view packed, size_t size, std::string& out) {
  static constexpr const char* kCut = "it is cut short";
  const auto* at = reinterpret_cast<const uint8_t*>(packed.data());
  const uint8_t* const end = at + packed.size();
  const auto left = [&] { return static_cast<size_t>(end - at); };
  const auto number = [&](size_t bytes) {  // there are so many
    size_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= size_t{*at++} << 8 * i;
    return value;
  };
  uint64_t claimed = 0;
  for (int shift = 0;; shift += 7) {
    if (at == end || shift > 28) return kCut;
    const uint8_t byte = *at++;
    claimed |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) break;
  }
  // Three bytes copy 64 at most.
  if (claimed != size || size > 22 * packed.size()) return "its sizes contradict each other";
  out.resize(size);
  char* const begin = out.data();
  size_t done = 0;
  while (at != end) {
    const uint8_t tag = *at++;
    size_t length = 0, offset = 0;
    switch (tag & 3) {
      case 0: {  // bytes as they are
        length = tag >> 2;
        if (length >= 60) {
          const size_t bytes = length - 59;
          if (left() < bytes) return kCut;
          length = number(bytes);
        }
        ++length;
        if (length > left() || length > size - done) return kCut;
        std::memcpy(begin + done, at, length);
        at += length;
        done += length;
        continue;
      }
      case 1:
        if (left() < 1) return kCut;
        length = 4 + ((tag >> 2) & 7);
        offset = static_cast<size_t>(tag >> 5) << 8 | number(1);
        break;
      default: {
        const size_t bytes = (tag & 3) == 2 ? 2 : 4;
        if (left() < bytes) return kCut;
        length = 1 + (tag >> 2);
        offset = number(bytes);
      }
    }
    if (offset == 0 || offset > done || length > size - done) return "it copies what is not there";
    // What is copied may begin within what it makes.
    for (size_t i = 0; i < length; ++i, ++done) begin[done] = begin[done - offset];
  }
  return done == size ? nullptr : kCut;
}

bool is_known_codec(int64_t codec) {
  return codec == kUncompressed || codec == kSnappy || codec == kGzip || codec == kZstd;
}

const char* unpack_page(int64_t codec, std::string_view packed, size_t size, std::string& out) {
  out.clear();
  if (size == 0) return nullptr;  // nothing but nulls
  if (codec == kUncompressed) {
    out = packed;
    return out.size() == size ? nullptr : "its sizes contradict each other";
  }
  if (codec == kSnappy) return unpack_snappy(packed, size, out);
  return unpack_streams(packed, size, out);
}

}  // namespace tapestry::parquet
