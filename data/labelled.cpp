#include "data/labelled.h"

#include <algorithm>

#include "core/error.h"
#include "data/class_names.h"
#include "data/encode_corpus.h"

namespace tapestry {
namespace {

constexpr int64_t kSpecials = 2;  // bos and eos

}  // namespace

LabelledCorpus load_labelled(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                             const CorpusOptions& options,
                             const std::vector<std::string>& label_names) {
  options.validate();
  check_not_empty(specs);
  if (options.max_length <= kSpecials) {
    fail(ErrorKind::kConfig, "[data] max_length of classification must be ", kSpecials + 1,
         " or more, got ", options.max_length, '.');
  }
  const LengthRule rule{options.max_length, options.overlong, kSpecials};
  LabelledCorpus corpus;
  std::vector<std::string> labels;
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() != CorpusSpec::Kind::kLabelled) {
      fail(ErrorKind::kConfig,
           "[data] classification needs a tsv, csv or jsonl with a label_column, got ", spec.str(),
           '.');
    }
    corpus.counts.add(encode_corpus(spec, tokenizer, nullptr, rule, [&](const EncodedPair& pair) {
      const std::string& label = pair.text.target;
      if (!label_names.empty()) class_number(label_names, label, pair.text.place);
      corpus.tokens.push_back(pair.source);
      labels.push_back(label);
    }));
  }
  const std::string where = specs.front().str();
  corpus.label_names = label_names.empty() ? class_names_of(labels, where) : label_names;
  for (const std::string& label : labels) {
    corpus.labels.push_back(class_number(corpus.label_names, label, where));
  }
  return corpus;
}

LabelledBatches::LabelledBatches(const LabelledCorpus& corpus, const BatchOptions& options,
                                 DataPosition start)
    : corpus_(&corpus),
      walk_(
          [&corpus, options](int64_t epoch) {
            RowLengths lengths;
            for (int64_t i = 0; i < corpus.size(); ++i) {
              lengths.source.push_back(corpus.tokens.length(i) + kSpecials);
            }
            lengths.target = lengths.source;
            return EpochPlan(lengths, options, epoch);
          },
          start) {}

LabelledBatch LabelledBatches::next() {
  const auto texts = walk_.next();
  LabelledBatch batch;
  batch.rows = static_cast<int64_t>(texts.size());
  batch.indices.assign(texts.begin(), texts.end());
  int64_t width = 0;
  for (const int64_t text : texts) {
    const int64_t length = corpus_->tokens.length(text) + kSpecials;
    width = std::max(width, length);
    batch.tokens += length;
  }
  batch.ids = Tensor::full({batch.rows, width}, kPadId, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  batch.labels = Tensor::empty({batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t text = texts[static_cast<size_t>(row)];
    const auto tokens = corpus_->tokens[text];
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    *at++ = kBosId;
    at = std::copy(tokens.begin(), tokens.end(), at);
    *at = kEosId;
    batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(tokens.size()) + kSpecials;
    batch.labels.data<int32_t>()[row] = corpus_->labels[static_cast<size_t>(text)];
  }
  return batch;
}

}  // namespace tapestry
