#include "autograd/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/tasks/task.h"
#include "core/kernels/activation_functors.h"
#include "nn/gradcheck_models.h"

namespace tapestry {
namespace {

// A small model with the same kinds of layers as the config's. Finite differences are wrong across
// the kink of relu, so gelu replaces it here; relu has rows of its own.
GradcheckCase config_case(const std::string& path, const std::vector<std::string>& overrides) {
  const Config config = load_config(path, overrides, /*check_files=*/false);
  ModelOptions options = config.model;
  const int64_t groups = options.num_key_value_heads == 0
                             ? 0
                             : options.num_attention_heads / options.num_key_value_heads;
  options.num_attention_heads = std::min<int64_t>(options.num_attention_heads, 4);
  if (groups > 0) {
    options.num_key_value_heads = std::max<int64_t>(1, options.num_attention_heads / groups);
  }
  options.hidden_size = 4 * options.num_attention_heads;
  options.intermediate_size = 2 * options.hidden_size;
  options.encoder_layers = std::min<int64_t>(options.encoder_layers, 2);
  options.decoder_layers = std::min<int64_t>(options.decoder_layers, 2);
  options.num_hidden_layers = std::min<int64_t>(options.num_hidden_layers, 2);
  options.max_position_embeddings = 16;
  if (!kinks_of(options.hidden_act.activation).empty()) {
    options.hidden_act.activation = Activation::kGelu;
  }
  options.patch_size = 2;
  return task_of(config).gradcheck("model of " + path, config.model_type, options);
}

}  // namespace

int run_gradcheck(const GradcheckArguments& arguments) {
  std::vector<GradcheckCase> cases = operation_gradchecks();
  for (GradcheckCase& test : model_gradchecks()) cases.push_back(std::move(test));
  if (!arguments.config.empty())
    cases.push_back(config_case(arguments.config, arguments.overrides));
  fmt::print("{:<52} {:>10} {:>10} {:>9}  {}\n", "gradient of", "worst", "tolerance", "elements",
             "worst element");
  int64_t failed = 0, checked = 0;
  for (const GradcheckCase& test : cases) {
    if (test.name.find(arguments.filter) == std::string::npos) continue;
    const GradcheckResult result = gradcheck(test);
    ++checked;
    failed += !result.passed;
    fmt::print("{:<52} {:>10.2e} {:>10.0e} {:>9}  {}{}\n", result.name, result.worst_error,
               result.tolerance, result.elements, result.worst_place,
               result.passed ? "" : "  FAILED");
    std::fflush(stdout);
  }
  if (checked == 0) {
    fail(ErrorKind::kConfig, "[gradcheck] no row holds '", arguments.filter, "' in its name.");
  }
  fmt::print("{} of {} gradients are right\n", checked - failed, checked);
  return failed == 0 ? 0 : 1;
}

}  // namespace tapestry
