#include "apps/run/memory_plan.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "apps/run/updates.h"
#include "apps/tasks/dry_training.h"
#include "apps/tasks/models.h"
#include "apps/tasks/packed_search.h"
#include "apps/tasks/task.h"
#include "core/base/byte_count.h"
#include "core/base/progress.h"
#include "core/cpu/parallel.h"
#include "core/device.h"
#include "core/device_runtime.h"
#include "core/shapes_only.h"
#include "data/examples/kept_bytes.h"
#include "optim/backward_steps.h"
#include "optim/ema.h"

namespace tapestry {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Values of this process: "VmRSS", "VmSize", "VmData".
int64_t own_bytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ':')) return 1024 * std::atoll(line.c_str() + name.size() + 1);
  }
  return 0;
}

// Measured: OpenBLAS packs factors into at most this, a buffer for each thread; and log, tokenizer
// and prefetched batches.
constexpr int64_t kBlasBytes = int64_t{8} << 20, kRunBytes = int64_t{2} << 20;

int64_t bytes_of(const ParamStore& store) {
  int64_t bytes = 0;
  for (const Parameter& parameter : store.parameters()) bytes += parameter.var.value().bytes();
  return bytes;
}

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  return bytes;
}

// An update as Trainer makes it, of one batch. Its parts are alike: the first sets gradients, the
// second adds to them, and others change nothing of the memory.
void run_update(const Config& config, const ShapesOnly& dry, const DryTraining& training,
                BatchSizes batch, Optimizer& optimizer, MemoryPlan& plan) {
  const CrossEntropyOptions options{.label_smoothing = config.training.label_smoothing,
                                    .normalizer = 1};
  const int64_t before = dry.bytes_in_use();
  const bool first = plan.activations == 0;
  std::optional<BackwardSteps> in_backward;
  if (config.training.optimizer_in_backward) in_backward.emplace(optimizer);
  const int64_t parts = std::clamp<int64_t>(config.training.splits, 1, batch.rows);
  batch.rows = (batch.rows + parts - 1) / parts;
  for (int64_t part = 0; part < std::min<int64_t>(parts, 2); ++part) {
    std::optional<CostCounter> counter;
    if (first && part == 0) counter.emplace();
    Tape tape({.seed = config.seed, .step = 0, .stream = 0});
    const CrossEntropy result = training.loss(batch, options);
    if (counter) plan.activations = dry.bytes_in_use() - before;
    if (in_backward) in_backward->open(config.learning_rate, config.training.clip_options());
    tape.backward(result.loss);
    if (in_backward) in_backward->close();
    if (!counter) continue;
    const auto times = static_cast<double>(parts * config.training.gradient_accumulation_steps);
    plan.cost = counter->cost();
    plan.cost.flops *= times, plan.cost.bytes *= times;
  }
  if (in_backward) {
    plan.gradients = std::max(plan.gradients, in_backward->most_bytes());
  } else {
    optimizer.launch(config.learning_rate, config.training.clip_options());
  }
  optimizer.outcome();
  optimizer.zero_grad();
}

// Pages of files that the system takes back when memory is needed: they count as used.
int64_t cached_files(const std::filesystem::path& statistics) {
  std::ifstream in(statistics);
  int64_t total = 0, bytes = 0;
  for (std::string name; in >> name >> bytes;) {
    if (name == "inactive_file" || name == "active_file") total += bytes;
  }
  return total;
}

int64_t read_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  return in >> value ? value : -1;  // "max" is no number
}

// Applies the limits of the cgroup and of those around it.
void narrow_to_cgroup(FreeMemory& free) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const bool v2 = line.starts_with("0::"), v1 = line.find(":memory:") != std::string::npos;
    if (!v1 && !v2) continue;
    const std::filesystem::path root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string group = line.substr(line.rfind(':') + 1);
    for (;; group = std::filesystem::path(group).parent_path()) {
      const std::filesystem::path folder = root.string() + group;
      const int64_t limit = read_number(folder / (v2 ? "memory.max" : "memory.limit_in_bytes"));
      const int64_t used = read_number(folder / (v2 ? "memory.current" : "memory.usage_in_bytes"));
      const int64_t left = limit - used + cached_files(folder / "memory.stat");
      if (limit > 0 && used >= 0 && left < free.bytes) {
        free = {std::max<int64_t>(0, left), "the cgroup " + group};
      }
      if (group.empty() || group == "/") break;
    }
  }
}

