// Training and encoding with the tokenizers that learn pieces, on one thread:
//   tokenizers_bench TEXT VOCAB_SIZE [--benchmark_filter=REGEX] [--benchmark_repetitions=N] ...
// A run trains on all lines of the text, or encodes all of them; sentences/s is of one core.
// "whole" is SentencePiece's library by itself, without our cache of words; first the ids of every
// line are compared, and a difference is an error.
#include <benchmark/benchmark.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "data/files/text.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {
namespace {

struct Kind {
  const char* name;
  const char* type;
  const char* algorithm;
};
constexpr Kind kKinds[] = {{"bpe", "bpe", "bpe"},
                           {"sentencepiece_bpe", "sentencepiece", "bpe"},
                           {"sentencepiece_unigram", "sentencepiece", "unigram"}};

std::shared_ptr<const Tokenizer> train(const Kind& kind, int64_t vocab_size,
                                       const std::vector<std::string>& lines) {
  TokenizerOptions options;
  options.type = kind.type;
  options.algorithm = kind.algorithm;
  options.vocab_size = vocab_size;
  return train_tokenizer(
      options,
      [&lines, next = size_t{0}](std::string& line) mutable {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
}

void count(benchmark::State& state, const std::vector<std::string>& lines) {
  state.counters["sentences"] = benchmark::Counter(static_cast<double>(lines.size()),
                                                   benchmark::Counter::kIsIterationInvariantRate);
}

void run_training(benchmark::State& state, const Kind& kind, int64_t vocab_size,
                  const std::vector<std::string>& lines) {
  for (auto _ : state) benchmark::DoNotOptimize(train(kind, vocab_size, lines));
  count(state, lines);
}

void run_encoding(benchmark::State& state, const Kind& kind, int64_t vocab_size,
                  const std::vector<std::string>& lines) {
  const auto tokenizer = train(kind, vocab_size, lines);
  size_t pieces = 0;
  for (auto _ : state) {
    pieces = 0;
    for (const std::string& line : lines) pieces += tokenizer->encode(line).size();
  }
  count(state, lines);
  state.counters["pieces"] = static_cast<double>(pieces);
}

void run_whole(benchmark::State& state, const Kind& kind, int64_t vocab_size,
               const std::vector<std::string>& lines) {
  sentencepiece::SentencePieceProcessor processor;
  const auto tokenizer = train(kind, vocab_size, lines);
  const auto status = processor.LoadFromSerializedProto(tokenizer->serialized());
  if (!status.ok()) return state.SkipWithError("a tokenizer of our own");
  size_t pieces = 0, line = 0;
  std::vector<int> ids;
  for (const std::string& text : lines) {
    ++line;
    const std::vector<int32_t> ours = tokenizer->encode(text);
    if (processor.Encode(text, &ids).ok() &&
        std::equal(ids.begin(), ids.end(), ours.begin(), ours.end()))
      continue;
    return state.SkipWithError(("line " + std::to_string(line) + " has other ids").c_str());
  }
  for (auto _ : state) {
    pieces = 0;
    for (const std::string& text : lines) {
      benchmark::DoNotOptimize(processor.Encode(text, &ids).ok());
      pieces += ids.size();
    }
  }
  count(state, lines);
  state.counters["pieces"] = static_cast<double>(pieces);
}

}  // namespace
}  // namespace tapestry

int main(int argc, char** argv) {
  using namespace tapestry;
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s TEXT VOCAB_SIZE [--benchmark_...]\n", argv[0]);
    return 2;
  }
  LineReader reader(argv[1]);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  const int64_t vocab_size = std::stoll(argv[2]);
  for (const auto& [pass, run] : {std::pair{std::string("train/"), &run_training},
                                  std::pair{std::string("encode/"), &run_encoding},
                                  std::pair{std::string("whole/"), &run_whole}}) {
    for (const Kind& kind : kKinds) {
      if (run == &run_whole && std::string(kind.type) != "sentencepiece") continue;
      benchmark::RegisterBenchmark((pass + kind.name).c_str(), run, kind, vocab_size, lines)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return benchmark::RunSpecifiedBenchmarks() > 0 ? 0 : 1;  // a filter without a row is a mistake
}
