#include "apps/tasks/answers/placeholders.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "data/corpora/corpus_key.h"
#include "data/images/image_size.h"

namespace tapestry {
namespace {

// A tokenizer that is not trained yet: it only has a size.
class UntrainedTokenizer : public Tokenizer {
 public:
  explicit UntrainedTokenizer(int64_t size) : size_(size) {}
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<int32_t>&) const override { return ""; }
  int64_t vocab_size() const override { return size_; }
  std::string piece(int32_t) const override { return ""; }
  const std::string& serialized() const override { return nothing_; }

 private:
  int64_t size_;
  std::string nothing_;
};

// True if counting characters is fast, because the texts are short and local.
bool has_short_texts(const std::vector<CorpusSpec>& corpora) {
  constexpr uintmax_t kMostBytes = 16 << 20;
  return std::ranges::all_of(files_of(corpora), [](const std::string& path) {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    return !error && bytes <= kMostBytes;
  });
}

}  // namespace

TokenizerPair placeholder_tokenizers(Config& config,
                                     const std::function<void(const std::string&)>& note,
                                     const TokenizerPair& known) {
  if (examples_of(config).has_classes && config.data.labels.empty()) {
    config.data.labels = {"0", "1"};
    note("the classes come from the data; two stand in");
  }
  if (examples_of(config).of_images() && !config.data.image.size.known()) {
    const CorpusSpec& first = config.data.train.front();
    if (std::filesystem::is_regular_file(files_of({first}).front())) {
      config.data.image.size = size_of_first_image(first);
    }
  }
  if (!examples_of(config).of_text()) return {};
  if (known.source != nullptr) return known;
  const TokenizerOptions& options = config.tokenizer;
  if (!options.path.empty()) {
    const std::shared_ptr<const Tokenizer> read = read_tokenizer(options);
    return {read, read};
  }
  if (!options.source_path.empty()) {
    return {read_tokenizer(options, options.source_path),
            read_tokenizer(options, options.target_path)};
  }
  if (options.type == "char" && has_short_texts(config.data.train)) {
    return train_tokenizers(options, config.data.train, config.seed);
  }
  if (options.type == "char") {
    note(concat("the vocabulary is the characters of the data; tokenizer.vocab_size, ",
                options.vocab_size, ", stands in"));
  }
  const auto one = std::make_shared<UntrainedTokenizer>(options.vocab_size);
  const auto other = std::make_shared<UntrainedTokenizer>(options.vocab_size);
  return {one, options.share ? one : other};
}

void settle_vocab_size(Config& config) {
  if (!examples_of(config).of_text() || config.tokenizer.is_trained()) return;
  const TokenizerOptions& tokenizer = config.tokenizer;
  const std::string& path = tokenizer.path.empty() ? tokenizer.target_path : tokenizer.path;
  if (!std::filesystem::exists(path)) {
    std::cerr << concat("warning: ", path, " is not here: a vocabulary of ", tokenizer.vocab_size,
                        " stands in\n");
    return;
  }
  config.tokenizer.vocab_size = read_tokenizer(tokenizer, path)->vocab_size();
}

}  // namespace tapestry