void narrow_to_limit(int resource, const char* used, const char* name, FreeMemory& free) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  const int64_t left = static_cast<int64_t>(limit.rlim_cur) - own_bytes(used);
  if (left < free.bytes) free = {std::max<int64_t>(0, left), name};
}

int64_t available_on_machine() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName)) return 1024 * std::atoll(line.c_str() + kName.size());
  }
  return kUnlimited;
}

// True if the config itself determines the size of a batch.
bool knows_batches(const Config& config) {
  return !examples_of(config).of_text() || examples_of(config).joined ||
         config.batch.batch_type == "tokens";
}

bool can_recompute(const Config& config) { return traits_of(config.model_type).recomputes; }

struct DataBytes {
  int64_t kept = 0, mapped = 0;  // as in MemoryPlan
};

// Tokens are as many as an earlier start kept, or about as many as there is text.
DataBytes bytes_of_data(const Config& config) {
  DataBytes bytes;
  const auto add = [&](const std::vector<CorpusSpec>& corpora, const LoadContext& context) {
    bytes.kept += kept_bytes(corpora, config.data.image.size);
    const int64_t tokens = token_file_bytes(corpora, config.tokenizer.type == "char");
    std::error_code error;
    const auto before = static_cast<int64_t>(std::filesystem::file_size(context.cache, error));
    (context.cache.empty() ? bytes.kept : bytes.mapped) += tokens > 0 && !error ? before : tokens;
  };
  const Report nothing([](const std::string&) {});
  add(config.data.train, load_context(config, nothing, "train"));
  for (const HeldOut set : kHeldOut)
    add(corpora_of(config, set), load_context(config, nothing, set));
  return bytes;
}

// `data` does not depend on the way an update is computed, and needs files.
std::optional<MemoryPlan> plan_with(const DataBytes& data, const Config& config,
                                    const TokenizerPair& tokenizers, int64_t resident) {
  const Progress progress("planning the memory");
  const auto dry_training = model_of(config).dry;
  if (dry_training == nullptr) return std::nullopt;
  MemoryPlan plan;
  plan.on_gpu = !parse_device(config.device).is_cpu();
  plan.resident = plan.on_gpu ? 0 : resident;
  plan.data = data.kept;
  plan.mapped = data.mapped;
  const ShapesOnly dry;
  const DryTraining training = dry_training(config, tokenizers);
  const ParamStore& store = *training.store;
  plan.weights = bytes_of(store);
  for (const Parameter& parameter : store.parameters()) {
    if (parameter.frozen) plan.base += parameter.frozen->words().bytes();
  }
  plan.teacher = training.teacher_bytes;
  const NamedVars all = store.named(), learning = trained_parameters(all, config);
  for (const auto& [name, var] : learning) plan.parameters += var.value().numel();
  Optimizer optimizer(config.optimizer, update_groups(config, learning, store));
  const int64_t states = bytes_of(optimizer.state());
  const int64_t masters = bytes_of(optimizer.masters());
  plan.optimizer = states + masters;
  std::optional<Ema> ema;
  if (config.training.ema_decay > 0) {
    ema.emplace(EmaOptions{.decay = config.training.ema_decay, .warmup = true}, learning);
    plan.averages = bytes_of(ema->state());
  }
  // Masters take the place of the bfloat16 weights, averages are kept beside the weights.
  plan.checkpoint = plan.weights + masters / 2 + states + 2 * plan.averages;
  int64_t of_gradients = 0;  // all of them, whether they are in memory together or not
  for (const auto& [name, var] : learning) of_gradients += var.value().bytes();
  if (!config.training.optimizer_in_backward) {
    reserve_gradients(learning);
    plan.gradients = of_gradients;
  }
  if (!learning.empty()) {
    for (const BatchSizes& batch : batches_of(config)) {
      run_update(config, dry, training, batch, optimizer, plan);
      if (ema) ema->update();
    }
  }
  const auto packed = static_cast<int64_t>(plan.cost.largest_factors);
  plan.buffers = plan.on_gpu ? gpu_workspace_bytes()
                             : std::min(kBlasBytes, packed) * num_threads() + kRunBytes;
  // Reading weights and gradients, reading and writing the state and the weights.
  plan.cost.flops += optimizer.product_flops();
  plan.cost.bytes += static_cast<double>(2 * of_gradients + 2 * plan.optimizer + 2 * plan.weights);
  training.loss(batches_of(config).front(), {});  // as a validation does
  std::optional<PackedScope> packed_weights;
  const bool searches = config.task->validates_by_search || examples_of(config).prompted;
  if (searches && !plan.on_gpu) packed_weights = packed_for_search(config, store);
  const MemoryStats gpu = dry.device_memory();
  plan.tensors = plan.on_gpu ? gpu.peak_bytes : dry.resident_bytes();
  plan.spare = gpu.bytes_reserved - gpu.peak_bytes;
  return plan;
}

}  // namespace

