#include "data/files/decompress.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>

#include "core/base/error.h"

namespace tapestry {
namespace {

using namespace std::string_view_literals;

using Step = Decompressor::Step;

// zlib, liblzma and libbz2 share the names of a stream's members, if not their types.
template <class Stream, class Run>
int run_step(Stream& stream, std::string_view packed, std::span<char> out, Step& step, Run&& run) {
  stream.next_in = reinterpret_cast<decltype(stream.next_in)>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<decltype(stream.avail_in)>(packed.size());
  stream.next_out = reinterpret_cast<decltype(stream.next_out)>(out.data());
  stream.avail_out = static_cast<decltype(stream.avail_out)>(out.size());
  const int status = run(stream);
  step.consumed = packed.size() - stream.avail_in;
  step.produced = out.size() - stream.avail_out;
  return status;
}

class GzipDecompressor : public Decompressor {
 public:
  GzipDecompressor() {
    constexpr int kGzipOnly = 16;
    check(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK, "data", "zlib has no memory.");
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  void start() override { inflateReset(&stream_); }

  Step step(std::string_view packed, std::span<char> out) override {
    Step step;
    const int status = run_step(stream_, packed, out, step,
                                [](z_stream& stream) { return inflate(&stream, Z_NO_FLUSH); });
    step.ended = status == Z_STREAM_END;
    if (!step.ended && status != Z_OK && status != Z_BUF_ERROR) {
      step.damage = stream_.msg != nullptr ? stream_.msg : zError(status);
    }
    return step;
  }

 private:
  z_stream stream_{};
};

class ZstdDecompressor : public Decompressor {
 public:
  ZstdDecompressor() { check(context_ != nullptr, "data", "zstd has no memory."); }

  void start() override { ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only); }

  Step step(std::string_view packed, std::span<char> out) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
    const size_t status = ZSTD_decompressStream(context_.get(), &unpacked, &in);
    Step step{in.pos, unpacked.pos, status == 0, nullptr};
    if (ZSTD_isError(status)) step.damage = ZSTD_getErrorName(status);
    return step;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_{ZSTD_createDCtx(), ZSTD_freeDCtx};
};

class XzDecompressor : public Decompressor {
 public:
  XzDecompressor() = default;
  ~XzDecompressor() override { lzma_end(&stream_); }
  XzDecompressor(const XzDecompressor&) = delete;
  XzDecompressor& operator=(const XzDecompressor&) = delete;

  void start() override {
    check(lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_TELL_UNSUPPORTED_CHECK) == LZMA_OK, "data",
          "liblzma has no memory.");
  }

  Step step(std::string_view packed, std::span<char> out) override {
    Step step;
    const int status = run_step(stream_, packed, out, step,
                                [](lzma_stream& stream) { return lzma_code(&stream, LZMA_RUN); });
    step.ended = status == LZMA_STREAM_END;
    if (!step.ended && status != LZMA_OK && status != LZMA_BUF_ERROR) step.damage = text(status);
    return step;
  }

 private:
  static const char* text(int status) {
    switch (status) {
      case LZMA_DATA_ERROR:
        return "incorrect data or checksum";
      case LZMA_FORMAT_ERROR:
        return "incorrect header";
      case LZMA_OPTIONS_ERROR:
        return "unknown filter or option";
      case LZMA_UNSUPPORTED_CHECK:
        return "unknown kind of checksum";
      case LZMA_MEM_ERROR:
        return "no memory";
      default:
        return "unknown error";
    }
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Bzip2Decompressor : public Decompressor {
 public:
  Bzip2Decompressor() = default;
  ~Bzip2Decompressor() override { BZ2_bzDecompressEnd(&stream_); }
  Bzip2Decompressor(const Bzip2Decompressor&) = delete;
  Bzip2Decompressor& operator=(const Bzip2Decompressor&) = delete;

  void start() override {
    BZ2_bzDecompressEnd(&stream_);  // refuses a stream that has not begun
    stream_ = {};
    check(BZ2_bzDecompressInit(&stream_, /*verbosity=*/0, /*small=*/0) == BZ_OK, "data",
          "libbz2 has no memory.");
  }

  Step step(std::string_view packed, std::span<char> out) override {
    Step step;
    const int status = run_step(stream_, packed, out, step,
                                [](bz_stream& stream) { return BZ2_bzDecompress(&stream); });
    step.ended = status == BZ_STREAM_END;
    if (!step.ended && status != BZ_OK) {
      step.damage = status == BZ_MEM_ERROR ? "no memory" : "incorrect data or checksum";
    }
    return step;
  }

 private:
  bz_stream stream_{};
};

template <class T>
std::unique_ptr<Decompressor> make() {
  return std::make_unique<T>();
}

constexpr CompressedFormat kFormats[] = {
    {"gzip", [](std::string_view bytes) { return bytes.starts_with("\x1F\x8B"); },
     make<GzipDecompressor>},
    {"zstd",
     [](std::string_view bytes) {
       // A skippable frame, of which parallel compressors make use, starts with one of 16 bytes.
       const bool skippable = bytes.size() >= 4 && (bytes[0] & 0xF0) == 0x50 &&
                              bytes.substr(1).starts_with("\x2A\x4D\x18");
       return skippable || bytes.starts_with("\x28\xB5\x2F\xFD");
     },
     make<ZstdDecompressor>},
    {"xz",
     [](std::string_view bytes) {
       return bytes.starts_with(
           "\xFD"
           "7zXZ\0"sv);
     },
     make<XzDecompressor>},
    {"bzip2",
     [](std::string_view bytes) {
       // "BZh" and a digit might be text: the first block, or the end of nothing, follows them.
       return bytes.size() >= CompressedFormat::kMagicBytes && bytes.starts_with("BZh") &&
              bytes[3] >= '1' && bytes[3] <= '9' &&
              (bytes.substr(4).starts_with("1AY&SY") ||
               bytes.substr(4).starts_with("\x17\x72\x45\x38\x50\x90"));
     },
     make<Bzip2Decompressor>},
};

}  // namespace

const CompressedFormat* find_compressed_format(std::string_view bytes) {
  for (const CompressedFormat& format : kFormats) {
    if (format.starts(bytes)) return &format;
  }
  return nullptr;
}

}  // namespace tapestry
