#include "data/questions.h"

#include <algorithm>

#include "core/error.h"
#include "core/parallel.h"
#include "data/encode_corpus.h"
#include "data/utf8.h"

namespace tapestry {
namespace {

constexpr int64_t kSpecials = 3;  // bos, and eos behind the question and behind the context
constexpr int64_t kTile = 16;     // questions that a thread encodes at a time

// A question may fill half of what a row has room for, so that windows of its context stay long.
int64_t longest_question(const QuestionOptions& options) {
  return (options.max_length - kSpecials) / 2;
}

// False when the question is dropped.
bool fit_question(const Question& question, std::vector<int32_t>& ids,
                  const QuestionOptions& options, FilterCounts& counts) {
  const auto most = static_cast<size_t>(longest_question(options));
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

// Where the first answer stands among the tokens of the context.
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
  const int64_t room = options.max_length - kSpecials - corpus.question_ids.length(question);
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

// The tokens of each question's context; equal contexts that follow each other are encoded once.
std::vector<std::shared_ptr<const std::vector<PlacedToken>>> encode_contexts(
    const std::vector<Question>& questions, const Tokenizer& tokenizer) {
  std::vector<size_t> firsts;  // the first question about each text
  for (size_t i = 0; i < questions.size(); ++i) {
    if (i == 0 || questions[i].context != questions[i - 1].context) firsts.push_back(i);
  }
  std::vector<std::shared_ptr<const std::vector<PlacedToken>>> contexts(questions.size());
  parallel_ranges(static_cast<int64_t>(firsts.size()), kTile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t first = firsts[static_cast<size_t>(i)];
      contexts[first] = std::make_shared<const std::vector<PlacedToken>>(
          tokenizer.encode_with_places(*questions[first].context));
    }
  });
  for (size_t i = 1; i < contexts.size(); ++i) {
    if (contexts[i] == nullptr) contexts[i] = contexts[i - 1];
  }
  return contexts;
}

}  // namespace

int64_t QuestionCorpus::row_length(const Window& window) const {
  return offset(window) + window.count + 1;
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
  const auto contexts = encode_contexts(questions, tokenizer);
  QuestionCorpus corpus;
  corpus.counts = std::move(counts);
  for (size_t i = 0; i < questions.size(); ++i) {
    Question& question = questions[i];
    if (labelled && question.answers.empty() && !options.no_answer) {
      fail(ErrorKind::kData, "[data] ", question.place,
           " has no answer, which needs no_answer: true.");
    }
    std::vector<int32_t> ids = tokenizer.encode(question.question);
    if (contexts[i]->empty()) {
      corpus.counts.drop(Drop::kEmpty, question.place);
      continue;
    }
    if (!fit_question(question, ids, options, corpus.counts)) continue;
    corpus.questions.push_back(std::move(question));
    corpus.contexts.push_back(contexts[i]);
    corpus.question_ids.push_back(ids);
    add_windows(corpus, corpus.size() - 1, options);
  }
  return corpus;
}

QuestionCorpus load_questions(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const QuestionOptions& options) {
  check_not_empty(specs);
  std::vector<Question> questions;
  FilterCounts counts;
  for (const CorpusSpec& spec : specs) {
    std::vector<Question> more = read_questions(spec, counts);
    if (more.empty()) {
      fail(ErrorKind::kData, "[data] ", spec.str(), " leaves no question: ", counts.summary(), '.');
    }
    std::move(more.begin(), more.end(), std::back_inserter(questions));
  }
  QuestionCorpus corpus =
      encode_questions(std::move(questions), tokenizer, options, /*labelled=*/true, counts);
  if (corpus.size() == 0) {
    fail(ErrorKind::kData, "[data] ", specs.front().str(),
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
  batch.ids = Tensor::full({batch.rows, width}, kPadId, DType::kInt32);
  batch.segments = Tensor::full({batch.rows, width}, 0, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  batch.labels = Tensor::empty({2, batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto& window = corpus.windows[static_cast<size_t>(windows[static_cast<size_t>(row)])];
    const auto question = corpus.question_ids[window.question];
    const auto& context = *corpus.contexts[static_cast<size_t>(window.question)];
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    *at++ = kBosId;
    at = std::copy(question.begin(), question.end(), at);
    *at++ = kEosId;
    for (int64_t i = 0; i < window.count; ++i) {
      *at++ = context[static_cast<size_t>(window.first + i)].id;
    }
    *at = kEosId;
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
      walk_(
          [&corpus, options](int64_t epoch) {
            RowLengths lengths;
            for (const QuestionCorpus::Window& window : corpus.windows) {
              lengths.source.push_back(corpus.row_length(window));
            }
            lengths.target = lengths.source;
            return EpochPlan(lengths, options, epoch);
          },
          start) {}

}  // namespace tapestry
