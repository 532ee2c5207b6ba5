#include "apps/tasks/task.h"

#include <cmath>

#include <fmt/format.h>

#include "apps/checkpoint/bytes.h"
#include "core/allocator.h"
#include "data/scores/metrics.h"

namespace tapestry {

const char* name_of(HeldOut set) { return set == HeldOut::kTest ? "test" : "validation"; }

const std::vector<CorpusSpec>& corpora_of(const Config& config, HeldOut set) {
  return set == HeldOut::kTest ? config.data.test : config.data.valid;
}

void report_checksum(const Report& report, std::initializer_list<std::span<const std::byte>> of) {
  if (!report.loaded) return;
  Checksum checksum;
  for (const auto& bytes : of) checksum.add(bytes.data(), bytes.size());
  report.loaded(checksum.text());
}

LoadContext context_with_cache(const Config& config, const Report& report,
                               const std::string& file) {
  LoadContext context{.warn = report.warn ? report.warn : report.say};
  if (report.loaded) {
    context.loaded = [tell = report.loaded](int64_t checksum) {
      tell(fmt::format("{:016x}", static_cast<uint64_t>(checksum)));
    };
  }
  const DataOptions& data = config.data;
  if (data.cache && !data.cache_dir.empty()) {
    context.cache = data.cache_dir;
    context.cache_is_shared = true;
  } else if (data.cache && !config.output_dir.empty()) {
    context.cache = concat(config.output_dir, '/', file);
  }
  return context;
}

TokenizerPair prepare_tokenizers(const Config& config, TokenizerPair given, const Report& report) {
  if (given.source) return given;
  TokenizerPair tokenizers = train_tokenizers(config.tokenizer, config.data.train, config.seed,
                                              context_with_cache(config, report, "tokenizer.bin"));
  const TokenizerOptions& options = config.tokenizer;
  const std::string kind = options.type == "sentencepiece" ? options.algorithm
                           : options.type == "char"        ? "characters"
                                                           : options.type;
  report(concat("tokenizer: ", options.path.empty() ? kind : options.path, ", ",
                tokenizers.source->vocab_size(), " pieces",
                tokenizers.shared() ? "" : " on the source side"));
  release_free_memory();  // what learning took, before the corpora are encoded
  return tokenizers;
}

LossSums::Part LossSums::part_of(const CrossEntropy& result) {
  const Tensor sums = result.sums.to(Device{});
  const auto* const values = sums.data<double>();
  return {values[0], values[1], values[2], result.tokens};
}

void LossSums::add(const Part& part) {
  loss_ += part.loss;
  nll_ += part.nll;
  correct_ += part.correct;
  tokens_ += part.tokens;
}

std::map<std::string, double> LossSums::metrics() const {
  const auto count = static_cast<double>(tokens_);
  return {{"loss", loss_ / count},
          {"nll", nll_ / count},
          {"ppl", std::exp(nll_ / count)},
          {"accuracy", 100 * correct_ / count}};
}

std::vector<double> target_log_probabilities(const Var& logits, const Tensor& targets) {
  const Tensor log_probability = log_softmax(logits).value().to(Device{}).to(wider(logits.dtype()));
  const int64_t vocab = logits.shape()[-1];
  std::vector<double> values;
  dispatch_wide(log_probability.dtype(), [&](auto type) {
    const auto* row = log_probability.data<decltype(type)>();
    for (const int32_t target : targets.to_vector<int32_t>()) {
      values.push_back(target == kNoTarget ? 0.0 : static_cast<double>(row[target]));
      row += vocab;
    }
  });
  return values;
}

bool larger_is_better(const std::string& metric) {
  if (const MetricKind* kind = find_metric(metric)) return kind->larger_is_better;
  return metric.starts_with("rouge") || metric == "accuracy" || metric == "exact_match" ||
         metric == "f1";
}

}  // namespace tapestry
