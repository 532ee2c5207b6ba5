// tapestry bench --ops: the share of its limit that each operation reaches. The limit is the longer
// of its operations / the rate of large products and its bytes / the rate of large copies.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands/bench/bench.h"
#include "apps/commands/bench/operation.h"
#include "apps/commands/number_bounds.h"
#include "apps/run/pretrained.h"
#include "apps/run/program_facts.h"
#include "apps/tasks/answers/placeholders.h"
#include "core/base/clock.h"
#include "core/base/progress.h"
#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/gemm_rate.h"
#include "core/read_rate.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct OperationArguments {
  std::string filter = {};  ///< only operations whose name contains this
  std::optional<Numbers> numbers = {};
};

struct NamedNumbers {
  const char* name;
  Numbers numbers;
};
constexpr NamedNumbers kNumbers[] = {{"float32", {DType::kFloat32, Precision::kFull}},
                                     {"bf16x3", {DType::kFloat32, Precision::kBf16x3}},
                                     {"bfloat16", {DType::kBFloat16, Precision::kFull}}};

std::string name_of(const Numbers& numbers) {
  for (const NamedNumbers& known : kNumbers) {
    if (known.numbers == numbers) return known.name;
  }
  return tapestry::name_of(numbers.dtype);
}

struct Limits {
  double operations_per_s, bytes_per_s;
};

// Different numbers in [low, 1): cheap, since a table has up to 10^8 of them.
Tensor values(const Shape& shape, DType dtype, double low) {
  Tensor x = Tensor::empty(shape);
  const auto from = static_cast<float>(low), scale = static_cast<float>((1 - low) * 0x1p-32);
  uint32_t state = 1;
  for (float& number : std::span(x.data<float>(), static_cast<size_t>(x.numel()))) {
    state = state * 1664525U + 1013904223U;
    number = from + scale * static_cast<float>(state);
  }
  return x.to(dtype);
}

// Of one pass in each round.
struct Seconds {
  std::vector<double> forward, backward;
};

// A round repeats short passes, so that the clock counts little.
Seconds time_operation(const OperationRow& operation, DType dtype,
                       const BenchArguments& arguments) {
  constexpr double kRoundSeconds = 5e-3;
  std::vector<Var> inputs;
  for (const Shape& shape : operation.inputs) {
    inputs.push_back(Var::parameter(values(shape, dtype, operation.low)));
  }
  Tensor gradient;
  double forward = 0, backward = 0;
  const auto run = [&] {
    for (const Var& input : inputs) input.zero_grad();
    Tape tape({.seed = 7});
    const double begun = steady_seconds();
    const Var out = operation.run(inputs);
    const double computed = steady_seconds();
    if (!gradient.defined()) gradient = values(out.shape(), out.dtype(), -1);
    const double turned = steady_seconds();
    tape.backward(out, gradient);
    forward += computed - begun;
    backward += steady_seconds() - turned;
  };
  for (int64_t i = 0; i < arguments.warmup_steps; ++i) run();
  forward = backward = 0;
  run();
  const auto runs = static_cast<int64_t>(std::ceil(kRoundSeconds / (forward + backward)));
  Seconds seconds;
  for (int64_t round = 0; round < arguments.steps; ++round) {
    forward = backward = 0;
    for (int64_t i = 0; i < runs; ++i) run();
    seconds.forward.push_back(forward / static_cast<double>(runs));
    seconds.backward.push_back(backward / static_cast<double>(runs));
  }
  return seconds;
}

Json row_of(const OperationRow& operation, const OperationSizes& sizes, const char* pass,
            const Work& work, const std::vector<double>& seconds, const Limits& limits) {
  const double bytes = work.moved * static_cast<double>(size_of(sizes.numbers.dtype));
  const double products = work.operations / limits.operations_per_s;
  const double memory = bytes / limits.bytes_per_s;
  return {{"operation", operation.name},
          {"pass", pass},
          {"config", sizes.config},
          {"shapes", join(operation.inputs, " ")},
          {"median_s", median(seconds)},
          {"least_s", *std::ranges::min_element(seconds)},
          {"operations", work.operations},
          {"bytes", bytes},
          {"limit", products > memory ? "products" : "memory"},
          {"share_of_limit", std::max(products, memory) / median(seconds)}};
}

void print_operation(const Json& row) {
  const double seconds = row["median_s"].get<double>();
  fmt::print("{:<38} {:<8} {:<16} {:>10.4f} {:>8.1f} {:>7.1f} {:>6.3f} {:<8}  {}\n",
             row["operation"].get<std::string>(), row["pass"].get<std::string>(),
             row["config"].get<std::string>(), 1e3 * seconds,
             1e-9 * row["operations"].get<double>() / seconds,
             1e-9 * row["bytes"].get<double>() / seconds, row["share_of_limit"].get<double>(),
             row["limit"].get<std::string>(), row["shapes"].get<std::string>());
  std::fflush(stdout);
}

