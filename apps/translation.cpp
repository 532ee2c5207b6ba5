#include "apps/translation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/metrics.h"

namespace tapestry {
namespace {

Vocabulary vocabulary_of(const TokenizerPair& tokenizers) {
  return {.source_size = tokenizers.source->vocab_size(),
          .target_size = tokenizers.target->vocab_size(),
          .shared = tokenizers.shared(),
          .pad_id = kPadId};
}

EncoderDecoder::Batch on_device(const TranslationBatch& batch, Device device) {
  return {batch.source.to(device), batch.source_lengths.to(device), batch.target_in.to(device),
          batch.target_out.to(device)};
}

std::string text_of(const TextLists& lists, int64_t i) { return std::string(lists[i]); }

}  // namespace

TranslationModel::TranslationModel(const Config& config, TokenizerPair tokenizers)
    : config_(config),
      tokenizers_(std::move(tokenizers)),
      store_(config.seed, config.dtype, parse_device(config.device)),
      model_(config.model, vocabulary_of(tokenizers_), store_.root()) {}

std::unique_ptr<TranslationModel> TranslationModel::load(const std::string& path,
                                                         const std::string& device) {
  const std::string folder = resolve_checkpoint(path);
  const CheckpointFiles files = read_checkpoint(folder);
  for (const char* name : {"config.json", "model.safetensors"}) {
    if (!files.contains(name))
      fail(ErrorKind::kData, "[checkpoint] ", folder, " has no ", name, '.');
  }
  Config config = load_checkpoint_config(files.at("config.json"), folder + "/config.json");
  config.device = device;
  std::map<std::string, std::string> tokenizers;
  for (const std::string& name : kTokenizerFileNames) {
    if (files.contains(name)) tokenizers[name] = files.at(name);
  }
  auto model = std::make_unique<TranslationModel>(config, load_tokenizers(tokenizers));
  const std::string file = folder + "/model.safetensors";
  load_parameters(model->store_, parse_safetensors(files.at("model.safetensors"), file), file);
  return model;
}

std::vector<std::vector<Hypothesis>> TranslationModel::translate(
    const std::vector<std::vector<int32_t>>& sources, const SearchOptions& options,
    int64_t batch_sentences, const std::function<void(int64_t)>& progress) const {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
  const SpecialIds ids{kPadId, kUnkId, kBosId, kEosId};
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (size_t begin = 0; begin < order.size(); begin += batch_sentences) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch_sentences));
    const auto rows = static_cast<int64_t>(end - begin);
    const int64_t length = static_cast<int64_t>(sources[order[begin]].size()) + 1;  // eos
    Tensor source = Tensor::full({rows, length}, kPadId, DType::kInt32);
    Tensor lengths = Tensor::empty({rows}, DType::kInt32);
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<int32_t>& tokens = sources[order[begin + row]];
      int32_t* const target = source.data<int32_t>() + row * length;
      std::copy(tokens.begin(), tokens.end(), target);
      target[tokens.size()] = kEosId;
      lengths.data<int32_t>()[row] = static_cast<int32_t>(tokens.size()) + 1;
    }
    const Device device = store_.device();
    auto batch = tapestry::translate(model_, source.to(device), lengths.to(device), ids, options);
    for (size_t row = 0; row < batch.size(); ++row) {
      results[order[begin + row]] = std::move(batch[row]);
    }
    if (progress) progress(static_cast<int64_t>(end));
  }
  return results;
}

std::vector<TranslationModel::Score> TranslationModel::score(const ParallelCorpus& pairs,
                                                             int64_t batch_sentences) const {
  std::vector<Score> scores(static_cast<size_t>(pairs.size()));
  BatchOptions in_order;
  in_order.batch_type = "sentences";
  in_order.batch_size = batch_sentences;
  in_order.shuffle = false;
  const EpochPlan plan(pairs, in_order, 0);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const TranslationBatch batch = make_translation_batch(pairs, plan.batch(i));
    const EncoderDecoder::Batch inputs = on_device(batch, store_.device());
    const Var memory = model_.encode(inputs.source, inputs.source_lengths);
    const Var hidden = model_.decode(inputs.target_in, memory, inputs.source_lengths);
    const Tensor log_probability =
        log_softmax(model_.logits(hidden)).value().to(Device{}).to(DType::kFloat64);
    const int64_t length = batch.target_out.shape()[1], vocab = log_probability.shape()[2];
    for (int64_t row = 0; row < batch.sentences; ++row) {
      Score& score = scores[static_cast<size_t>(batch.indices[row])];
      score.tokens = batch.target_lengths.data<int32_t>()[row];
      for (int64_t t = 0; t < score.tokens; ++t) {
        const int64_t cell = row * length + t;
        score.log_probability +=
            log_probability.data<double>()[cell * vocab + batch.target_out.data<int32_t>()[cell]];
      }
    }
  }
  return scores;
}

