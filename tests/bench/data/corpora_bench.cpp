// What it costs to start a training on many pairs of sentences:
//   corpora_bench SOURCE TARGET FOLDER PAIRS [THREADS]
// trains a tokenizer, encodes the pairs, takes the first batch and one from the middle of an epoch.
// What it made stays in FOLDER: the second call is a second start.
#include <cstdio>
#include <fstream>
#include <string>

#include "core/base/clock.h"
#include "core/cpu/parallel.h"
#include "data/batches/batching.h"
#include "tests/bench/data/processor_seconds.h"

namespace tapestry {
namespace {

double megabytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  return 0;
}

template <class F>
auto timed(const char* what, F f) {
  const double start = steady_seconds(), processor = processor_seconds();
  auto result = f();
  std::printf("%-24s %8.2f s %8.2f s of processors   RssAnon %6.0f MB  VmHWM %6.0f MB\n", what,
              steady_seconds() - start, processor_seconds() - processor, megabytes("RssAnon"),
              megabytes("VmHWM"));
  std::fflush(stdout);
  return result;
}

int run(int argc, char** argv) {
  CorpusSpec spec;
  spec.source = argv[1];
  spec.target = argv[2];
  spec.limit = std::stoll(argv[4]);
  if (argc > 5) set_num_threads(std::stoi(argv[5]));
  LoadContext context{.cache = argv[3], .cache_is_shared = true};
  context.warn = [](const std::string& what) { std::printf("warning: %s\n", what.c_str()); };
  const TokenizerPair tokenizers =
      timed("tokenizer", [&] { return train_tokenizers({}, {spec}, 1, context); });
  const ParallelCorpus corpus =
      timed("pairs", [&] { return load_parallel({spec}, tokenizers, {}, context); });
  TranslationBatches batches = timed("plan, first batch", [&] {
    TranslationBatches walk(corpus, {});
    walk.next();
    return walk;
  });
  const int64_t in_epoch = timed("batches of an epoch", [&] { return batches.batches_in_epoch(); });
  timed("resume in the middle", [&] {
    return TranslationBatches(corpus, BatchOptions{}, {0, in_epoch / 2}).next().rows;
  });
  std::printf("%s; %lld batches%s\n", corpus.counts.summary().c_str(),
              static_cast<long long>(in_epoch), corpus.from_cache ? " (cached)" : "");
  return 0;
}

}  // namespace
}  // namespace tapestry

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s SOURCE TARGET FOLDER PAIRS [THREADS]\n", argv[0]);
    return 2;
  }
  return tapestry::run(argc, argv);
}