int64_t resident_bytes() { return own_bytes("VmRSS"); }

std::optional<MemoryPlan> plan_memory(const Config& config, const TokenizerPair& tokenizers,
                                      int64_t resident) {
  return plan_with(bytes_of_data(config), config, tokenizers, resident);
}

FreeMemory free_memory(Device device) {
  if (!device.is_cpu()) return {free_gpu_bytes(device), device.str()};
  FreeMemory free{available_on_machine(), "the machine"};
  narrow_to_cgroup(free);
  narrow_to_limit(RLIMIT_AS, "VmSize", "ulimit -v", free);
  narrow_to_limit(RLIMIT_DATA, "VmData", "ulimit -d", free);
  return free;
}

std::vector<Remedy> remedies(const Config& config, const TokenizerPair& tokenizers,
                             const FreeMemory& free) {
  constexpr int kMostHalvings = 10;
  std::vector<Remedy> found;
  const DataBytes data = bytes_of_data(config);
  const int64_t resident = resident_bytes();
  const auto fits = [&](const Config& changed, const std::string& change) {
    const std::optional<MemoryPlan> plan = plan_with(data, changed, tokenizers, resident);
    found.push_back({change, plan ? plan->still_needed() : 0});
    return plan && plan->still_needed() <= free.bytes;
  };
  Config changed = config;
  if (!config.model.recompute && can_recompute(config)) {
    changed.model.recompute = true;
    if (fits(changed, "training.recompute=true")) return found;
    changed = config;
  }
  if (config.training.optimizer_in_backward) return found;  // an update must be one pass
  // Parts of a batch leave the update as it is; with batch norm only smaller batches help.
  const bool may_split = config.model.norm != NormKind::kBatch;
  const bool by_tokens = config.batch.batch_type == "tokens";
  const BatchSizes largest = batches_of(config).front();
  const int64_t least = by_tokens ? largest.target : 1;
  for (int64_t halvings = 1; halvings <= kMostHalvings; ++halvings) {
    const int64_t times = int64_t{1} << halvings, size = config.batch.batch_size / times;
    std::string change;
    if (may_split) {
      if (config.training.splits * times > largest.rows) break;
      changed.training.splits = config.training.splits * times;
      change = concat("training.splits=", changed.training.splits);
    } else {
      if (size < least) break;
      changed.batch.batch_size = size;
      change = concat("training.batch_size=", size, " training.gradient_accumulation_steps=",
                      config.training.gradient_accumulation_steps * times);
    }
    if (fits(changed, change)) return found;
    if (halvings > 1) found.erase(found.end() - 2);  // only the last one that does not fit
  }
  return found;
}

std::optional<MemoryShortage> memory_shortage(const Config& config,
                                              const TokenizerPair& tokenizers) {
  const std::optional<MemoryPlan> plan = plan_memory(config, tokenizers);
  const FreeMemory free = free_memory(parse_device(config.device));
  if (!plan || plan->still_needed() <= free.bytes) return std::nullopt;
  std::string others;
  for (const Remedy& remedy : remedies(config, tokenizers, free)) {
    others +=
        concat(others.empty() ? "; " : ", ", remedy.change, " needs ", bytes_text(remedy.bytes));
  }
  const int64_t fixed =
      plan->weights + plan->teacher + plan->gradients + plan->optimizer + plan->averages;
  // Only image data has a known size.
  const int64_t known =
      plan->still_needed() - (plan->on_gpu || examples_of(config).of_images() ? 0 : plan->data);
  return MemoryShortage{concat("[plan] the training needs ", bytes_text(plan->still_needed()), ", ",
                               bytes_text(free.bytes), " are free on ", free.limit, others, '.'),
                        (knows_batches(config) && known > free.bytes) || fixed > free.bytes};
}

