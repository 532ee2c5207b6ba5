#include "data/examples/questions.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "data/batches/batch_rows.h"
#include "data/corpora/empty_text.h"
#include "data/corpora/encode_corpus.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

constexpr int64_t kTile = 16;  // questions that a thread encodes at a time

// A question may take half of a row's room, so that windows of its context stay long.
int64_t longest_question(const QuestionOptions& options, int64_t specials) {
  return (options.max_length - specials) / 2;
}

// False when the question is dropped.
bool fit_question(const Question& question, std::vector<int32_t>& ids,
                  const QuestionOptions& options, int64_t specials, FilterCounts& counts) {
  const auto most = static_cast<size_t>(longest_question(options, specials));
  if (ids.size() > most) {
    if (options.overlong == "error") {
      fail(ErrorKind::kData, "[data] ", question.place, " has a question of ", ids.size(),
           " tokens, with max_length ", options.max_length, " at most ", most, " fit.");
    }
    if (options.overlong == "drop") {
      counts.drop(Drop::kOverlong, question.place);
      return false;
    }
    ids.resize(most);
    ++counts.truncated;
  }
  ++counts.kept;
  return true;
}

// The place of the first answer among the tokens of the context.
struct TokenSpan {
  int64_t first = -1, last = -1;
};

TokenSpan tokens_of(const Question& question, const std::vector<PlacedToken>& context) {
  if (question.answers.empty()) return {};
  const Question::Answer& answer = question.answers.front();
  const int64_t end = answer.begin + static_cast<int64_t>(answer.text.size());
  TokenSpan span;
  for (size_t i = 0; i < context.size(); ++i) {
    if (context[i].end <= answer.begin || context[i].begin >= end) continue;
    if (span.first < 0) span.first = static_cast<int64_t>(i);
    span.last = static_cast<int64_t>(i);
  }
  return span;
}

void add_windows(QuestionCorpus& corpus, int64_t question, const QuestionOptions& options) {
  const std::vector<PlacedToken>& context = *corpus.contexts[static_cast<size_t>(question)];
  const auto tokens = static_cast<int64_t>(context.size());
  const int64_t room =
      options.max_length - corpus.frame.size() - corpus.question_ids.length(question);
  const TokenSpan answer = tokens_of(corpus.questions[static_cast<size_t>(question)], context);
  for (int64_t first = 0;; first += std::min(room, options.doc_stride)) {
    QuestionCorpus::Window window{question, first, std::min(room, tokens - first)};
    if (answer.first >= first && answer.last < first + window.count) {
      const int64_t shift = corpus.offset(window) - first;
      window.begin_label = static_cast<int32_t>(answer.first + shift);
      window.end_label = static_cast<int32_t>(answer.last + shift);
    }
    corpus.windows.push_back(window);
    if (first + window.count == tokens) return;
  }
}

// Columns of a table of questions: their tokens, and those of their contexts with places, three
// numbers each; empty if the context is that of the question before.
enum Column : int64_t { kQuestion, kContext, kColumns };

bool shares_context(const std::vector<Question>& questions, size_t i) {
  return i > 0 && questions[i].context == questions[i - 1].context;
}

void add_rows(const std::vector<Question>& questions, const Tokenizer& tokenizer,
              TableBuilder& table) {
  std::vector<std::vector<int32_t>> ids(questions.size()), contexts(questions.size());
  parallel_ranges(std::ssize(questions), kTile, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      ids[i] = tokenizer.encode(questions[i].question);
      if (shares_context(questions, i)) continue;
      for (const PlacedToken& token : tokenizer.encode_with_places(*questions[i].context)) {
        contexts[i].insert(contexts[i].end(), {token.id, static_cast<int32_t>(token.begin),
                                               static_cast<int32_t>(token.end)});
      }
    }
  });
  for (size_t i = 0; i < questions.size(); ++i) table.add({ids[i], contexts[i]});
}

std::shared_ptr<const std::vector<PlacedToken>> placed_tokens(std::span<const int32_t> numbers) {
  auto tokens = std::make_shared<std::vector<PlacedToken>>();
  tokens->reserve(numbers.size() / 3);
  for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
    tokens->push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  }
  return tokens;
}

std::vector<int32_t> ids_of(const std::vector<PlacedToken>& tokens) {
  std::vector<int32_t> ids;
  ids.reserve(tokens.size());
  for (const PlacedToken& token : tokens) ids.push_back(token.id);
  return ids;
}

