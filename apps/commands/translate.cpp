#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands/attention_page.h"
#include "apps/commands/filter.h"
#include "apps/tasks/translation.h"
#include "core/parallel.h"
#include "data/files.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBlockLines = 2000;

Json details(const std::string& line, const std::vector<Hypothesis>& hypotheses,
             const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const Hypothesis& hypothesis : hypotheses) {
    Json pieces = Json::array();
    for (const int32_t id : hypothesis.tokens) pieces.push_back(tokenizer.piece(id));
    list.push_back({{"text", tokenizer.decode(hypothesis.tokens)},
                    {"score", hypothesis.score},
                    {"log_probability", hypothesis.log_probability},
                    {"tokens", std::move(pieces)}});
  }
  return {{"source", line}, {"translations", std::move(list)}};
}

// Collects heat maps of the first translations.
class AttentionPages {
 public:
  explicit AttentionPages(const std::string& path) : path_(path) {}

  void add(const TranslationModel<EncoderDecoder>& model, const std::vector<int32_t>& source,
           const Hypothesis& best) {
    if (path_.empty() || pages_.size() == kMostPages) return;
    pages_.push_back(attention_page(model, source, best.tokens));
  }
  void add(const TranslationModel<RnnAttention>&, const std::vector<int32_t>&, const Hypothesis&) {
    if (path_.empty()) return;
    fail(ErrorKind::kConfig, "[translate] --attention needs a model of type encoder_decoder.");
  }
  void write() const {
    if (path_.empty()) return;
    write_file(path_, attention_html(pages_));
  }

 private:
  static constexpr size_t kMostPages = 20;

  std::string path_;
  std::vector<AttentionPage> pages_;
};

template <class Model>
void translate_block(const TranslationModel<Model>& model, const std::vector<std::string>& lines,
                     int64_t first, const SearchOptions& options,
                     const TranslateArguments& arguments, AttentionPages& pages) {
  std::vector<std::vector<int32_t>> sources;
  const auto longest = static_cast<size_t>(model.config.model.longest_sequence() - 1);  // eos
  for (const std::string& line : lines) {
    if (is_blank(line)) continue;
    sources.push_back(model.tokenizers.source->encode(line));
    if (sources.back().size() > longest) {
      std::cerr << "warning: a line of " << sources.back().size() << " tokens is cut to " << longest
                << ": " << line.substr(0, 60) << "...\n";
      sources.back().resize(longest);
    }
  }
  const auto results = translate(model, sources, options, arguments.batch_size, first);
  for (size_t i = 0; i < sources.size(); ++i) pages.add(model, sources[i], results[i].at(0));
  const Tokenizer& tokenizer = *model.tokenizers.target;
  size_t next = 0;
  for (const std::string& line : lines) {
    const std::vector<Hypothesis> none;
    const auto& hypotheses = is_blank(line) ? none : results[next++];
    if (arguments.detail == "jsonl") {
      std::cout << details(line, hypotheses, tokenizer)
                       .dump(-1, ' ', false, Json::error_handler_t::replace)
                << '\n';
    } else if (is_blank(line)) {
      std::cout << '\n';
    } else {
      for (const Hypothesis& hypothesis : hypotheses) {
        std::cout << tokenizer.decode(hypothesis.tokens) << '\n';
      }
    }
  }
}

}  // namespace

int run_translate(const TranslateArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  with_translation_model(
      arguments.model, arguments.compute.device, "translate", kTranslates, [&](const auto& model) {
        SearchOptions options = search_options(model.config.generation, arguments.search);
        options.max_length_ratio = arguments.max_length_ratio.value_or(options.max_length_ratio);
        AttentionPages pages(arguments.attention);
        filter_lines("translate", kBlockLines,
                     [&](const std::vector<std::string>& lines, int64_t first) {
                       translate_block(model, lines, first, options, arguments, pages);
                     });
        pages.write();
      });
  return 0;
}

}  // namespace tapestry
