#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/parameters.h"
#include "apps/commands/command.h"
#include "apps/run/pretrained.h"
#include "apps/run/updates.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

struct InspectArguments {
  std::string path = {};  ///< a checkpoint, a run folder or a config
  std::vector<std::string> overrides = {};
  bool shapes = false;  ///< also prints the shapes in the model
};

// The type of the parameters while they are trained. A GPU that the config names need not be here.
DType trained_type(const Config& config) {
  const bool cuda = config.device.starts_with("cuda");
  return numbers_of(config, ModelUse::kTraining,
                    cuda ? Device{Device::Kind::kCuda} : parse_device(config.device))
      .dtype;
}

// Prints the memory of training besides parameters and activations, as the optimizer and the
// averages allocate it.
void print_training_memory(const ParamStore& store, const Config& config) {
  int64_t trained = 0, matrices = 0;
  for (const Parameter& parameter : store.parameters()) {
    // Frozen parameters have neither gradients nor an optimizer's state.
    if (parameter.trained && learns(config, parameter.name)) {
      trained += parameter.var.value().numel();
      if (is_orthogonalized(config, parameter)) matrices += parameter.var.value().numel();
    }
  }
  const DType narrow = trained_type(config), wide = wider(narrow);
  const auto megabytes = [&](int64_t numbers, DType type) {
    return static_cast<double>(numbers * size_of(type)) / 1e6;
  };
  const OptimizerType type = elementwise_type(config.optimizer.type);
  const int64_t states = states_of(type);
  double sum = megabytes(trained, narrow);
  std::string parts = fmt::format("gradients {:.1f}", sum);
  const auto add_megabytes = [&](const std::string& what, double more) {
    parts += fmt::format(", {} {:.1f}", what, more);
    sum += more;
  };
  const auto add = [&](const std::string& what, int64_t numbers, DType type) {
    add_megabytes(what, megabytes(numbers, type));
  };
  const auto add_states = [&](OptimizerType rule, int64_t elements) {
    const int64_t of_each = states_of(rule);
    if (of_each == 0) return;
    const int64_t bytes = state_bytes(config.optimizer, of_each * elements, narrow);
    add_megabytes(fmt::format("{} state{} of {}", of_each, of_each == 1 ? "" : "s", name_of(rule)),
                  static_cast<double>(bytes) / 1e6);
  };
  if (matrices > 0) add_states(config.optimizer.type, matrices);
  add_states(type, trained - matrices);
  if (narrow != wide) add(fmt::format("{} masters", name_of(wide)), trained, wide);
  if (config.training.ema_decay > 0) add("averages", trained, wide);
  if (states == 0) parts += fmt::format("; {} keeps nothing", name_of(type));
  fmt::print("training needs {:.1f} MB more: {}\n", sum, parts);
}

void print_parameters(const ParamStore& store, const Config& config) {
  const DType type = trained_type(config);
  for (const Parameter& parameter : store.parameters()) {
    fmt::print("{:<56} {:<16} {:>12}\n", parameter.name, parameter.var.shape().str(),
               parameter.var.value().numel());
  }
  const double bytes = static_cast<double>(store.elements() * size_of(type));
  fmt::print("{}, {}: {:.1f} MB\n", learning_summary(store, config), name_of(type), bytes / 1e6);
}

// The layers that keep keys and values while they decode.
int64_t cached_layers(const Config& config) {
  const ModelTraits& traits = traits_of(config.model_type);
  if (!traits.has_cache()) return 0;
  return traits.reads_two_texts ? config.model.decoder_layers : config.model.num_hidden_layers;
}

void print_cache(const Config& config) {
  const int64_t layers = cached_layers(config);
  if (layers == 0) return;
  const int64_t bytes = cache_bytes_per_token(config.model, config.dtype);
  fmt::print("decoding keeps {} bytes for each token: {} in each of {} layers\n", layers * bytes,
             bytes, layers);
}

void print_shapes(const Config& config, const TokenizerPair& tokenizers) {
  const auto shapes = model_of(config).shapes;
  if (shapes == nullptr) {
    fail(ErrorKind::kConfig, "[inspect] --shapes knows no batch for task ", config.task->name, '.');
  }
  const bool both_sides = traits_of(config.model_type).reads_two_texts;
  const char* const letters = both_sides ? "B sentences, S and T tokens of a side"
                              : examples_of(config).of_images() ? "B images"
                                                                : "B texts of T tokens";
  fmt::print("\nshapes of a batch of {}:\n{}", letters, shapes(config, tokenizers));
}

void print_model(Config config, const TokenizerPair& tokenizers, bool shapes) {
  const Config trained = config;
  config.device = "cpu";
  {
    const ShapesOnly no_memory;  // the model may be larger than this machine
    const auto store = model_of(config).parameters(config, tokenizers);
    print_parameters(*store, trained);
    print_training_memory(*store, trained);
  }
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

int run_inspect(const InspectArguments& arguments) {
  if (std::filesystem::is_regular_file(arguments.path)) {
    Config config = load_run_config(arguments.path, arguments.overrides, /*check_files=*/false);
    std::cout << to_yaml(config) << '\n' << std::flush;
    const TokenizerPair tokenizers = placeholder_tokenizers(
        config, [](const std::string& text) { std::cerr << "note: " << text << '\n'; });
    print_model(config, tokenizers, arguments.shapes);
    return 0;
  }
  if (!arguments.overrides.empty()) {
    fail(ErrorKind::kConfig, "[inspect] a checkpoint has its config: got '", arguments.overrides[0],
         "'.");
  }
  const ModelFiles files = read_model_files(arguments.path);
  std::cout << "checkpoint " << std::filesystem::canonical(files.folder).string() << "\n\n"
            << to_yaml(files.config) << '\n';
  if (examples_of(files.config).of_text()) print_tokenizers(files.tokenizers);
  std::cout << std::flush;
  print_model(files.config, files.tokenizers, arguments.shapes);
  return 0;
}

void add_inspect(CLI::App& app, InspectArguments& arguments) {
  app.add_option("path", arguments.path, "checkpoint, run folder or config")->required();
  app.add_option("overrides", arguments.overrides, "section.key=value");
  app.add_flag("--shapes", arguments.shapes,
               "the shapes that go through the model, too, from a dry run");
}

}  // namespace

extern const Command kInspect("inspect", "Parameters, shapes, memory and tokenizer", add_inspect,
                              run_inspect);

}  // namespace tapestry
