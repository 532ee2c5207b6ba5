#include <cstdio>
#include <filesystem>
#include <iostream>

#include "apps/commands.h"
#include "apps/translation.h"

namespace tapestry {
namespace {

void print_parameters(const ParamStore& store) {
  for (const Parameter& parameter : store.parameters()) {
    std::printf("%-56s %-16s %12lld\n", parameter.name.c_str(), parameter.var.shape().str().c_str(),
                static_cast<long long>(parameter.var.value().numel()));
  }
  const double bytes = static_cast<double>(store.elements() * size_of(store.dtype()));
  std::printf(
      "%lld parameters in %zu tensors, %s: %.1f MB; training needs %.1f MB more for gradients "
      "and Adam's state\n",
      static_cast<long long>(store.elements()), store.parameters().size(), name_of(store.dtype()),
      bytes / 1e6, 3 * bytes / 1e6);
}

}  // namespace

int run_inspect(const InspectArguments& arguments) {
  if (std::filesystem::is_regular_file(arguments.path)) {
    // The vocabulary is not known before the tokenizer is trained: the size asked for stands in.
    const Config config = load_config(arguments.path, arguments.overrides);
    ParamStore store(config.seed, config.dtype);
    const EncoderDecoder model(config.model,
                               {.source_size = config.tokenizer.vocab_size,
                                .target_size = config.tokenizer.vocab_size,
                                .shared = config.tokenizer.share},
                               store.root());
    std::cout << to_yaml(config) << '\n' << std::flush;
    print_parameters(store);
    return 0;
  }
  const std::string folder = resolve_checkpoint(arguments.path);
  const auto model = TranslationModel::load(folder);
  std::cout << "checkpoint " << std::filesystem::canonical(folder).string() << "\n\n"
            << to_yaml(model->config()) << '\n';
  const TokenizerPair& tokenizers = model->tokenizers();
  std::cout << "tokenizer: " << tokenizers.source->vocab_size() << " pieces"
            << (tokenizers.shared() ? ", shared" : " on the source side, ");
  if (!tokenizers.shared()) std::cout << tokenizers.target->vocab_size() << " on the target side";
  std::cout << "; the first:";
  for (int32_t id = 0; id < std::min<int64_t>(12, tokenizers.source->vocab_size()); ++id) {
    std::cout << ' ' << tokenizers.source->piece(id);
  }
  std::cout << "\n\n" << std::flush;
  print_parameters(model->parameters());
  return 0;
}

}  // namespace tapestry
