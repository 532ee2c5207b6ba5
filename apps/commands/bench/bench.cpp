// tapestry bench: times training steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/commands/bench/training_steps.h"
#include "apps/commands/number_bounds.h"
#include "apps/run/pretrained.h"
#include "apps/run/start.h"
#include "apps/tasks/answers/placeholders.h"
#include "core/allocator.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/gemm_rate.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct AnyBench : BenchArguments {
  OtherBench other = {};  ///< with --decode or --ops
};

// The rate of square products on the device of the run: of float32 on a CPU, of the run's own type
// and precision on a GPU.
double gemm_peak(const Config& config, Device device) {
  if (device.is_cpu()) return gemm_rate(device, DType::kFloat32, Precision::kFull);
  const Numbers numbers = numbers_of(config, ModelUse::kTraining, device);
  return gemm_rate(device, numbers.dtype, numbers.precision);
}

// Rounded to four digits, which repeat from run to run. The file has all digits.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  return std::abs(number) >= 1000 ? fmt::format("{:.0f}", number) : fmt::format("{:.4g}", number);
}

// What the GPU, or the kernels of bfloat16, did besides.
void add_device(const Config& config, Device device, Json& figures) {
  if (config.cuda_graphs) {
    const GraphStats graphs = graph_stats();
    figures["graphs"] = graphs.graphs;
    figures["graph_updates"] = graphs.updates;
    if (!graphs.refusal.empty()) figures["graph_refusal"] = graphs.refusal;
  }
  if (!device.is_cpu()) {
    const ProductStats products = product_stats();
    figures["products_without_algorithm"] = products.without_algorithm;
    figures["products_refused"] = products.refused;
    if (!products.refusal.empty()) figures["product_refusal"] = products.refusal;
  }
  const Numbers numbers = numbers_of(config, ModelUse::kTraining, device);
  if (numbers.precision != Precision::kFull) figures["precision"] = name_of(numbers.precision);
  if (device.is_cpu() &&
      (numbers.dtype == DType::kBFloat16 || numbers.precision == Precision::kBf16x3)) {
    figures["bfloat16_kernel"] = name_of(bfloat16_kernel());
  }
}

Json figures_of(const Config& config, const BenchArguments& arguments, const Measured& measured,
                Device device, double peak) {
  const double seconds = median(measured.seconds);
  const double total = std::accumulate(measured.seconds.begin(), measured.seconds.end(), 0.0);
  const double tokens = std::accumulate(measured.tokens.begin(), measured.tokens.end(), 0.0);
  // Steps are launched before the GPU has finished the last one: only their sum is meaningful.
  const bool like_steps = !arguments.shape.empty() && device.is_cpu();
  const double step_seconds = like_steps ? seconds : total / static_cast<double>(arguments.steps);
  Json figures{{"config", arguments.config},
               {"shape", arguments.shape},
               {"threads", num_threads()},
               {"blas", blas_description()},
               {"steps", arguments.steps},
               {"median_s", seconds},
               {"tokens_per_s", like_steps ? measured.tokens[0] / seconds : tokens / total},
               {"gemm_peak_gflops", peak},
               {"peak_memory_bytes", memory_of(device).peak_bytes},
               {"system_allocations_in_warm_steps", measured.system_calls},
               {"graph_launches", graph_stats().launches},
               {"loss", measured.loss}};
  add_device(config, device, figures);
  double known = 0;
  for (int i = 0; i < kParts && device.is_cpu(); ++i) {
    const double part = measured.parts[static_cast<size_t>(i)];
    figures[concat("share_of_time_", name_of(static_cast<Part>(i)))] = part / total;
    known += part;
  }
  if (device.is_cpu()) figures["share_of_time_other"] = 1 - known / total;
  if (measured.flops > 0) {
    figures["gflops"] = 1e-9 * measured.flops / step_seconds;
    figures["share_of_peak"] = 1e-9 * measured.flops / step_seconds / peak;
  }
  if (measured.ranks) add_ranks(*measured.ranks, figures);
  return figures;
}

