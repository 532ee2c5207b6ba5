#include "apps/run/start.h"

#include <exception>
#include <filesystem>
#include <optional>

#include "apps/checkpoint/bytes.h"
#include "apps/run/kernel_probe.h"
#include "apps/run/launch/launcher.h"
#include "apps/run/pretrained.h"
#include "core/base/text.h"
#include "core/cpu/portable_bits.h"

namespace tapestry {
namespace {

constexpr const char* kFromRank0 = "config of rank 0";

// The same examples, whether they came from text or from a cache.
std::string without_cached(std::string message) {
  constexpr std::string_view kCached = " (cached)";
  if (const size_t at = message.find(kCached); at != std::string::npos) {
    message.erase(at, kCached.size());
  }
  return message;
}

}  // namespace

Config join_ranks(Ranks& ranks, const ConfigSource& file, const std::vector<std::string>& overrides,
                  const std::vector<std::string>& options) {
  std::optional<Config> config;
  std::exception_ptr wrong;
  try {
    config = load_run_config(file, overrides);
    expect_restarts(config->distributed);
  } catch (const Error&) {
    wrong = std::current_exception();
  }
  // Another host need not have the file; it then uses rank 0's config, and the usual time-out.
  ranks.join(config ? config->distributed : DistributedOptions());
  if (!ranks.is_alone()) {
    ranks.expect_equal("the program", program_checksum(), ErrorKind::kConfig);
    std::vector<std::string> arguments = {file.path};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    ranks.expect_equal("the command line", join(arguments, " "), ErrorKind::kConfig);
  }
  if (wrong && ranks.is_first()) std::rethrow_exception(wrong);
  return config ? *std::move(config) : Config();
}

void settle_parts(Config& config, const Resume& resume, int64_t ranks) {
  const int64_t steps = config.training.gradient_accumulation_steps;
  if (steps % ranks != 0) {
    const int64_t size = std::max<int64_t>(1, config.batch.batch_size * steps / ranks);
    fail(ErrorKind::kConfig, "[train] an update of ", steps,
         steps == 1 ? " micro-batch" : " micro-batches", " cannot be shared by ", ranks,
         " ranks; about the same update in ", ranks,
         ": training.gradient_accumulation_steps=", ranks, " training.batch_size=", size, '.');
  }
  int64_t& parts = config.distributed.parts;
  if (parts == 0) {
    const int64_t before = resume.goes_on() ? resume.state().parts : ranks;
    parts = parts_fit(before, ranks) && steps % before == 0 ? before : ranks;
  }
  if ((parts > 1 || ranks > 1) && config.training.splits > 1) {
    fail(ErrorKind::kConfig, "[train] training.splits needs one rank and distributed.parts=1, got ",
         ranks, " and ", parts, "; gradient_accumulation_steps makes batches smaller, too.");
  }
  const bool in_slices = ranks > 1 && config.distributed.shard == Shard::kOptimizer;
  if (in_slices && config.optimizer.state_dtype == StateType::kFloat8) {
    fail(ErrorKind::kConfig, "[train] training.optimizer.state_dtype float8 needs ",
         "distributed.shard=none on ", ranks, " ranks: a slice may end within a block of numbers ",
         "that share a scale.");
  }
  if (in_slices && config.mixed && config.training.ema_decay > 0) {
    fail(ErrorKind::kConfig, "[train] training.ema_decay with dtype bfloat16 needs ",
         "distributed.shard=none on ", ranks,
         " ranks: each has the float32 weights of its slice only, and would average roundings.");
  }
  if (parts > 1 && config.cuda_graphs) {
    fail(ErrorKind::kConfig, "[train] cuda_graphs needs distributed.parts=1, got ", parts, '.');
  }
  if (!parts_fit(parts, ranks)) {
    fail(ErrorKind::kConfig, "[train] distributed.parts is ", parts, ", which ", ranks,
         " ranks cannot share: each computes as many, and 1, 2, 4, 8 or so.");
  }
}

void share_start(Ranks& ranks, Config& config, std::unique_ptr<Resume>& resume,
                 const Report& report) {
  if (ranks.is_alone()) return;
  std::vector<std::string> facts;
  if (ranks.is_first()) {
    if (examples_of(config).of_text()) {
      resume->use(settle_tokenizers(config, resume->tokenizers(), report));
    }
    facts = resume->facts();
    facts.insert(facts.begin(), to_json(config));
  }
  facts = ranks.broadcast(facts);
  if (ranks.is_first()) return;
  config = load_checkpoint_config(facts.front(), kFromRank0);
  facts.erase(facts.begin());
  resume = std::make_unique<Resume>(facts);
}

Device checked_device(const Config& config) {
  const Device device = parse_device(config.device);
  if (config.device == "auto" && !device.is_cpu()) {
    Config on_gpu = config;
    on_gpu.device = "cuda";
    complete(on_gpu);
  }
  if (config.portable_bits) choose_portable_bits();
  return device;
}

std::string compare_kernels(Ranks& ranks, const Config& config, const Resume& resume, RunLog& log) {
  const Device device = parse_device(config.device);
  ranks.expect_equal("the kind of device", device.is_cpu() ? "a CPU" : "a GPU", ErrorKind::kConfig);
  if (!device.is_cpu()) return "";
  const std::string kernels = kernel_probe(numbers_of(config, ModelUse::kTraining, device));
  const std::string difference = ranks.difference("the results of kernels", kernels);
  if (!difference.empty() && config.distributed.shard == Shard::kNone) {
    fail(ErrorKind::kConfig, "[ranks] ", difference,
         " Processors or BLAS differ: OPENBLAS_CORETYPE can make the latter one; or take "
         "distributed.shard=optimizer, and other bits for other ranks.");
  }
  if (!difference.empty()) log.warn(difference + " The bits depend on which rank computes what.");
  const std::string& before = resume.state().kernels;
  if (!before.empty() && before != kernels) {
    log.warn(
        "the kernels of this machine round otherwise than those that computed the checkpoint: "
        "from here on the bits are not those of the run as it was");
  }
  return kernels;
}

std::unique_ptr<TrainingTask> make_task_of_ranks(Ranks& ranks, const Config& config,
                                                 const Resume& resume, const Report& report) {
  TaskPlace place{.start = resume.state().position};
  if (ranks.is_alone()) return make_task(config, resume.tokenizers(), place, report);
  const int64_t steps = config.training.gradient_accumulation_steps;
  const int64_t count = steps / ranks.size();
  place.share = {.first = ranks.rank() * count, .count = count, .of = steps};
  place.group = RankGroup(ranks.communicator());

  Config own = config;
  // Rank 0 writes the cached tokens. A rank that does not see its folder keeps its own in memory.
  const std::string& folder =
      config.data.cache_dir.empty() ? config.output_dir : config.data.cache_dir;
  const bool sees_rank_0 = std::filesystem::exists(folder);
  if (!ranks.is_first() && !sees_rank_0) own.data.cache = false;
  ranks.communicator().doing("reading data");
  if (!ranks.is_first() && sees_rank_0) ranks.communicator().all_gather("");
  std::string found;
  Report listening(
      [&](const std::string& message) {
        found += (found.empty() ? "" : "; ") + without_cached(message);
        report(message);
      },
      report.warn);
  listening.loaded = [&](const std::string& checksum) {
    found += concat(found.empty() ? "" : "; ", "checksum ", checksum);
  };
  std::unique_ptr<TrainingTask> task = make_task(own, resume.tokenizers(), place, listening);
  if (ranks.is_first() || !sees_rank_0) ranks.communicator().all_gather("");
  ranks.expect_equal("the data", found, ErrorKind::kData);
  return task;
}

std::string checksum_of(const ParamStore& store) {
  Checksum checksum;
  for (const Parameter& parameter : store.parameters()) {
    const Tensor host = parameter.var.value().to(Device{});
    checksum.add(host.raw(), static_cast<size_t>(host.numel() * size_of(host.dtype())));
  }
  return checksum.text();
}

}  // namespace tapestry
