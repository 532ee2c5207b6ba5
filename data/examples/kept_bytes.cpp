#include "data/examples/kept_bytes.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "data/corpora/corpus_key.h"
#include "data/files/file_pattern.h"
#include "data/files/unpacked_file.h"
#include "data/images/image_size.h"

namespace tapestry {
namespace {

// Typical ratio of text packed by gzip and the others.
constexpr int64_t kCompression = 3;

// A token with its places takes 24 bytes and has about four of text. The texts themselves and the
// fields of a question make up for the names and quotes of a file that are not kept.
constexpr int64_t kOfAByteOfQuestions = 6;

int64_t unpacked_bytes(const std::vector<std::string>& files, int64_t factor) {
  int64_t bytes = 0;
  for (const std::string& file : files) bytes += likely_unpacked_bytes(file, factor);
  return bytes;
}

int64_t question_bytes(const CorpusSpec& spec) {
  return kOfAByteOfQuestions * unpacked_bytes(files_of({spec}), kCompression);
}

// 0 if the file cannot hold what its header claims: its reader reports that.
int64_t pixel_bytes(const CorpusSpec& spec, const ImageSize& size) {
  const int64_t most = unpacked_bytes(matching_files(spec.images), kMostOfGzip);
  if (!size.known() || size.bytes() <= 0 || most == 0) return 0;
  try {
    const int64_t count = image_count(spec);
    const bool is_list = spec.labels.empty();
    const int64_t limit = is_list ? std::numeric_limits<int64_t>::max() / 4 : most;
    return count > limit / size.bytes() ? 0 : count * size.bytes();
  } catch (const Error&) {
    return 0;
  }
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
    if (spec.kind() == CorpusSpec::Kind::kQuestions) bytes += question_bytes(spec);
    if (spec.kind() == CorpusSpec::Kind::kImages) bytes += pixel_bytes(spec, size);
  }
  return bytes;
}

int64_t token_file_bytes(const std::vector<CorpusSpec>& specs, bool characters) {
  constexpr int64_t kTokenBytes = 4, kTextOfAPiece = 4, kLongText = 1024;
  double bytes = 0;
  for (const CorpusSpec& spec : specs) {
    const auto kind = spec.kind();
    using enum CorpusSpec::Kind;
    if (kind == kImages || kind == kPoints || kind == kQuestions) continue;
    // Parquet packs its columns itself.
    const bool packed = spec.has_records() && !spec.records.format->is_text;
    double text = share_of(spec) * static_cast<double>(packed ? kCompression : 1) *
                  static_cast<double>(unpacked_bytes(files_of({spec}), kCompression));
    if (spec.limit > 0) text = std::min(text, static_cast<double>(spec.limit) * kLongText);
    bytes += text;
  }
  return kTokenBytes * static_cast<int64_t>(bytes) / (characters ? 1 : kTextOfAPiece);
}

}  // namespace tapestry