int run_bench(const AnyBench& arguments, Program& program) {
  if (arguments.other) return arguments.other(arguments, program);
  if (arguments.config.empty()) {
    fail(ErrorKind::kConfig,
         "[bench] expected a config, got none; only --ops has sizes without one.");
  }
  Ranks& ranks = program.ranks;
  Config config = load_run_config(arguments.config, arguments.overrides,
                                  /*check_files=*/arguments.shape.empty());
  ranks.join(config.distributed);
  config.device = ranks.device(config.device);
  if (arguments.threads > 0) config.threads = arguments.threads;
  set_num_threads(config.threads > 0 ? config.threads : ranks.threads());
  const Device device = checked_device(config);
  if (const std::string warning = blas_warning(); !warning.empty()) {
    fmt::print(stderr, "warning: {}{}\n", ranks.prefix(), warning);
  }
  if (!arguments.shape.empty()) settle_vocab_size(config);
  if (!arguments.shape.empty() && config.data.document_mask) {
    fmt::print(stderr,
               "note: {}a row of --shape is one document; to time those of the data with "
               "data.document_mask leave --shape out\n",
               ranks.prefix());
  }
  FiguresFile json(ranks.is_first() ? arguments.json : "");
  const double peak = gemm_peak(config, device);
  reset_peak_bytes();
  const Measured measured = arguments.shape.empty() ? measure_data(config, arguments, ranks)
                                                    : measure_synthetic(config, arguments, ranks);
  if (!ranks.is_first()) return 0;
  const Json figures = figures_of(config, arguments, measured, device, peak);
  for (const auto& [name, value] : figures.items()) {
    if (value.is_array()) continue;
    fmt::print("{:<34} {}\n", name, text_of(value));
  }
  if (measured.ranks) print_prediction(figures);
  json.write(figures);
  return 0;
}

void add_bench(CLI::App& app, AnyBench& arguments) {
  add_config(app, arguments);
  app.get_option("config")->required(false);  // of --ops
  app.add_option("--shape", arguments.shape,
                 "BxSxT, or BxT for a language model: synthetic tokens (default: the config's "
                 "data); with --decode BxSxT for all: answers, tokens of each source or prompt, "
                 "tokens of each answer; with --ops 128x32x32 or 4x256 by default");
  add_decoding(app, arguments.other);
  add_operations(app, arguments.other);
  app.get_option("--decode")->needs("config")->excludes("--ops");
  app.add_option("--steps", arguments.steps, "timed steps, or rounds of --decode and --ops")
      ->check(number<int64_t>(at_least(1)))
      ->capture_default_str();
  app.add_option("--warmup-steps", arguments.warmup_steps, "steps before those")
      ->check(number<int64_t>(at_least(0)))
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "CPU threads; 0: as the config says")
      ->check(number<int>(between(0, 1024)))
      ->capture_default_str();
  app.add_option("--json", arguments.json, "also write the figures to this file");
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

BatchShape parse_shape(const std::string& text, bool both_sides) {
  BatchShape shape;
  char rest = 0;
  const bool read =
      both_sides ? std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &shape.rows, &shape.source,
                               &shape.target, &rest) == 3 &&
                       shape.source >= 1
                 : std::sscanf(text.c_str(), "%ldx%ld%c", &shape.rows, &shape.target, &rest) == 2;
  if (!read || shape.rows < 1 || shape.target < 1) {
    fail(ErrorKind::kConfig, "[bench] --shape must be ",
         both_sides ? "SENTENCESxSOURCExTARGET" : "ROWSxTOKENS", ", got '", text, "'.");
  }
  return shape;
}

extern const Command kBench(
    "bench",
    "Time training steps, or with --decode the answers of a config's model or of a run, or with "
    "--ops single operations",
    add_bench, run_bench);

}  // namespace tapestry
