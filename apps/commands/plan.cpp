// tapestry plan: the memory, time and disk that a training will take.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/run/memory_plan.h"
#include "apps/run/pretrained.h"
#include "apps/run/start.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/dry_training.h"
#include "core/cpu/parallel.h"
#include "core/device.h"

namespace tapestry {
namespace {

struct PlanArguments : ConfigArguments {
  int64_t ranks = 1;
};

void row(const std::string& what, double value, const char* unit) {
  fmt::print("{:<38} {:>10.1f} {}\n", what, value, unit);
}

void row(const std::string& what, int64_t bytes) {
  constexpr double kMega = 1e6;
  row(what, static_cast<double>(bytes) / kMega, "MB");
}

std::string time_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds >= kHour) return fmt::format("{:.1f} h", seconds / kHour);
  return seconds >= kMinute ? fmt::format("{:.1f} min", seconds / kMinute)
                            : fmt::format("{:.2f} s", seconds);
}

// Tokens that the model reads and writes in an update with full batches.
int64_t tokens_of(const Config& config) {
  const BatchSizes batch = batches_of(config).front();
  const bool two_texts = traits_of(config.model_type).reads_two_texts;
  // The targets of the others are the same tokens again.
  const int64_t of_row =
      two_texts ? batch.source + batch.target : std::max(batch.source, batch.target);
  return batch.rows * std::max<int64_t>(1, of_row) * config.training.gradient_accumulation_steps;
}

// Products of the kind that this machine computes, on all threads.
void print_time(const Config& config, const MemoryPlan& plan) {
  const MachineRates rates = measure_rates(numbers_of(config, ModelUse::kTraining, Device{}));
  const UpdateSeconds update = seconds_of(plan.cost, rates);
  constexpr double kGiga = 1e9;
  row("products of an update", plan.cost.flops / kGiga, "GFLOP");
  row("memory traffic of an update, at least", plan.cost.bytes / kGiga, "GB");
  row("this machine's products now", rates.flops_per_s / kGiga, "GFLOP/s");
  row("this machine's memory now", rates.bytes_per_s / kGiga, "GB/s");
  const int64_t tokens = tokens_of(config);
  fmt::print(
      "an update of {} tokens takes about {}: {:.0f} tokens/s; {:.0f} % of it products, "
      "which {}\n",
      tokens, time_text(update.total()), static_cast<double>(tokens) / update.total(),
      100 * update.products / update.total(),
      update.products > update.memory ? "limit it" : "memory limits more");
  const TrainingOptions& training = config.training;
  if (training.max_steps == 0) return;
  const double seconds = update.total() * static_cast<double>(training.max_steps);
  fmt::print("{} updates take about {}, validations and saves left out{}\n", training.max_steps,
             time_text(seconds),
             training.max_hours > 0 && seconds > 3600 * training.max_hours
                 ? fmt::format("; training.max_hours ends them after {} h", training.max_hours)
                 : "");
}

// The best, the last and a good one may come on top of the limit; and one that is being written.
int64_t disk_of(const Config& config, const MemoryPlan& plan) {
  const TrainingOptions& training = config.training;
  const int64_t saves = training.save_steps > 0 && training.max_steps > 0
                            ? training.max_steps / training.save_steps + 1
                            : 1;
  const int64_t limit =
      training.save_total_limit > 0 ? std::min(saves, training.save_total_limit + 2) : saves;
  const int64_t incidents = training.flight_records > 0 ? training.incidents : 0;
  return limit * plan.checkpoint + incidents * plan.weights;
}

// Each rank has a slice of the optimizer's state, and buffers of the exchange beside.
void share(MemoryPlan& plan, const Config& config, int64_t ranks) {
  if (ranks <= 1 || config.distributed.shard != Shard::kOptimizer) return;
  const int64_t others = plan.optimizer - plan.optimizer / ranks;
  plan.optimizer -= others;
  plan.tensors -= others;
}

int run_plan(const PlanArguments& arguments) {
  check_given_once("plan", arguments.overrides);
  Config config = load_run_config(arguments.config, arguments.overrides, /*check_files=*/false);
  set_num_threads(config.threads);
  const Device device = checked_device(config);
  const bool on_cpu = device.is_cpu();
  const TokenizerPair tokenizers = placeholder_tokenizers(
      config, [](const std::string& text) { std::cerr << "note: " << text << '\n'; });
  if (tokenizers.source && tokenizers.source->serialized().empty()) {
    std::cerr << "note: what learning the tokenizer takes, at a first start, is not planned\n";
  }
  if (config.data.document_mask) {
    std::cerr
        << "note: each block is planned as one document; with data.document_mask attention stays "
           "inside shorter ones, which takes less time\n";
  }
  const bool may_split = arguments.ranks == 1 && config.distributed.parts <= 1;
  if (const std::string chosen = keep_to_budget(config, tokenizers, may_split); !chosen.empty()) {
    std::cerr << "note: " << chosen << '\n';
  }
  std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
  if (!plan) {
    fail(ErrorKind::kConfig, "[plan] task ", config.task->name, " has no plan: its data decides.");
  }
  share(*plan, config, arguments.ranks);
  fmt::print("{:<38} {:>10}\n", "parameters that learn", plan->parameters);
  row("weights", plan->weights);
  if (plan->base > 0)
    row(concat("of these, the base in ", name_of(*config.training.lora_base)), plan->base);
  if (plan->teacher > 0) row("weights of the teacher", plan->teacher);
  row("gradients", plan->gradients);
  row(concat("state of ", name_of(config.optimizer.type)), plan->optimizer);
  if (plan->averages > 0) row("averages", plan->averages);
  row("activations of the largest batch", plan->activations);
  row("tensors and scratch together", plan->tensors);
  if (plan->data > 0) row(on_cpu ? "data in memory" : "data in the host's memory", plan->data);
  if (on_cpu) {
    row("program, libraries, their buffers", plan->resident + plan->buffers);
    row("most memory, a save included", plan->peak());
    row("and tokens, mapped while there is room", plan->mapped);
  } else {
    row("workspace of products", plan->buffers);
    row("most memory of the GPU, but graphs", plan->peak());
    row("and spare blocks, given back at need", plan->spare);
  }
  row("a checkpoint on the disk", plan->checkpoint);
  row("disk of the run, at most", disk_of(config, *plan));
  if (arguments.ranks > 1) {
    fmt::print("these are figures of one of {} ranks, without buffers of the exchange\n",
               arguments.ranks);
  }
  if (on_cpu) print_time(config, *plan);
  const FreeMemory free = free_memory(device);
  row(concat("free on ", free.limit), free.bytes);
  std::cout.flush();
  if (arguments.ranks > 1) return 0;  // each host has others
  if (const auto shortage = memory_shortage(config, tokenizers)) {
    fail(ErrorKind::kOutOfMemory, shortage->text);
  }
  return 0;
}

void add_plan(CLI::App& app, PlanArguments& arguments) {
  add_config(app, arguments);
  app.add_option("--ranks", arguments.ranks, "that share it: figures of one of them")
      ->capture_default_str()
      ->check(number<int64_t>(at_least(1)));
}

}  // namespace

extern const Command kPlan(
    "plan",
    "The memory, time and disk that a training will take; exit code 5 when the memory is not there",
    add_plan, run_plan);

}  // namespace tapestry
