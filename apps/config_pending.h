// Stand-ins for option structs of data/ and optim/ until those land; same names and members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry::pending {

struct TokenizerOptions {
  std::string type = "sentencepiece";
  std::string algorithm = "bpe";
  int64_t vocab_size = 8000;
  bool share = true;
  double character_coverage = 1.0;
  bool byte_fallback = false;
  std::string normalization = "nmt_nfkc";
  int64_t max_sentences = 1000000;
};

struct CorpusSpec {
  std::string source, target, tsv;
  int64_t source_column = 1;
  int64_t target_column = 2;
  std::string ding;
  std::string direction = "de-en";
  std::string text;
  std::string split = "all";
  int64_t limit = 0;
};

struct CorpusOptions {
  int64_t max_length = 128;
  std::string overlong = "drop";
};

struct BatchOptions {
  std::string batch_type = "tokens";
  int64_t batch_size = 4096;
};

struct OptimizerOptions {
  std::string name = "adam";
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
};

struct ScheduleOptions {
  double learning_rate = 5e-4;
  std::string type = "constant";
  int64_t warmup_steps = 0;
  double min_learning_rate = 0;
};

}  // namespace tapestry::pending
