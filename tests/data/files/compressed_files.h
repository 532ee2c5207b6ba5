// Texts packed with each of the compressors that data files may come from.
#pragma once

#include <bzlib.h>
#include <lzma.h>
#include <zstd.h>

#include <string>

#include "tests/data/files/files.h"

namespace tapestry {

inline std::string zstd(const std::string& text) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as zstd(1) does
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

inline std::string xz(const std::string& text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64, nullptr,
                                    reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                    reinterpret_cast<uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  out.resize(size);
  return out;
}

inline std::string bzip2(const std::string& text) {
  std::string out(text.size() + text.size() / 100 + 600, '\0');
  auto size = static_cast<unsigned>(out.size());
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()),
                                     static_cast<unsigned>(text.size()), /*blockSize100k=*/9, 0, 0),
            BZ_OK);
  out.resize(size);
  return out;
}

struct Compressor {
  const char* name;
  std::string (*pack)(const std::string& text);
};

inline const Compressor kCompressors[] = {
    {"gzip", gzip}, {"zstd", zstd}, {"xz", xz}, {"bzip2", bzip2}};

}  // namespace tapestry
