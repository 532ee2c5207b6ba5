#include "data/tokenizers/training_lines.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace tapestry::tokenizers {
namespace {

// Keeps `limit` lines of a stream, each with the same chance (reservoir sampling, Vitter 1985,
// algorithm R), in the order of the stream.
std::vector<std::string> sample_lines(const LineSource& lines, int64_t limit, uint64_t seed) {
  static constexpr char kStream[] = "tokenizer.sample";
  const PhiloxKey key{seed, 0, stream_of(kStream, sizeof(kStream) - 1)};
  std::vector<std::pair<int64_t, std::string>> kept;
  std::string line;
  for (int64_t i = 0; lines(line); ++i) {
    if (limit == 0 || i < limit) {
      kept.emplace_back(i, line);
      continue;
    }
    const auto slot = static_cast<int64_t>(
        philox_below(key, static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1));
    if (slot < limit) kept[static_cast<size_t>(slot)] = {i, line};
  }
  std::sort(kept.begin(), kept.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> sample;
  sample.reserve(kept.size());
  for (auto& [index, text] : kept) sample.push_back(std::move(text));
  return sample;
}

constexpr size_t kLongestLine = 4192;

// The place to cut the part [begin, end) of a text if it is too long: before a space, or else
// between characters.
size_t cut_of(const std::string& text, size_t begin, size_t end) {
  if (end - begin <= kLongestLine) return end;
  const size_t space = text.rfind(' ', begin + kLongestLine);
  if (space != std::string::npos && space > begin) return space;
  size_t cut = begin + kLongestLine;
  while (cut > begin + 1 && (text[cut] & 0xC0) == 0x80) --cut;
  return cut;
}

// Splits texts into lines, and long lines into parts.
LineSource split_lines(const LineSource& texts) {
  return [&texts, text = std::string(), begin = size_t{0}](std::string& line) mutable {
    while (true) {
      if (begin >= text.size()) {
        if (!texts(text)) return false;
        begin = 0;
      }
      const size_t end = cut_of(text, begin, std::min(text.find('\n', begin), text.size()));
      line.assign(text, begin, end - begin);
      begin = end < text.size() && text[end] == '\n' ? end + 1 : end;
      if (!line.empty()) return true;
    }
  };
}

}  // namespace

std::vector<std::string> training_lines(const TokenizerOptions& options, const LineSource& texts,
                                        uint64_t seed) {
  std::vector<std::string> sample = sample_lines(split_lines(texts), options.max_sentences, seed);
  if (sample.empty()) fail(ErrorKind::kData, "[tokenizer] expected lines to learn from, got none.");
  return sample;
}

}  // namespace tapestry::tokenizers