namespace {

std::string choice_text(const Config& config) {
  std::string text;
  if (config.model.recompute) text = "training.recompute=true";
  if (config.training.splits > 1) {
    text += concat(text.empty() ? "" : " ", "training.splits=", config.training.splits);
  }
  return text.empty() ? "nothing of it had to be changed" : text;
}

// The choices that a budget has, the cheapest first.
std::vector<Config> choices(const Config& config, bool may_split) {
  constexpr int64_t kLargeParts = 256;  // tokens: smaller ones make small products
  const BatchSizes batch = batches_of(config).front();
  const int64_t tokens = std::max<int64_t>(1, std::max(batch.source, batch.target));
  may_split =
      may_split && config.model.norm != NormKind::kBatch && !config.training.optimizer_in_backward;
  std::vector<Config> found;
  const auto add = [&](bool recompute, int64_t from, int64_t least_tokens) {
    int64_t splits = from;
    do {
      Config& choice = found.emplace_back(config);
      choice.model.recompute = recompute;
      choice.training.splits = splits;
      splits *= 2;
    } while (may_split && splits <= batch.rows && batch.rows / splits * tokens >= least_tokens);
  };
  const int64_t given = config.training.splits;
  add(config.model.recompute, given, kLargeParts);
  if (!config.model.recompute && can_recompute(config)) add(true, given, kLargeParts);
  const bool all = config.model.recompute || can_recompute(config);
  const int64_t smaller = 2 * found.back().training.splits;
  if (may_split && smaller <= batch.rows) add(all, smaller, 1);
  return found;
}

}  // namespace

std::string keep_to_budget(Config& config, const TokenizerPair& tokenizers, bool may_split,
                           int64_t resident) {
  const std::optional<int64_t> budget = byte_count(config.training.memory_budget);
  if (!budget) return "";
  const DataBytes data = bytes_of_data(config);
  const std::optional<MemoryPlan> plain = plan_with(data, config, tokenizers, resident);
  if (!plain) {
    fail(ErrorKind::kConfig, "[plan] task ", config.task->name,
         " has no plan, and so no training.memory_budget.");
  }
  int64_t least = plain->peak();
  std::string least_choice;
  for (const Config& choice : choices(config, may_split)) {
    const MemoryPlan plan = *plan_with(data, choice, tokenizers, resident);
    if (plan.peak() < least) least = plan.peak(), least_choice = choice_text(choice);
    if (plan.peak() > *budget) continue;
    const auto more = [](double now, double before) { return 100 * (now / before - 1); };
    std::string text = fmt::format(
        "training.memory_budget {}: {}; the plan takes {} instead of {}, with {:.0f} % more "
        "products and {:.0f} % more traffic of memory",
        config.training.memory_budget, choice_text(choice), bytes_text(plan.peak()),
        bytes_text(plain->peak()), more(plan.cost.flops, plain->cost.flops),
        more(plan.cost.bytes, plain->cost.bytes));
    config.training.splits = choice.training.splits;
    config.model.recompute = choice.model.recompute;
    return text;
  }
  fail(ErrorKind::kOutOfMemory, "[plan] training.memory_budget is ", config.training.memory_budget,
       ", the training needs ", bytes_text(plain->peak()),
       least_choice.empty() ? "" : concat(", and ", bytes_text(least), " with ", least_choice),
       '.');
}

std::string bytes_text(int64_t bytes) {
  constexpr double kMega = 1e6, kGiga = 1e9;
  const auto value = static_cast<double>(bytes);
  return value >= kGiga ? fmt::format("{:.1f} GB", value / kGiga)
                        : fmt::format("{:.0f} MB", value / kMega);
}

}  // namespace tapestry
