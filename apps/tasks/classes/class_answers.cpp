#include <algorithm>
#include <numeric>

#include "apps/tasks/classes/classification.h"
#include "data/batches/framed_rows.h"

namespace tapestry {
namespace {

Var outputs_of_rows(const TextClassifier& model, const Tensor& ids, const Tensor& lengths,
                    const Tensor& segments) {
  return model.model(ids.to(model.device()), lengths.to(model.device()), model.segments(segments));
}

}  // namespace

std::vector<ClassProbabilities> probabilities_of(const Var& logits) {
  const int64_t classes = logits.shape()[1];
  const std::vector<double> all = softmax(logits).value().to_vector<double>();
  std::vector<ClassProbabilities> rows;
  for (auto row = all.begin(); row != all.end(); row += classes) {
    rows.emplace_back(row, row + classes);
  }
  return rows;
}

std::vector<LabelProbability> chosen_classes(const std::vector<std::string>& labels,
                                             const ClassProbabilities& probabilities,
                                             const ClassChoice& choice, bool several) {
  const int64_t likely = std::ranges::count_if(
      probabilities, [&](double probability) { return probability >= choice.threshold; });
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const int64_t wanted = several ? likely : choice.top_k;
  const auto count = static_cast<std::ptrdiff_t>(std::min(wanted, std::ssize(order)));
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](size_t a, size_t b) {
    return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
  });
  std::vector<LabelProbability> chosen;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const size_t at = order[static_cast<size_t>(i)];
    chosen.push_back({labels[at], probabilities[at]});
  }
  return chosen;
}

Var outputs_of(const TextClassifier& model, const LabelledBatch& batch) {
  return outputs_of_rows(model, batch.ids, batch.lengths, batch.segments);
}

Var outputs_of(const TextClassifier& model, const std::vector<FramedText>& texts) {
  const FramedRows rows = framed_rows(texts, model.tokenizers.source->special().filler());
  return outputs_of_rows(model, rows.ids, rows.lengths, rows.segments);
}

std::vector<std::pair<std::string, std::string>> given_texts(const LabelledCorpus& corpus,
                                                             const Tokenizer& tokenizer,
                                                             int64_t text) {
  const auto decoded = [&](std::span<const int32_t> ids) {
    return tokenizer.decode({ids.begin(), ids.end()});
  };
  std::vector<std::pair<std::string, std::string>> given = {{"text", decoded(corpus.tokens[text])}};
  if (corpus.has_two_texts()) given.emplace_back("text_pair", decoded(corpus.seconds[text]));
  return given;
}

bool reads_text_pairs(const Config& config) {
  return std::ranges::any_of(config.data.train, &CorpusSpec::has_two_texts);
}

void check_second_texts(const char* who, const Config& config,
                        const std::vector<std::string>& texts,
                        const std::vector<std::string>& seconds) {
  if (seconds.empty() && reads_text_pairs(config)) {
    fail(ErrorKind::kConfig, '[', who,
         "] the model reads two texts in a row: 'text_pair' is missing.");
  }
  if (!seconds.empty() && seconds.size() != texts.size()) {
    fail(ErrorKind::kConfig, '[', who, "] expected a text_pair for each of ", texts.size(),
         " texts, got ", seconds.size(), '.');
  }
}

void check_texts(const Config& config, const std::vector<CorpusSpec>& corpora) {
  for (const CorpusSpec& corpus : corpora) {
    if (corpus.has_two_texts() == reads_text_pairs(config)) continue;
    fail(ErrorKind::kConfig, "[data] ", corpus.str(),
         corpus.has_two_texts() ? " has a text_pair_column, data.train has none."
                                : " has no text_pair_column, data.train has one.");
  }
}

std::vector<ClassProbabilities> classify(const TextClassifier& model,
                                         const std::vector<FramedText>& texts) {
  return probabilities_of(outputs_of(model, texts));
}

ClassProbabilities classify(const ImageModel& model, const std::string& path) {
  ImageSize size = model.config.data.image.size;
  const Tensor pixels = normalised(read_image(path, size), model.config.data.image);
  return probabilities_of(model.model(pixels.to(model.store.dtype()).to(model.device()))).at(0);
}

}  // namespace tapestry
