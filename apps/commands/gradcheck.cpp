#include "autograd/gradcheck.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/run/pretrained.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "core/base/progress.h"
#include "core/base/text.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "nn/gradcheck/models.h"

namespace tapestry {
namespace {

/// Without a config only the operations, layers and tiny models are checked.
struct GradcheckArguments : ConfigArguments {
  std::string filter = {};  ///< only rows whose name contains this
};

/// A row for a config's model, and its differences from the config.
struct ConfigCase {
  GradcheckCase test;
  std::vector<std::string> replaced;
};

// A small model with the same kinds of layers as the config's. Finite differences are wrong across
// the kink of relu, so gelu replaces it here; relu has rows of its own.
ConfigCase config_case(const std::string& path, const std::vector<std::string>& overrides) {
  const Config config = load_run_config(path, overrides, /*check_files=*/false);
  const ModelOptions& model = config.model;
  ModelOptions options = model;
  const int64_t groups =
      model.num_key_value_heads == 0 ? 0 : model.num_attention_heads / model.num_key_value_heads;
  options.num_attention_heads = std::min<int64_t>(options.num_attention_heads, 4);
  if (groups > 0) {
    options.num_key_value_heads = std::max<int64_t>(1, options.num_attention_heads / groups);
  }
  constexpr int64_t kHeadSize = 4;
  if (model.head_size > 0) {
    options.head_size = kHeadSize + 2;
    options.value_head_size =
        model.value_head_size == model.head_size ? options.head_size : kHeadSize;
  } else if (model.value_head_size * model.num_attention_heads == model.hidden_size) {
    options.value_head_size = kHeadSize;
  }
  options.hidden_size = kHeadSize * options.num_attention_heads;
  options.intermediate_size = 2 * options.hidden_size;
  options.encoder_layers = std::min<int64_t>(options.encoder_layers, 2);
  options.decoder_layers = std::min<int64_t>(options.decoder_layers, 2);
  options.num_hidden_layers = std::min<int64_t>(options.num_hidden_layers, 2);
  options.max_position_embeddings = 16;
  if (!kinks_of(options.hidden_act.activation).empty()) {
    options.hidden_act.activation = Activation::kGelu;
  }
  options.patch_size = 2;

  // Uses the config's keys, as far as the small model has them.
  Config small = config;
  small.model = options;
  std::vector<std::string> replaced;
  const auto before = flat_keys(config);
  for (const auto& [key, value] : flat_keys(small)) {
    const auto found = before.find(key);
    if (found != before.end() && found->second != value) {
      replaced.push_back(concat(key, ' ', found->second, " -> ", value));
    }
  }
  return {model_of(config).gradcheck("model of " + path, options), replaced};
}

int run_gradcheck(const GradcheckArguments& arguments) {
  std::vector<GradcheckCase> cases = operation_gradchecks();
  for (GradcheckCase& test : model_gradchecks()) cases.push_back(std::move(test));
  std::vector<std::string> replaced;
  if (!arguments.config.empty()) {
    ConfigCase own = config_case(arguments.config, arguments.overrides);
    cases.push_back(std::move(own.test));
    replaced = std::move(own.replaced);
  }
  fmt::print("{:<52} {:>10} {:>10} {:>9}  {}\n", "gradient of", "worst", "tolerance", "elements",
             "worst element");
  int64_t failed = 0, checked = 0;
  // On a terminal the table itself shows the progress.
  std::optional<Progress> progress;
  if (isatty(STDOUT_FILENO) != 1) progress.emplace("gradcheck", std::ssize(cases), "gradients");
  for (const GradcheckCase& test : cases) {
    if (progress) progress->add();
    if (test.name.find(arguments.filter) == std::string::npos) continue;
    const GradcheckResult result = gradcheck(test);
    ++checked;
    failed += !result.passed;
    fmt::print("{:<52} {:>10.2e} {:>10.0e} {:>9}  {}{}\n", result.name, result.worst_error,
               result.tolerance, result.elements, result.worst_place,
               result.passed ? "" : "  FAILED");
    std::fflush(stdout);
  }
  if (!replaced.empty()) {
    fmt::print(
        "the config's model is checked with {}: small, and without kinks, across which "
        "differences are wrong\n",
        join(replaced, ", "));
  }
  if (checked == 0) {
    fail(ErrorKind::kConfig, "[gradcheck] no row holds '", arguments.filter, "' in its name.");
  }
  fmt::print("{} of {} gradients are right\n", checked - failed, checked);
  return failed == 0 ? 0 : 1;
}

void add_gradcheck(CLI::App& app, GradcheckArguments& arguments) {
  app.add_option("config", arguments.config, "also check this config's model, made small");
  app.add_option("overrides", arguments.overrides, "section.key=value");
  app.add_option("--filter", arguments.filter, "only rows whose name holds this");
}

}  // namespace

extern const Command kGradcheck(
    "gradcheck", "Check every gradient by finite differences; exit code 1 when one fails",
    add_gradcheck, run_gradcheck);

}  // namespace tapestry
