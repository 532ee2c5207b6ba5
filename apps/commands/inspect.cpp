#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/parameters.h"
#include "apps/commands/commands.h"
#include "apps/tasks/task.h"

namespace tapestry {
namespace {

// What training keeps beside the parameters and the activations.
void print_training_memory(const ParamStore& store, const Config& config) {
  int64_t trained = 0;
  for (const Parameter& parameter : store.parameters()) {
    // Frozen parameters have neither gradients nor an optimizer's state.
    if (parameter.trained && learns(config, parameter.name))
      trained += parameter.var.value().numel();
  }
  const OptimizerType type = config.optimizer.type;
  const int64_t states = states_of(type), averages = config.training.ema_decay > 0 ? 1 : 0;
  const double bytes = static_cast<double>(trained * size_of(store.dtype()));
  fmt::print("training needs {:.1f} MB more: gradients{}{}\n",
             static_cast<double>(1 + states + averages) * bytes / 1e6,
             states == 0 ? fmt::format("; {} keeps nothing", name_of(type))
                         : fmt::format(", {} state{} of {} for each parameter", states,
                                       states == 1 ? "" : "s", name_of(type)),
             averages == 0 ? "" : ", averages");
}

void print_parameters(const ParamStore& store) {
  for (const Parameter& parameter : store.parameters()) {
    fmt::print("{:<56} {:<16} {:>12}\n", parameter.name, parameter.var.shape().str(),
               parameter.var.value().numel());
  }
  const double bytes = static_cast<double>(store.elements() * size_of(store.dtype()));
  fmt::print("{} parameters in {} tensors, {}: {:.1f} MB\n", store.elements(),
             store.parameters().size(), name_of(store.dtype()), bytes / 1e6);
}

// A placeholder for a tokenizer that is not trained yet: it only has a size.
class UntrainedTokenizer : public Tokenizer {
 public:
  explicit UntrainedTokenizer(int64_t size) : size_(size) {}
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<int32_t>&) const override { return ""; }
  int64_t vocab_size() const override { return size_; }
  std::string piece(int32_t) const override { return ""; }
  const std::string& serialized() const override { return nothing_; }

 private:
  int64_t size_;
  std::string nothing_;
};

// Placeholders for what the data will tell: classes and vocabularies of the requested sizes.
TokenizerPair stand_ins(Config& config) {
  const auto note = [](const std::string& text) { std::cerr << "note: " << text << '\n'; };
  if (config.task->has_classes && config.data.labels.empty()) {
    config.data.labels = {"0", "1"};
    note("the classes come from the data; two stand in");
  }
  if (!reads_text(config)) return {};
  const TokenizerOptions& options = config.tokenizer;
  if (!options.path.empty()) {
    const std::shared_ptr<const Tokenizer> read = read_tokenizer(options);
    return {read, read};
  }
  if (options.type == "char") {
    note(concat("the vocabulary is the characters of the data; tokenizer.vocab_size, ",
                options.vocab_size, ", stands in"));
  }
  const auto one = std::make_shared<UntrainedTokenizer>(options.vocab_size);
  const auto other = std::make_shared<UntrainedTokenizer>(options.vocab_size);
  return {one, options.share ? one : other};
}

// The layers that keep keys and values while they decode.
int64_t cached_layers(const Config& config) {
  if (config.model_type == ModelType::kEncoderDecoder) return config.model.decoder_layers;
  if (config.model_type == ModelType::kDecoder) return config.model.num_hidden_layers;
  return 0;
}

void print_cache(const Config& config) {
  const int64_t layers = cached_layers(config);
  if (layers == 0) return;
  const int64_t bytes = cache_bytes_per_token(config.model, config.dtype);
  fmt::print("decoding keeps {} bytes for each token: {} in each of {} layers\n", layers * bytes,
             bytes, layers);
}

void print_shapes(const Config& config, const TokenizerPair& tokenizers) {
  const auto shapes = task_of(config).shapes;
  if (shapes == nullptr) {
    fail(ErrorKind::kConfig, "[inspect] --shapes knows no batch for task ", config.task->name, '.');
  }
  const bool both_sides = config.model_type == ModelType::kEncoderDecoder ||
                          config.model_type == ModelType::kRnnAttention;
  const char* const letters = both_sides             ? "B sentences, S and T tokens of a side"
                              : reads_images(config) ? "B images"
                                                     : "B texts of T tokens";
  fmt::print("\nshapes of a batch of {}:\n{}", letters, shapes(config, tokenizers));
}

void print_model(Config config, const TokenizerPair& tokenizers, bool shapes) {
  config.device = "cpu";
  const auto store = task_of(config).parameters(config, tokenizers);
  print_parameters(*store);
  print_training_memory(*store, config);
  print_cache(config);
  if (shapes) print_shapes(config, tokenizers);
}

void print_tokenizers(const TokenizerPair& tokenizers) {
  std::cout << "tokenizer: " << tokenizers.source->vocab_size() << " pieces"
            << (tokenizers.shared() ? ", shared" : " on the source side, ");
  if (!tokenizers.shared()) std::cout << tokenizers.target->vocab_size() << " on the target side";
  std::cout << "; the first:";
  for (int32_t id = 0; id < std::min<int64_t>(12, tokenizers.source->vocab_size()); ++id) {
    std::cout << ' ' << tokenizers.source->piece(id);
  }
  std::cout << "\n\n";
}

}  // namespace

int run_inspect(const InspectArguments& arguments) {
  if (std::filesystem::is_regular_file(arguments.path)) {
    Config config = load_config(arguments.path, arguments.overrides, /*check_files=*/false);
    std::cout << to_yaml(config) << '\n' << std::flush;
    print_model(config, stand_ins(config), arguments.shapes);
    return 0;
  }
  const ModelFiles files = read_model_files(arguments.path);
  std::cout << "checkpoint " << std::filesystem::canonical(files.folder).string() << "\n\n"
            << to_yaml(files.config) << '\n';
  if (reads_text(files.config)) print_tokenizers(files.tokenizers);
  std::cout << std::flush;
  print_model(files.config, files.tokenizers, arguments.shapes);
  return 0;
}

}  // namespace tapestry
