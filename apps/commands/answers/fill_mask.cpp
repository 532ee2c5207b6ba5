// tapestry fill-mask: words for masks, or lines as a denoising model restores them.
#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/answers/filter.h"
#include "apps/commands/answers/line_filter.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/pages/attention_page.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/text_models.h"
#include "core/cpu/parallel.h"
#include "data/corpora/empty_text.h"
#include "data/examples/denoising.h"
#include "data/tokenizers/special_words.h"

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
  const auto with_masks = with_special_words(model->tokenizers.source);
  AttentionBook book(arguments.attention);
  filter.run(1, [&](const std::vector<std::string>& lines, int64_t number) {
    const TextFrame frame = tokenizer.special().masked();
    std::vector<int32_t> text = with_masks->encode(lines[0]);
    if (is_empty_text(lines[0], text)) {  // a filter answers an empty line with one
      filter.out() << '\n';
      return;
    }
    filter.read(text, tokenizer, number);
    cut_long_line(text, model->config.model.longest_sequence() - frame.size(),
                  place_of_line(number + 1));
    const std::vector<int32_t> ids = in_frame(frame, text);
    std::string answer;
    for (const std::vector<Fill>& guesses : fill_masks(*model, ids, top_k)) {
      if (!answer.empty()) answer += " | ";
      for (size_t i = 0; i < guesses.size(); ++i) {
        const std::string word = tokenizer.decode({guesses[i].token});
        answer += fmt::format("{}{} {:.4f}", i == 0 ? "" : "  ",
                              word.empty() ? tokenizer.piece(guesses[i].token) : word,
                              guesses[i].probability);
      }
    }
    filter.out() << one_line(answer) << '\n';
    if (book.wants()) book.add(attention_page({&model->model.trunk}, tokenizer, ids), lines[0]);
  });
  book.write();
  filter.finish();
  return 0;
}

// A T5-style model numbers its holes: the masks of a line without numbers get some.
void number_masks(std::vector<int32_t>& ids, const DenoisingVocabulary& vocabulary) {
  for (const int32_t id : ids) {
    if (std::count(vocabulary.sentinels.begin(), vocabulary.sentinels.end(), id) > 0) return;
  }
  size_t next = 0;
  for (int32_t& id : ids) {
    if (id == vocabulary.mask_id && next < vocabulary.sentinels.size()) {
      id = vocabulary.sentinels[next++];
    }
  }
}

// With a denoising model: each line with its holes filled.
int restore_lines(const FillMaskArguments& arguments, LineFilter& filter) {
  if (arguments.top_k) {
    fail(ErrorKind::kConfig, "[fill-mask] --top-k needs a masked model.");
  }
  const Translator models(arguments.models, arguments.compute.device, "fill-mask", kFillsMasks);
  const Tokenizer& tokenizer = *models.tokenizers().target;
  const DenoisingOptions& noise = models.config().denoising;
  const DenoisingVocabulary vocabulary(tokenizer, noise);
  const bool by_spans = noise.objective == "span_corruption";
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
      sentences.sources.push_back(std::move(ids));
      if (by_spans) number_masks(sentences.sources.back(), vocabulary);
    }
    const auto results = translate(models.models(), sentences, options, arguments.batch_size);
    size_t next = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!empty[i]) {
        const std::vector<int32_t>& source = sentences.sources[next];
        const std::vector<int32_t>& found = results[next++].at(0).tokens;
        filter.out() << one_line(
            tokenizer.decode(by_spans ? fill_spans(source, found, vocabulary) : found));
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
