#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/translation.h"
#include "core/parallel.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// Lines are read and answered in blocks, so that a long input needs no more memory than a short
// one.
constexpr size_t kBlockLines = 2000;

struct Line {
  std::string text;
  bool empty;
};

Json details(const Line& line, const std::vector<Hypothesis>& hypotheses,
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
  return {{"source", line.text}, {"translations", std::move(list)}};
}

void translate_block(const TranslationModel& model, const std::vector<Line>& lines,
                     const SearchOptions& options, const TranslateArguments& arguments) {
  std::vector<std::vector<int32_t>> sources;
  const auto longest =
      static_cast<size_t>(model.model().options.max_position_embeddings - 1);  // and eos
  for (const Line& line : lines) {
    if (line.empty) continue;
    sources.push_back(model.tokenizers().source->encode(line.text));
    if (sources.back().size() > longest) {
      std::cerr << "warning: a line of " << sources.back().size() << " tokens is cut to " << longest
                << ": " << line.text.substr(0, 60) << "...\n";
      sources.back().resize(longest);
    }
  }
  const auto results = model.translate(sources, options, arguments.batch_size);
  const Tokenizer& tokenizer = *model.tokenizers().target;
  size_t next = 0;
  for (const Line& line : lines) {
    const std::vector<Hypothesis> none;
    const auto& hypotheses = line.empty ? none : results[next++];
    if (arguments.detail == "jsonl") {
      std::cout << details(line, hypotheses, tokenizer)
                       .dump(-1, ' ', false, Json::error_handler_t::replace)
                << '\n';
    } else if (line.empty) {
      std::cout << '\n';
    } else {
      for (const Hypothesis& hypothesis : hypotheses) {
        std::cout << tokenizer.decode(hypothesis.tokens) << '\n';
      }
    }
  }
  std::cout.flush();
  if (!std::cout) fail(ErrorKind::kRuntime, "[translate] cannot write to standard output.");
}

}  // namespace

namespace {

// The config's options with those of the command line over them.
SearchOptions search_options(SearchOptions options, const TranslateArguments& arguments) {
  options.num_beams = arguments.beam_size.value_or(options.num_beams);
  options.length_penalty = arguments.length_penalty.value_or(options.length_penalty);
  options.max_length_ratio = arguments.max_length_ratio.value_or(options.max_length_ratio);
  if (arguments.length_penalty_type) {
    options.length_penalty_type = parse_length_penalty(*arguments.length_penalty_type);
  }
  options.n_best = arguments.n_best;
  return options;
}

}  // namespace

int run_translate(const TranslateArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const auto model = TranslationModel::load(arguments.model, arguments.compute.device);
  const SearchOptions options = search_options(model->config().generation, arguments);
  if (options.n_best < 1 || options.n_best > options.num_beams) {
    fail(ErrorKind::kConfig, "[translate] expected 1 <= --n-best <= --beam-size, got ",
         options.n_best, " and ", options.num_beams, '.');
  }
  std::vector<Line> block;
  int64_t number = 0;
  for (std::string text; std::getline(std::cin, text);) {
    ++number;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (const size_t bad = find_invalid_utf8(text); bad != std::string::npos) {
      fail(ErrorKind::kData, "[translate] line ", number, " is not UTF-8 at byte ", bad + 1, '.');
    }
    const bool empty = is_blank(text);
    block.push_back({std::move(text), empty});
    if (block.size() < kBlockLines) continue;
    translate_block(*model, block, options, arguments);
    block.clear();
  }
  if (!block.empty()) translate_block(*model, block, options, arguments);
  return 0;
}

int run_score(const ScoreArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  if (arguments.source.empty()) {
    fail(ErrorKind::kConfig, "[score] a translation model needs --source.");
  }
  const auto model = TranslationModel::load(arguments.model, arguments.compute.device);
  CorpusSpec spec;
  spec.source = arguments.source;
  spec.target = arguments.target;
  CorpusOptions options;
  options.max_length = model->model().options.max_position_embeddings;
  options.overlong = "error";
  const ParallelCorpus pairs = load_parallel({spec}, model->tokenizers(), options);
  if (pairs.counts.kept != pairs.counts.read) {
    fail(ErrorKind::kData, "[score] every line needs a score, but not every pair can be used: ",
         pairs.counts.summary());
  }
  for (const TranslationModel::Score& score : model->score(pairs, arguments.batch_size)) {
    std::cout << score.log_probability << '\t' << score.tokens << '\n';
  }
  return 0;
}

}  // namespace tapestry
