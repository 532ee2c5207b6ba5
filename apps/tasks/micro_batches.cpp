#include "apps/tasks/micro_batches.h"

#include <numeric>

#include "core/error.h"

namespace tapestry {
namespace {

// Takes the same rows of each existing field of a batch.
struct Rows {
  int64_t begin, end;
  Tensor operator()(const Tensor& tensor) const {
    return tensor.defined() ? tensor.slice(begin, end) : tensor;
  }
  std::vector<int64_t> operator()(const std::vector<int64_t>& numbers) const {
    if (numbers.empty()) return {};
    return {numbers.begin() + begin, numbers.begin() + end};
  }
};

int64_t sum_of(const Tensor& lengths) {
  const auto* const values = lengths.data<int32_t>();
  return std::accumulate(values, values + lengths.numel(), int64_t{0});
}

int64_t targets_in(const Tensor& targets) {
  const auto* const values = targets.data<int32_t>();
  return targets.numel() - std::count(values, values + targets.numel(), kNoTarget);
}

// The first `length` ids of a row of (B, T).
std::vector<int32_t> ids_of(const Tensor& ids, int64_t row, int64_t length) {
  const auto* const begin = ids.data<int32_t>() + row * ids.shape()[1];
  return {begin, begin + length};
}

int64_t length_of(const Tensor& lengths, int64_t row) { return lengths.data<int32_t>()[row]; }

// One text for each row: `text(row)`, with the row's number in the corpus if it is known.
template <class F>
std::vector<std::string> numbered(int64_t rows, const std::vector<int64_t>& indices, F text) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < rows; ++row) {
    const std::string number =
        indices.empty() ? "" : concat(indices[static_cast<size_t>(row)] + 1, ": ");
    texts.push_back(number + text(row));
  }
  return texts;
}

std::string label_of(const Tensor& labels, int64_t row, const std::vector<std::string>& names) {
  const auto label = static_cast<size_t>(labels.data<int32_t>()[row]);
  return label < names.size() ? names[label] : std::to_string(label);
}

}  // namespace

TranslationBatch rows_of(const TranslationBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  TranslationBatch part{.source = rows(batch.source),
                        .source_lengths = rows(batch.source_lengths),
                        .target_in = rows(batch.target_in),
                        .target_out = rows(batch.target_out),
                        .target_lengths = rows(batch.target_lengths),
                        .target_weights = rows(batch.target_weights),
                        .sentences = end - begin,
                        .indices = rows(batch.indices)};
  part.source_tokens = sum_of(part.source_lengths);
  part.target_tokens = sum_of(part.target_lengths);
  return part;
}

BlockBatch rows_of(const BlockBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  BlockBatch part{.ids = rows(batch.ids),
                  .targets = rows(batch.targets),
                  .lengths = rows(batch.lengths),
                  .rows = end - begin};
  part.tokens = targets_in(part.targets);
  return part;
}

PromptBatch rows_of(const PromptBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  PromptBatch part{.ids = rows(batch.ids),
                   .targets = rows(batch.targets),
                   .lengths = rows(batch.lengths),
                   .prompt_lengths = rows(batch.prompt_lengths),
                   .rows = end - begin,
                   .indices = rows(batch.indices)};
  part.tokens = sum_of(part.lengths);
  part.answer_tokens = targets_in(part.targets);
  return part;
}

LabelledBatch rows_of(const LabelledBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  LabelledBatch part{.ids = rows(batch.ids),
                     .lengths = rows(batch.lengths),
                     .labels = rows(batch.labels),
                     .rows = end - begin,
                     .indices = rows(batch.indices)};
  part.tokens = sum_of(part.lengths);
  return part;
}

ImageBatch rows_of(const ImageBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  return {.pixels = rows(batch.pixels),
          .labels = rows(batch.labels),
          .rows = end - begin,
          .indices = rows(batch.indices)};
}

QuestionBatch rows_of(const QuestionBatch& batch, int64_t begin, int64_t end) {
  const Rows rows{begin, end};
  std::vector<int32_t> labels;  // (2, B): columns
  for (int64_t side = 0; side < 2; ++side) {
    const auto* const all = batch.labels.data<int32_t>() + side * batch.rows;
    labels.insert(labels.end(), all + begin, all + end);
  }
  QuestionBatch part{.ids = rows(batch.ids),
                     .segments = rows(batch.segments),
                     .lengths = rows(batch.lengths),
                     .labels = Tensor::from(labels, {2, end - begin}),
                     .rows = end - begin,
                     .windows = rows(batch.windows)};
  part.tokens = sum_of(part.lengths);
  return part;
}

std::vector<std::string> texts_of(const TranslationBatch& batch, const TokenizerPair& tokenizers) {
  return numbered(batch.sentences, batch.indices, [&](int64_t row) {
    return concat(
        tokenizers.source->decode(ids_of(batch.source, row, length_of(batch.source_lengths, row))),
        "  ->  ",
        tokenizers.target->decode(
            ids_of(batch.target_out, row, length_of(batch.target_lengths, row))));
  });
}

std::vector<std::string> texts_of(const BlockBatch& batch, const Tokenizer& tokenizer) {
  return numbered(batch.rows, {}, [&](int64_t row) {
    const int64_t length =
        batch.lengths.defined() ? length_of(batch.lengths, row) : batch.ids.shape()[1];
    return tokenizer.decode(ids_of(batch.ids, row, length));
  });
}

std::vector<std::string> texts_of(const PromptBatch& batch, const Tokenizer& tokenizer) {
  return numbered(batch.rows, batch.indices, [&](int64_t row) {
    const std::vector<int32_t> ids = ids_of(batch.ids, row, length_of(batch.lengths, row));
    const auto prompt = ids.begin() + length_of(batch.prompt_lengths, row);
    return concat(tokenizer.decode({ids.begin(), prompt}), "  ->  ",
                  tokenizer.decode({prompt, ids.end()}));
  });
}

std::vector<std::string> texts_of(const LabelledBatch& batch, const Tokenizer& tokenizer,
                                  const std::vector<std::string>& labels) {
  return numbered(batch.rows, batch.indices, [&](int64_t row) {
    return concat(label_of(batch.labels, row, labels), "  <-  ",
                  tokenizer.decode(ids_of(batch.ids, row, length_of(batch.lengths, row))));
  });
}

std::vector<std::string> texts_of(const ImageBatch& batch, const std::vector<std::string>& labels) {
  return numbered(batch.rows, batch.indices, [&](int64_t row) {
    return concat("an image of ", label_of(batch.labels, row, labels));
  });
}

std::vector<std::string> texts_of(const QuestionBatch& batch, const Tokenizer& tokenizer) {
  return numbered(batch.rows, batch.windows, [&](int64_t row) {
    return tokenizer.decode(ids_of(batch.ids, row, length_of(batch.lengths, row)));
  });
}

}  // namespace tapestry