TranslationTask::TranslationTask(const Config& config, TokenizerPair tokenizers, DataPosition start,
                                 const std::function<void(const std::string&)>& report)
    : config_(config) {
  if (!tokenizers.source) {
    tokenizers = train_tokenizers(config.tokenizer, config.data.train, config.seed);
    report(concat("tokenizer: ", config.tokenizer.algorithm, ", ", tokenizers.source->vocab_size(),
                  " pieces", tokenizers.shared() ? ", shared" : " each side"));
  }
  train_ = load_parallel(config.data.train, tokenizers, config.data.corpus);
  report("training data: " + train_.counts.summary());
  if (!config.data.valid.empty()) {
    // A validation set keeps every line: a figure over part of it compares with nothing.
    CorpusOptions whole = config.data.corpus;
    whole.overlong = "truncate";
    whole.keep_text = true;
    valid_ = load_parallel(config.data.valid, tokenizers, whole);
    report("validation data: " + valid_.counts.summary());
  }
  BatchOptions batch = config.batch;
  batch.seed = config.seed;
  report("batches: " + padding_of(train_, EpochPlan(train_, batch, 0)).summary());
  model_ = std::make_unique<TranslationModel>(config, std::move(tokenizers));
  loader_ = std::make_unique<TranslationLoader>(train_, batch, start);
}

UpdateSize TranslationTask::next_update(int64_t micro_batches) {
  UpdateSize size{.micro_batches = micro_batches};
  update_.clear();
  for (int64_t i = 0; i < micro_batches; ++i) {
    update_.push_back(loader_->next().batch);
    size.source_tokens += update_.back().source_tokens;
    size.target_tokens += update_.back().target_tokens;
  }
  return size;
}

CrossEntropy TranslationTask::loss(int64_t i, const CrossEntropyOptions& options) {
  return model_->model().loss(on_device(update_.at(static_cast<size_t>(i)), parameters().device()),
                              options);
}

std::map<std::string, double> TranslationTask::validate(const CrossEntropyOptions& options) {
  if (valid_.size() == 0) return {};
  double loss = 0, nll = 0;
  int64_t tokens = 0;
  BatchOptions in_order = config_.batch;
  in_order.shuffle = false;
  const EpochPlan plan(valid_, in_order, 0);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    const TranslationBatch batch = make_translation_batch(valid_, plan.batch(i));
    const CrossEntropy result =
        model_->model().loss(on_device(batch, parameters().device()), options);
    loss += result.loss_sum;
    nll += result.nll_sum;
    tokens += result.tokens;
  }
  std::vector<std::vector<int32_t>> sources;
  std::vector<std::string> references, hypotheses;
  for (int64_t i = 0; i < valid_.size(); ++i) {
    sources.emplace_back(valid_.source[i].begin(), valid_.source[i].end());
    references.push_back(text_of(valid_.target_text, i));
  }
  SearchOptions search = config_.generation;
  search.num_beams = config_.evaluation.num_beams;
  for (const auto& best : model_->translate(sources, search, config_.training.eval_batch_size)) {
    hypotheses.push_back(model_->tokenizers().target->decode(best.at(0).tokens));
  }
  const EvaluationOptions& evaluation = config_.evaluation;
  const BleuScore bleu =
      corpus_bleu(hypotheses, references,
                  {.tokenize = evaluation.bleu_tokenize, .lowercase = evaluation.lowercase});
  const ChrfScore chrf =
      corpus_chrf(hypotheses, references, ChrfOptions{.lowercase = evaluation.lowercase});
  return {{"loss", loss / tokens},
          {"nll", nll / tokens},
          {"ppl", std::exp(nll / tokens)},
          {"bleu", bleu.score},
          {"chrf", chrf.score}};
}

std::map<std::string, std::string> TranslationTask::files() const {
  std::map<std::string, std::string> files = model_->tokenizers().files();
  files["config.json"] = to_json(config_);
  return files;
}

}  // namespace tapestry
