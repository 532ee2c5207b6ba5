// tapestry plan: what a training will take, before it takes any.
#include <fmt/format.h>

#include <iostream>

#include "apps/commands/plan.h"
#include "apps/run/memory_plan.h"
#include "apps/tasks/stand_ins.h"
#include "core/device.h"
#include "core/parallel.h"

namespace tapestry {

int run_plan(const PlanArguments& arguments) {
  Config config = load_config(arguments.config, arguments.overrides, /*check_files=*/false);
  set_num_threads(config.threads);
  if (!parse_device(config.device).is_cpu()) {
    std::cerr << "note: these are figures of a training on the CPU\n";
  }
  const TokenizerPair tokenizers =
      stand_ins(config, [](const std::string& text) { std::cerr << "note: " << text << '\n'; });
  const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
  if (!plan) {
    fail(ErrorKind::kConfig, "[plan] task ", config.task->name, " has no plan: its data decides.");
  }
  const auto row = [](const char* what, int64_t bytes) {
    constexpr double kMega = 1e6;
    fmt::print("{:<34} {:>10.1f} MB\n", what, static_cast<double>(bytes) / kMega);
  };
  fmt::print("{:<34} {:>10}\n", "parameters that learn", plan->parameters);
  row("weights", plan->weights);
  row("gradients", plan->gradients);
  row(concat("state of ", name_of(config.optimizer.type)).c_str(), plan->optimizer);
  if (plan->averages > 0) row("averages", plan->averages);
  row("activations of the largest batch", plan->activations);
  row("tensors and scratch together", plan->tensors);
  row("program, libraries, their buffers", plan->program);
  row("most memory, a save included", plan->peak());
  row("a checkpoint on the disk", plan->checkpoint);
  const FreeMemory free = free_memory();
  row(concat("free on ", free.limit).c_str(), free.bytes);
  std::cout.flush();
  if (const auto shortage = memory_shortage(config, tokenizers)) {
    fail(ErrorKind::kOutOfMemory, shortage->text);
  }
  return 0;
}

}  // namespace tapestry
