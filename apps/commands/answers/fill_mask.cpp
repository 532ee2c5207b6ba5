// tapestry fill-mask: words for masks, or lines as a denoising model restores them.
#include <fmt/format.h>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/answers/holes.h"
#include "core/cpu/parallel.h"
#include "data/corpora/empty_text.h"

namespace tapestry {
namespace {

struct FillMaskArguments : FilterArguments {
  std::optional<int64_t> top_k = {};  ///< words for each <mask> of a masked model; 5 if unset
  SearchArguments search = {};        ///< of a denoising model
};

// With a masked model: the most probable words for each mask.
int guess_words(ModelFiles files, const FillMaskArguments& arguments, LineFilter& filter) {
  if (!arguments.search.overrides.empty()) {
    fail(ErrorKind::kConfig, "[fill-mask] --beam-size needs a denoising model.");
  }
  const auto model = TextModel::load(std::move(files), arguments.compute.device, "fill-mask",
                                     kFillsMasks, arguments.models.format);
  constexpr int64_t kGuesses = 5;
  const int64_t top_k = arguments.top_k.value_or(kGuesses);
  const Tokenizer& tokenizer = *model->tokenizers.source;
  const MaskGuesser guesser(*model);
  AttentionBook book(arguments.attention);
  filter.run(1, [&](const std::vector<std::string>& lines, int64_t number) {
    const std::vector<int32_t> text = guesser.encode(lines[0]);
    if (text.empty()) {  // a filter answers an empty line with one
      filter.out() << '\n';
      return;
    }
    filter.read(text, tokenizer, number);
    const std::vector<int32_t> ids = guesser.framed(text, number + 1);
    std::string answer;
    for (const std::vector<WordGuess>& guesses : guesser.guess(ids, top_k)) {
      if (!answer.empty()) answer += " | ";
      for (size_t i = 0; i < guesses.size(); ++i) {
        answer +=
            fmt::format("{}{} {:.4f}", i == 0 ? "" : "  ", guesses[i].word, guesses[i].probability);
      }
    }
    filter.out() << one_line(answer) << '\n';
    if (book.wants()) book.add(attention_page({&model->model.trunk}, tokenizer, ids), lines[0]);
  });
  book.write();
  filter.finish();
  return 0;
}

// With a denoising model: each line with its holes filled.
int restore_lines(const FillMaskArguments& arguments, LineFilter& filter) {
  if (arguments.top_k) {
    fail(ErrorKind::kConfig, "[fill-mask] --top-k needs a masked model.");
  }
  const Translator models(arguments.models, arguments.compute.device, "fill-mask", kFillsMasks);
  const TextRestorer restorer(models);
  const SearchOptions options = arguments.search.over(models.config().generation);
  AttentionBook book(arguments.attention);
  filter.run(arguments.batch_size, [&](const std::vector<std::string>& lines, int64_t first) {
    Sentences sentences{.rows = models.rows()};
    std::vector<bool> empty;
    for (const std::string& line : lines) {
      const int64_t number = first + std::ssize(empty);
      std::vector<int32_t> ids = models.encode_source(line, number + 1);
      empty.push_back(is_empty_text(line, ids));
      if (empty.back()) continue;
      filter.read(ids, *models.tokenizers().source, number);
      sentences.sources.push_back(restorer.source(std::move(ids)));
    }
    const auto results = translate(models.models(), sentences, options, arguments.batch_size);
    size_t next = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!empty[i]) {
        const std::vector<int32_t>& source = sentences.sources[next];
        const std::vector<int32_t>& found = results[next++].at(0).tokens;
        filter.out() << one_line(restorer.text(source, found));
        if (book.wants()) book.add(attention_page(models, source, found), lines[i]);
      }
      filter.out() << '\n';
    }
  });
  book.write();
  filter.finish();
  return 0;
}

int run_fill_mask(const FillMaskArguments& arguments) {
  arguments.search.validate();
  LineFilter filter("fill-mask", arguments);
  set_num_threads(arguments.compute.threads);
  ModelFiles files = read_model_files(arguments.model());
  const bool restores =
      files.config.task->can(kFillsMasks) && traits_of(files.config.model_type).writes;
  return restores ? restore_lines(arguments, filter)
                  : guess_words(std::move(files), arguments, filter);
}

void add_fill_mask(CLI::App& app, FillMaskArguments& arguments) {
  add_model(app, arguments);
  add_format(app, arguments.models.format);
  add_input(app, arguments);
  add_output(app, arguments, "lines restored at a time; denoising models");
  app.add_option("--top-k", arguments.top_k, "words for each mask (default: 5); masked models")
      ->check(number<int64_t>(at_least(1)));
  add_search_key(app, arguments.search, "num_beams",
                 "hypotheses kept (default: the config's); denoising models");
  add_attention(app, arguments);
}

}  // namespace

extern const Command kFillMask(
    "fill-mask",
    "The most probable words for each <mask> in lines of standard input, or with a denoising model "
    "the lines with <mask> or <extra_id_0>, ... restored",
    add_fill_mask, run_fill_mask);

}  // namespace tapestry