std::vector<OperationSizes> sizes_of(const BenchArguments& arguments,
                                     const OperationArguments& chosen) {
  std::vector<OperationSizes> all;
  if (arguments.config.empty()) {
    if (!arguments.shape.empty()) {
      fail(ErrorKind::kConfig, "[bench] --shape needs a config, got '", arguments.shape, "'.");
    }
    const auto shipped = shipped_operation_sizes();
    all.assign(shipped.begin(), shipped.end());
    set_num_threads(arguments.threads);
  } else {
    Config config = load_run_config(arguments.config, arguments.overrides, /*check_files=*/false);
    settle_vocab_size(config);
    const bool pairs = traits_of(config.model_type).reads_two_texts;
    const std::string shape = !arguments.shape.empty() ? arguments.shape
                              : pairs                  ? "128x32x32"
                                                       : "4x256";
    all.push_back(
        operation_sizes(config, std::filesystem::path(arguments.config).stem().string(), shape));
    set_num_threads(arguments.threads > 0 ? arguments.threads : config.threads);
  }
  for (OperationSizes& sizes : all) {
    if (chosen.numbers) sizes.numbers = *chosen.numbers;
    check_precision(sizes.numbers.precision, Device{});
  }
  return all;
}

int bench_operations(const BenchArguments& arguments, const OperationArguments& chosen,
                     const Program& program) {
  const std::vector<OperationSizes> all = sizes_of(arguments, chosen);
  std::vector<std::pair<const OperationSizes*, OperationRow>> operations;
  for (const OperationSizes& sizes : all) {
    for (OperationRow& operation : operations_of(sizes)) {
      if (operation.name.find(chosen.filter) == std::string::npos) continue;
      operations.emplace_back(&sizes, std::move(operation));
    }
  }
  if (operations.empty()) {
    fail(ErrorKind::kConfig, "[bench] no operation holds '", chosen.filter, "' in its name.");
  }
  if (const std::string warning = blas_warning(); !warning.empty()) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  FiguresFile json(arguments.json);
  const Numbers& numbers = all[0].numbers;
  const double gflops = gemm_rate({}, numbers.dtype, numbers.precision), copies = copy_rate();
  const Limits limits{1e9 * gflops, 1e9 * copies};
  Json figures = Json::object();
  for (const auto& [name, value] : program_facts(program.commit)) figures[name] = value;
  figures["threads"] = num_threads();
  figures["precision"] = name_of(numbers);
  figures["products_gflops"] = gflops;
  figures["memory_gb_per_s"] = copies;
  for (const auto& [name, value] : figures.items()) {
    fmt::print("{:<16} {}\n", name,
               value.is_number_float() ? fmt::format("{:.1f}", value.get<double>())
               : value.is_string()     ? value.get<std::string>()
                                       : value.dump());
  }
  fmt::print("\n{:<38} {:<8} {:<16} {:>10} {:>8} {:>7} {:>6} {:<8}  {}\n", "operation", "pass",
             "config", "ms", "GFLOP/s", "GB/s", "share", "of", "shapes");
  figures["rows"] = Json::array();
  std::optional<Progress> progress;  // on a terminal the table itself shows it
  if (isatty(STDOUT_FILENO) != 1) {
    progress.emplace("timing", std::ssize(operations), "operations");
  }
  for (const auto& [sizes, operation] : operations) {
    if (progress) progress->add();
    const Seconds seconds = time_operation(operation, numbers.dtype, arguments);
    const auto add = [&](const char* pass, const Work& work, const std::vector<double>& taken) {
      if (work.operations == 0 && work.moved == 0) return;
      figures["rows"].push_back(row_of(operation, *sizes, pass, work, taken, limits));
      print_operation(figures["rows"].back());
    };
    add("forward", operation.forward, seconds.forward);
    add("backward", operation.backward, seconds.backward);
  }
  json.write(figures);
  return 0;
}

}  // namespace

void add_operations(CLI::App& app, OtherBench& bench) {
  const auto chosen = std::make_shared<OperationArguments>();
  auto* flag = app.add_flag_function(
      "--ops",
      [chosen, &bench](int64_t times) {
        if (times <= 0) return;
        bench = [chosen](const BenchArguments& arguments, const Program& program) {
          return bench_operations(arguments, *chosen, program);
        };
      },
      "each operation of the gradient table on the CPU, forward and backward, beside what large "
      "products and copies allow; at the sizes of the config, or without one at those of three "
      "shipped configs");
  app.add_option("--filter", chosen->filter, "of --ops: only operations whose name holds this")
      ->needs(flag);
  std::vector<std::string> names = names_of(kNumbers);
  app.add_option_function<std::string>(
         "--precision",
         [chosen](const std::string& name) {
           for (const NamedNumbers& known : kNumbers) {
             if (known.name == name) chosen->numbers = known.numbers;
           }
         },
         "of --ops (default: the config's, else float32)")
      ->check(CLI::IsMember(names))
      ->needs(flag);
}

}  // namespace tapestry