// True if a table holds tokens of a vocabulary, and their places in the contexts.
bool are_rows_of(const TokenTable& table, const std::vector<Question>& questions,
                 int64_t vocab_size) {
  if (table.rows() != std::ssize(questions) || !table.ids_are_below(kQuestion, vocab_size)) {
    return false;
  }
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto numbers = table.list(static_cast<int64_t>(i), kContext);
    if (numbers.size() % 3 != 0) return false;
    const auto tokens = placed_tokens(numbers);
    for (const PlacedToken& token : *tokens) {
      const bool fits = token.id >= 0 && token.id < vocab_size && token.begin >= 0 &&
                        token.begin <= token.end && token.end <= std::ssize(*questions[i].context);
      if (!fits) return false;
    }
  }
  return true;
}

// The questions of a corpus of a list: those before `end` that are in none before it, and the
// counts of its reading.
struct Part {
  size_t end;
  FilterCounts counts;
};

// Drops what does not fit, and cuts the rest into windows.
QuestionCorpus cut_questions(std::vector<Question> questions, const TokenTable& table,
                             const SpecialIds& special, const QuestionOptions& options,
                             bool labelled, std::vector<Part> parts) {
  QuestionCorpus corpus;
  corpus.frame = special.question();
  corpus.filler = special.filler();
  std::shared_ptr<const std::vector<PlacedToken>> context;
  int64_t windows_before = 0;
  for (size_t i = 0, part = 0; i < questions.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    FilterCounts& counts = parts.at(part).counts;
    // Tells before a question is moved away from.
    const bool last_of_text = i + 1 == questions.size() || !shares_context(questions, i + 1);
    if (context == nullptr) context = placed_tokens(table.list(row, kContext));
    Question& question = questions[i];
    if (labelled && question.answers.empty() && !options.no_answer) {
      fail(ErrorKind::kData, "[data] ", question.place,
           " has no answer, which needs no_answer: true.");
    }
    const auto found = table.list(row, kQuestion);
    std::vector<int32_t> ids(found.begin(), found.end());
    const std::vector<int32_t> context_ids = ids_of(*context);
    if (is_empty_text(*question.context, context_ids) || is_empty_text(question.question, ids)) {
      counts.drop(Drop::kEmpty, question.place);
    } else if (fit_question(question, ids, options, corpus.frame.size(), counts)) {
      UnknownTokens& unknown = counts.unknown[0];
      unknown.count(ids, special.unk, question.place);
      unknown.count(context_ids, special.unk, question.place);
      corpus.questions.push_back(std::move(question));
      corpus.contexts.push_back(context);
      corpus.question_ids.push_back(ids);
      add_windows(corpus, corpus.size() - 1, options);
    }
    if (last_of_text) context = nullptr;
    if (parts[part].end > i + 1) continue;
    corpus.parts.push_back(std::ssize(corpus.windows) - windows_before);
    windows_before = std::ssize(corpus.windows);
    ++part;
  }
  std::vector<FilterCounts> counts;
  for (Part& part : parts) counts.push_back(std::move(part.counts));
  corpus.counts = FilterCounts::of_all(std::move(counts));
  return corpus;
}

}  // namespace

int64_t QuestionCorpus::row_length(const Window& window) const {
  return question_ids.length(window.question) + frame.size() + window.count;
}

std::string_view QuestionCorpus::text_of(int64_t question, int64_t first, int64_t last,
                                         int64_t& begin) const {
  const auto& context = *contexts[static_cast<size_t>(question)];
  const std::string_view text = *questions[static_cast<size_t>(question)].context;
  const auto from = static_cast<size_t>(context[static_cast<size_t>(first)].begin);
  const auto to = static_cast<size_t>(context[static_cast<size_t>(last)].end);
  const std::string_view found = strip(text.substr(from, to - from));
  begin = found.data() - text.data();
  return found;
}

QuestionCorpus encode_questions(std::vector<Question> questions, const Tokenizer& tokenizer,
                                const QuestionOptions& options, bool labelled,
                                FilterCounts counts) {
  TableBuilder builder(kColumns);
  add_rows(questions, tokenizer, builder);
  const auto table = builder.finish({});
  const size_t end = questions.size();
  return cut_questions(std::move(questions), *table, tokenizer.special(), options, labelled,
                       {{end, std::move(counts)}});
}

