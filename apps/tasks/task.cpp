#include "apps/tasks/task.h"

#include <cmath>

namespace tapestry {

void load_parameters(const ParamStore& store, const NamedTensors& tensors,
                     const std::string& file) {
  std::map<std::string, Tensor> by_name(tensors.begin(), tensors.end());
  for (const Parameter& parameter : store.parameters()) {
    const auto found = by_name.find(parameter.name);
    if (found == by_name.end()) {
      fail(ErrorKind::kData, "[checkpoint] ", file, " has no ", parameter.name,
           ", the model needs ", parameter.var.shape(), '.');
    }
    if (!(found->second.shape() == parameter.var.shape())) {
      fail(ErrorKind::kData, "[checkpoint] ", parameter.name, " is ", found->second.shape(), " in ",
           file, ", the model needs ", parameter.var.shape(), '.');
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (!store.contains(name)) {
      fail(ErrorKind::kData, "[checkpoint] ", file, " has ", name,
           ", the model has no such parameter.");
    }
    const Tensor& target = store.at(name).var.value();
    target.copy_from(tensor.to(target.dtype()).to(target.device()));
  }
}

std::string take_over_parameters(const ParamStore& store, const NamedTensors& tensors,
                                 const std::string& file) {
  int64_t taken = 0;
  std::string left, fresh;
  std::map<std::string, Tensor> by_name(tensors.begin(), tensors.end());
  for (const Parameter& parameter : store.parameters()) {
    const auto found = by_name.find(parameter.name);
    if (found == by_name.end()) {
      fresh += ' ' + parameter.name;
      continue;
    }
    const Tensor& target = parameter.var.value();
    if (!(found->second.shape() == target.shape())) {
      fail(ErrorKind::kData, "[init_from] ", parameter.name, " is ", found->second.shape(), " in ",
           file, ", the model needs ", target.shape(), '.');
    }
    target.copy_from(found->second.to(target.dtype()).to(target.device()));
    ++taken;
  }
  for (const auto& [name, tensor] : tensors) {
    if (!store.contains(name)) left += ' ' + name;
  }
  if (taken == 0) {
    fail(ErrorKind::kData, "[init_from] no parameter of ", file, " has a name of this model's.");
  }
  return concat(taken, " parameters from ", file, fresh.empty() ? "" : "; fresh:", fresh,
                left.empty() ? "" : "; not used:", left);
}

bool matches(const std::string& name, const std::string& pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return name == pattern;
  if (name.compare(0, star, pattern, 0, star) != 0) return false;
  const std::string rest = pattern.substr(star + 1);
  for (size_t from = star; from <= name.size(); ++from) {
    if (matches(name.substr(from), rest)) return true;
  }
  return false;
}

TokenizerPair prepare_tokenizers(const Config& config, TokenizerPair given, const Report& report) {
  if (given.source) return given;
  TokenizerPair tokenizers = train_tokenizers(config.tokenizer, config.data.train, config.seed);
  const std::string kind =
      config.tokenizer.type == "char" ? "characters" : config.tokenizer.algorithm;
  report(concat("tokenizer: ", config.tokenizer.path.empty() ? kind : config.tokenizer.path, ", ",
                tokenizers.source->vocab_size(), " pieces",
                tokenizers.shared() ? "" : " on the source side"));
  return tokenizers;
}

std::map<std::string, std::string> tokenizer_files(const CheckpointFiles& files) {
  std::map<std::string, std::string> tokenizers;
  for (const std::string& name : kTokenizerFileNames) {
    if (files.contains(name)) tokenizers[name] = files.at(name);
  }
  return tokenizers;
}

void LossSums::add(const CrossEntropy& result) {
  const Tensor sums = result.sums.to(Device{});
  loss_ += sums.data<double>()[0];
  nll_ += sums.data<double>()[1];
  correct_ += sums.data<double>()[2];
  tokens_ += result.tokens;
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
  dispatch_floating(Cpu{}, log_probability.dtype(), [&](auto type) {
    const auto* row = log_probability.data<decltype(type)>();
    for (const int32_t target : targets.to_vector<int32_t>()) {
      values.push_back(static_cast<double>(row[target]));
      row += vocab;
    }
  });
  return values;
}

bool larger_is_better(const std::string& metric) {
  return metric == "bleu" || metric == "chrf" || metric == "accuracy";
}

}  // namespace tapestry
