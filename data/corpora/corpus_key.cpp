#include "data/corpora/corpus_key.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/chat/chat_format.h"
#include "data/chat/clock.h"
#include "data/files/file_pattern.h"

namespace tapestry {
namespace {

// Raise it when the rules that turn text into ids change, or the file of a table.
constexpr const char* kVersion = "10";
constexpr int64_t kSamples = 64;
constexpr int64_t kSampleBytes = int64_t{1} << 20;

}  // namespace

CorpusKey::CorpusKey() : state_(XXH3_createState()) {
  XXH3_64bits_reset(state_);
  add(kVersion);
}

CorpusKey::~CorpusKey() { XXH3_freeState(state_); }

// The length comes first, so that different lists of texts give different bytes.
void CorpusKey::add(const std::string& text) {
  const uint64_t size = text.size();
  XXH3_64bits_update(state_, &size, sizeof(size));
  XXH3_64bits_update(state_, text.data(), text.size());
}

void CorpusKey::add(const std::vector<CorpusSpec>& specs) {
  for (const CorpusSpec& spec : specs) {
    for (const auto& [key, value] : reading_of(spec)) add(value);
    for (const std::string& key : CorpusSpec::file_keys()) {
      const std::string& path = spec.file(key);
      add(path);  // the counts name it
      if (path.empty()) continue;
      for (const std::string& shard : matching_files(path)) {
        if (shard != path) add(shard);
        add_file(shard);
      }
    }
  }
}

void CorpusKey::add_file(const std::string& path) {
  struct stat status {};
  // A pipe can be opened only once, and a file that cannot be opened is an error of its reader.
  std::ifstream file;
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    file.open(path, std::ios::binary);
  }
  if (!file.is_open()) {
    has_value_ = false;
    return;
  }
  const int64_t size = status.st_size;
  add(concat(size));
  const bool whole = size <= kWholeBytes;
  if (!whole) add(concat(status.st_mtim.tv_sec, ' ', status.st_mtim.tv_nsec));
  const int64_t pieces = whole ? (size + kSampleBytes - 1) / kSampleBytes : kSamples;
  std::string buffer(static_cast<size_t>(kSampleBytes), '\0');
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t at = whole ? i * kSampleBytes : (size - kSampleBytes) / (kSamples - 1) * i;
    file.clear();
    file.seekg(at);
    file.read(buffer.data(), std::min(kSampleBytes, size - at));
    XXH3_64bits_update(state_, buffer.data(), static_cast<size_t>(file.gcount()));
  }
}

std::optional<uint64_t> CorpusKey::value() const {
  if (!has_value_) return std::nullopt;
  return XXH3_64bits_digest(state_);
}

std::vector<std::string> files_of(const std::vector<CorpusSpec>& specs) {
  std::vector<std::string> files;
  for (const CorpusSpec& spec : specs) {
    for (const std::string& key : CorpusSpec::file_keys()) {
      const std::string& path = spec.file(key);
      if (path.empty()) continue;
      const std::vector<std::string> shards = matching_files(path);
      files.insert(files.end(), shards.begin(), shards.end());
      if (shards.empty()) files.push_back(path);
    }
  }
  return files;
}

std::vector<std::pair<std::string, std::string>> reading_of(const CorpusSpec& spec) {
  // Binds all members: if one is added, this does not compile until it is listed below, or known to
  // change nothing that is read.
  const auto& [source, target, records, source_column, target_column, negative_column, score_column,
               text_column, label_column, label_lists, label_numbers, text_pair_column,
               context_column, question_column, answer_column, answer_start_column, tokens_column,
               tags_column, x_column, y_column, x_columns, class_column, prompt, answer,
               messages_column, chosen, rejected, prompt_column, chosen_column, rejected_column,
               chat, ding, direction, min_words, text, documents, images, labels, squad, conll,
               range_begin, range_end, split, limit, weight, pair_weights, pair_weight_column,
               alignments, clean] = spec;
  static_cast<void>(weight);
  std::vector<std::string> files;
  for (const std::string& key : CorpusSpec::file_keys()) {
    if (!spec.file(key).empty()) files.push_back(key);
  }
  std::vector<std::pair<std::string, std::string>> reading = {
      {"files", join(files, ", ")},
      {"header", records.header},
      {"source_column", source_column},
      {"target_column", target_column},
      {"negative_column", negative_column},
      {"score_column", score_column},
      {"text_column", text_column},
      {"label_column", label_column},
      {"text_pair_column", text_pair_column},
      {"context_column", context_column},
      {"question_column", question_column},
      {"answer_column", answer_column},
      {"answer_start_column", answer_start_column},
      {"tokens_column", tokens_column},
      {"tags_column", tags_column},
      {"x_column", x_column},
      {"y_column", y_column},
      {"x_columns", join(x_columns, "\n")},
      {"class_column", class_column},
      {"prompt", prompt},
      {"answer", answer},
      {"messages_column", messages_column},
      {"chosen", chosen},
      {"rejected", rejected},
      {"prompt_column", prompt_column},
      {"chosen_column", chosen_column},
      {"rejected_column", rejected_column},
      {"loss_on", chat == nullptr ? "" : concat(static_cast<int>(chat->loss_on))},
      {"chat_tokens", chat == nullptr ? "" : concat(chat->tokens)},
      {"chat_template", chat == nullptr ? "" : chat->chat.source()},
      {"chat_day", chat == nullptr ? "" : day_of_talks(chat->chat.source())},
      {"direction", direction},
      {"min_words", concat(min_words)},
      {"documents", documents},
      {"range", concat(std::setprecision(17), range_begin, ' ', range_end)},
      {"split", split},
      {"limit", concat(limit)},
      {"pair_weight_column", pair_weight_column},
      {"max_ratio", concat(clean.max_ratio)},
      {"deduplicate", clean.deduplicate},
      {"drop_copies", clean.drop_copies ? "true" : "false"},
      {"source_script", join(clean.source_script, "\n")},
      {"target_script", join(clean.target_script, "\n")},
      {"script_share", concat(std::setprecision(17), clean.script_share)}};
  // Other labels are dropped as malformed.
  if (label_numbers || label_lists) {
    reading.emplace_back("labels_are", label_numbers ? "numbers" : "lists");
  }
  return reading;
}

}  // namespace tapestry
