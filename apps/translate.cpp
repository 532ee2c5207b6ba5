#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/filter.h"
#include "apps/translation.h"
#include "core/parallel.h"
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

template <class Model>
void translate_block(const TranslationModel<Model>& model, const std::vector<std::string>& lines,
                     int64_t first, const SearchOptions& options,
                     const TranslateArguments& arguments) {
  std::vector<std::vector<int32_t>> sources;
  const auto longest = static_cast<size_t>(model.config.model.max_position_embeddings - 1);  // eos
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
      arguments.model, arguments.compute.device, "translate",
      {Task::kTranslation, Task::kDenoising}, [&](const auto& model) {
        SearchOptions options = search_options(model.config.generation, arguments.search);
        options.max_length_ratio = arguments.max_length_ratio.value_or(options.max_length_ratio);
        filter_lines("translate", kBlockLines,
                     [&](const std::vector<std::string>& lines, int64_t first) {
                       translate_block(model, lines, first, options, arguments);
                     });
      });
  return 0;
}

}  // namespace tapestry