QuestionCorpus load_questions(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const QuestionOptions& options, const LoadContext& context) {
  check_not_empty(specs);
  // The texts are read again at every start, because the answers are parts of them. The key is
  // computed first: a file that changes meanwhile must not pass for its earlier contents.
  CorpusKey key;
  if (!context.cache.empty()) {
    key.add("questions");
    key.add(tokenizer.serialized());
    key.add(specs);
  }
  std::vector<Question> questions;
  std::vector<Part> parts;
  for (const CorpusSpec& spec : specs) {
    FilterCounts counts;
    std::vector<Question> more = read_questions(spec, counts);
    if (more.empty()) {
      fail(ErrorKind::kData, "[data] ", spec.str(), " leaves no question: ", counts.summary(), '.');
    }
    std::move(more.begin(), more.end(), std::back_inserter(questions));
    counts.corpus = spec.str();
    parts.push_back({questions.size(), std::move(counts)});
  }
  const auto make = [&](TableBuilder& builder) {
    add_rows(questions, tokenizer, builder);
    tokenizer.forget_words();
    return CorpusFacts{};
  };
  // Another number of rows: the texts changed behind the key.
  const auto table =
      cached_table("questions", kColumns, key, context, make, [&](const TokenTable& found) {
        return are_rows_of(found, questions, tokenizer.vocab_size());
      });
  QuestionCorpus corpus = cut_questions(std::move(questions), *table, tokenizer.special(), options,
                                        /*labelled=*/true, std::move(parts));
  for (size_t i = 0; i < specs.size(); ++i) {
    if (corpus.parts.at(i) > 0) continue;
    fail(ErrorKind::kData, "[data] ", specs[i].str(),
         " leaves no question: ", corpus.counts.summary(), '.');
  }
  return corpus;
}

QuestionBatch make_question_batch(const QuestionCorpus& corpus, std::span<const int64_t> windows) {
  QuestionBatch batch;
  batch.rows = static_cast<int64_t>(windows.size());
  batch.windows.assign(windows.begin(), windows.end());
  int64_t width = 0;
  for (const int64_t i : windows) {
    const int64_t length = corpus.row_length(corpus.windows[static_cast<size_t>(i)]);
    width = std::max(width, length);
    batch.tokens += length;
  }
  batch.ids = Tensor::full({batch.rows, width}, corpus.filler, DType::kInt32);
  batch.segments = Tensor::full({batch.rows, width}, 0, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  batch.labels = Tensor::empty({2, batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto& window = corpus.windows[static_cast<size_t>(windows[static_cast<size_t>(row)])];
    const auto question = corpus.question_ids[window.question];
    const auto& context = *corpus.contexts[static_cast<size_t>(window.question)];
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    const TwoTextFrame& frame = corpus.frame;
    at = std::copy(frame.before.begin(), frame.before.end(), at);
    at = std::copy(question.begin(), question.end(), at);
    at = std::copy(frame.between.begin(), frame.between.end(), at);
    for (int64_t i = 0; i < window.count; ++i) {
      *at++ = context[static_cast<size_t>(window.first + i)].id;
    }
    std::copy(frame.after.begin(), frame.after.end(), at);
    int32_t* const segment = batch.segments.data<int32_t>() + row * width;
    const int64_t length = corpus.row_length(window);
    std::fill(segment + corpus.offset(window), segment + length, 1);
    batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(length);
    batch.labels.data<int32_t>()[row] = window.begin_label;
    batch.labels.data<int32_t>()[batch.rows + row] = window.end_label;
  }
  return batch;
}

QuestionBatches::QuestionBatches(const QuestionCorpus& corpus, const BatchOptions& options,
                                 DataPosition start)
    : corpus_(&corpus),
      walk_(EpochPlans::of_lengths(
                mixture_of(std::ssize(corpus.windows), corpus.parts, options),
                [&corpus](int64_t, int64_t row) {
                  const int64_t length =
                      corpus.row_length(corpus.windows[static_cast<size_t>(row)]);
                  return RowLength{length, length};
                },
                options),
            start) {}

QuestionBatch rows_of(const QuestionBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  std::vector<int32_t> labels;  // (2, B): columns
  for (int64_t side = 0; side < 2; ++side) {
    const auto* const all = batch.labels.data<int32_t>() + side * batch.rows;
    labels.insert(labels.end(), all + begin, all + end);
  }
  QuestionBatch part{.ids = rows(batch.ids),
                     .segments = rows(batch.segments),
                     .lengths = rows(batch.lengths),
                     .labels = Tensor::from(labels, {2, rows.count()}),
                     .rows = rows.count(),
                     .windows = rows(batch.windows)};
  part.tokens = sum_of(part.lengths);
  return part;
}

}  // namespace tapestry
