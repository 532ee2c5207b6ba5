#include "data/kept_bytes.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "data/corpus_key.h"
#include "data/decompress.h"
#include "data/files.h"
#include "data/image_size.h"

namespace tapestry {
namespace {

// A token with its places takes 24 bytes and has four of text; what is left are the texts, read
// once more, and a question's own fields.
constexpr int64_t kOfAByteOfQuestions = 6;

// Of text that gzip and the others make so small; a file that cannot be read has none.
constexpr int64_t kCompression = 3;

int64_t text_bytes(const std::string& path) {
  try {
    BufferedFile file(path, FileKinds::kFiles);
    file.read_ahead(CompressedFormat::kMagicBytes);
    const bool compressed = find_compressed_format(file.bytes()) != nullptr;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    return compressed ? kCompression * bytes : bytes;
  } catch (const std::exception&) {
    return 0;
  }
}

// A header that claims more than its file can hold is for the reader to tell.
int64_t most_unpacked(const CorpusSpec& spec) {
  constexpr int64_t kMostOfAByte = 1032;  // of gzip
  if (spec.labels.empty()) return std::numeric_limits<int64_t>::max();
  return kMostOfAByte * static_cast<int64_t>(std::filesystem::file_size(spec.images));
}

double share_of(const CorpusSpec& spec) {
  constexpr double kTrain = 0.98, kOther = 0.01;
  const double range = spec.range_end - spec.range_begin;
  return spec.split == "all" ? range : spec.split == "train" ? kTrain * range : kOther * range;
}

}  // namespace

int64_t kept_bytes(const std::vector<CorpusSpec>& specs, const ImageSize& size) {
  int64_t bytes = 0;
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kQuestions) {
      bytes += kOfAByteOfQuestions *
               text_bytes(spec.squad.empty() ? spec.record_file().path : spec.squad);
    }
    if (spec.kind() != CorpusSpec::Kind::kImages || !size.known()) continue;
    try {
      bytes += std::min(image_count(spec) * size.bytes(), most_unpacked(spec));
    } catch (const std::exception&) {
      // Who reads them tells.
    }
  }
  return bytes;
}

int64_t token_file_bytes(const std::vector<CorpusSpec>& specs, bool characters) {
  constexpr int64_t kTokenBytes = 4, kTextOfAPiece = 4;
  double bytes = 0;
  for (const CorpusSpec& spec : specs) {
    const auto kind = spec.kind();
    using enum CorpusSpec::Kind;
    if (kind == kImages || kind == kPoints || kind == kQuestions) continue;
    for (const std::string& path : files_of({spec})) {
      bytes += share_of(spec) * static_cast<double>(text_bytes(path));
    }
  }
  return kTokenBytes * static_cast<int64_t>(bytes) / (characters ? 1 : kTextOfAPiece);
}

}  // namespace tapestry
