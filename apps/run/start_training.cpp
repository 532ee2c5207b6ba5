#include "apps/run/start_training.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "apps/config/reference.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/run/launch/launcher.h"
#include "apps/run/memory_plan.h"
#include "apps/run/program_facts.h"
#include "apps/run/signals.h"
#include "apps/run/start.h"
#include "apps/run/updates.h"
#include "apps/tasks/answers/placeholders.h"
#include "core/allocator.h"
#include "core/build_info.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/cpu/blas.h"
#include "core/cpu/parallel.h"
#include "core/device_runtime.h"

namespace tapestry {
namespace {

constexpr int64_t kFewExamples = 50;  // fewer than these make a metric that nobody can rely on

// True if some example can be in both.
bool may_share(const CorpusSpec& one, const CorpusSpec& other) {
  const bool parts = one.split != other.split && one.split != "all" && other.split != "all";
  const bool apart = one.range_end <= other.range_begin || other.range_end <= one.range_begin;
  return !parts && !apart;
}

// Warns of files that are learnt and measured. Pairs of sentences are compared one by one.
void warn_of_files_of_both(const Config& config, RunLog& log) {
  if (examples_of(config).has_targets) return;
  for (const auto& [key, held_out] :
       {std::pair{"valid", &config.data.valid}, std::pair{"test", &config.data.test}}) {
    for (const CorpusSpec& measured : *held_out) {
      const std::vector<std::string> files = files_of({measured});
      for (const CorpusSpec& learnt : config.data.train) {
        if (!may_share(measured, learnt)) continue;
        const std::vector<std::string> others = files_of({learnt});
        const auto both = std::ranges::find_first_of(files, others);
        if (both == files.end()) continue;
        log.warn(concat("data.", key, " reads ", *both,
                        ", as data.train does: its figures say what the model knows by heart"));
      }
    }
  }
}

// Logs the facts of the config and the run folder at the beginning.
void tell_start(const Config& config, const Resume& resume, RunLog& log) {
  warn_of_files_of_both(config, log);
  if (!resume.passed_over().empty()) log.warn(resume.passed_over());
  if (!resume.changes().empty()) {
    if (resume.goes_on()) {
      log.info("changed since the checkpoint: " + resume.changes());
    } else {
      log.warn("the model of init_from computes otherwise: " + resume.changes());
    }
  }
  for (const std::string& warning : resume.warnings()) log.warn(warning);
  for (const std::string& consequence : resume.consequences()) log.info(consequence);
  if (resume.goes_on() && resume.state().parts != config.distributed.parts) {
    log.warn(concat("an update has ", config.distributed.parts, " parts, before it had ",
                    resume.state().parts,
                    ": gradients are summed in another order, and from here on the bits are not "
                    "those of the run as it was"));
  }
  if (config.lora.rank > 0 && config.init_from.empty() && !resume.goes_on()) {
    log.warn("training.lora without init_from: what stays as it is was drawn at random");
  }
  if (config.training.lora_base && !config.init_from.empty() && !resume.goes_on() &&
      interop::gguf_file_of(config.init_from)) {
    log.warn(
        concat("init_from is a GGUF, whose numbers may be rounded already: training.lora.base "
               "rounds them again, to ",
               name_of(*config.training.lora_base)));
  }
  const bool compared = examples_of(config).compared && config.preference.has_reference();
  if (compared && config.init_from.empty() && !resume.goes_on()) {
    log.warn(
        "preference.loss without init_from: it compares with a model that was drawn at random");
  }
}

void tell_machine(const Config& config, Device device, const Ranks& ranks, RunLog& log) {
  if (const std::string why = why_no_gpu(); config.device == "auto" && !why.empty()) {
    log.warn_of_machine(concat("no GPU answers: ", why));
  }
  const Numbers numbers = numbers_of(config, ModelUse::kTraining, device);
  const bool narrow = device.is_cpu() && numbers.dtype == DType::kBFloat16;
  const bool in_three = !narrow && numbers.precision == Precision::kBf16x3;
  log.info(concat("device ", device_name(device), ", ", num_threads(), " threads, ",
                  blas_description(), in_three ? ", float32 in three products" : "",
                  narrow || in_three ? concat(", bfloat16 on ", name_of(bfloat16_kernel())) : ""));
  if (narrow && bfloat16_kernel() == Bfloat16Kernel::kWidened) {
    log.warn_of_machine(
        "this processor multiplies bfloat16 no faster than float32: dtype: bfloat16 saves memory, "
        "not time");
  }
  if (const std::string warning = blas_warning(); !warning.empty()) log.warn_of_machine(warning);
  const std::string few = ranks.few_cores_warning();
  if (!few.empty()) log.warn_of_machine(few);
}

// Only with a budget, and without an earlier choice.
void keep_to_budget(Config& config, const Resume& resume, const Ranks& ranks, RunLog& log) {
  if (config.training.memory_budget.empty()) return;
  if (resume.keeps_budget()) {
    log.info(concat("training.memory_budget: as before, training.splits ", config.training.splits,
                    ", recompute ", config.model.recompute ? "true" : "false"));
    return;
  }
  Config sized = config;  // classes and images may be open still
  const TokenizerPair placeholders = placeholder_tokenizers(
      sized, [](const std::string&) {}, resume.tokenizers());
  const bool may_split = ranks.is_alone() && config.distributed.parts <= 1;
  const std::string chosen = keep_to_budget(sized, placeholders, may_split);
  config.training.splits = sized.training.splits;
  config.model.recompute = sized.model.recompute;
  log.info(chosen);
}

// Before the data is read, which may take longer than all the rest.
void expect_room(const Config& given, const Resume& resume, RunLog& log) {
  Config config = given;
  std::optional<MemoryShortage> shortage;
  try {
    const TokenizerPair placeholders = placeholder_tokenizers(
        config, [](const std::string&) {}, resume.tokenizers());
    shortage = memory_shortage(config, placeholders);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kRuntime) throw;
    log.warn(concat("the memory of this training could not be planned: ", error.what()));
  }
  if (!shortage) return;
  if (shortage->certain) fail(ErrorKind::kOutOfMemory, shortage->text);
  log.warn(concat(shortage->text, " Shorter texts may need less, and it goes on"));
}

// Sets up the device and the threads of this rank.
Device set_up_machine(Config& config, const Ranks& ranks) {
  config.device = ranks.device(config.device);
  const Device device = checked_device(config);
  set_num_threads(config.threads > 0 || ranks.is_alone() ? config.threads : ranks.threads());
  blas_description();  // throws, before there is a run folder
  install_signal_handlers();
  end_on_signal(true);  // until the trainer runs
  return device;
}

// Files of the user's that those of the run would replace before anybody has read them.
void expect_no_own_files(const Config& config) {
  namespace fs = std::filesystem;
  const fs::path folder = config.output_dir;
  const bool used = fs::exists(folder / "train.log") ||
                    (fs::is_directory(folder) && !checkpoint_steps(folder.string()).empty());
  if (const fs::path own = folder / "config.yaml"; !used && fs::exists(own)) {
    fail(ErrorKind::kConfig, "[train] ", own.string(),
         " is of no run, and a run writes a file of that name: rename it, or choose another "
         "output_dir.");
  }
  static const std::set<std::string> kOwn = {"config.yaml",  "metrics.jsonl", "samples.jsonl",
                                             "starts.jsonl", "flight.jsonl",  "train.log",
                                             "report.html"};
  std::error_code unreadable;
  for (const auto* corpora : {&config.data.train, &config.data.valid, &config.data.test}) {
    for (const fs::path file : files_of(*corpora)) {
      if (!kOwn.contains(file.filename().string()) ||
          !fs::equivalent(fs::absolute(file).parent_path(), folder, unreadable)) {
        continue;
      }
      fail(ErrorKind::kConfig, "[train] ", file.string(),
           " is data, and a run writes a file of that name into output_dir: rename it, or choose "
           "another output_dir.");
    }
  }
}

// Opens the run folder and finds what is resumed.
StartedTraining start_first_rank(const std::string& how, Config config, Device device,
                                 const Ranks& ranks) {
  StartedTraining start;
  expect_no_own_files(config);
  start.folder = std::make_unique<RunFolder>(config.output_dir);
  start.resume = std::make_unique<Resume>(how, *start.folder, config);
  const std::string dtype = settle_dtype(config, device);
  const TrainerState& state = start.resume->state();
  if (how == "auto" && start.resume->goes_on()) {
    start.folder->mend_links(state.step, state.best_step);
  }
  if (const int64_t all = config.training.max_steps;
      start.resume->goes_on() && all > 0 && state.step >= all && start.folder->steps().empty()) {
    fail(ErrorKind::kConfig, "[train] ", how, " has ", state.step,
         " updates, and training.max_steps is ", all,
         ": nothing would be trained, and no model saved in ", config.output_dir, '.');
  }
  settle_parts(config, *start.resume, ranks.size());
  start.log = std::make_unique<RunLog>(start.folder->path(), state.step);
  if (!dtype.empty()) start.log->info(dtype);
  for (const std::string& name : config.training.report_to) {
    start.log->report_to(make_reporter(name, {.folder = start.folder->path(),
                                              .resumed_step = state.step,
                                              .keys = flat_keys(config),
                                              .metric = config.training.metric_for_best_model}));
  }
  keep_to_budget(config, *start.resume, ranks, *start.log);
  // That of a run goes on being what its checkpoints have until they are taken over.
  if (!start.resume->goes_on()) start.folder->write("config.yaml", to_yaml(config));
  tell_start(config, *start.resume, *start.log);
  start.config = std::move(config);
  return start;
}

void log_facts(const char* commit, Device device, const Ranks& ranks, int64_t step, RunLog& log) {
  Facts facts = machine_facts(commit);
  facts.emplace_back("device", device_name(device));
  facts.emplace_back("threads", std::to_string(num_threads()));
  if (!ranks.is_alone()) facts.emplace_back("ranks", ranks.summary());
  if (const std::string story = story_of_launch(); !story.empty()) {
    facts.emplace_back("launch", story);
    log.warn(story);
  }
  log.started(step, facts);
}

void warn_of_few_examples(const TrainingTask& task, RunLog& log) {
  for (const HeldOut set : kHeldOut) {
    const int64_t examples = task.examples(set);
    if (examples == 0 || examples >= kFewExamples) continue;
    log.warn(concat(name_of(set), " has only ", examples, examples == 1 ? " example" : " examples",
                    ": its figures say little"));
  }
}

// Reads the data and makes the model. Frees the memory of encoding.
void make_task(Ranks& ranks, StartedTraining& start, const Report& report) {
  if (ranks.is_alone()) expect_room(start.config, *start.resume, *start.log);
  start.task = make_task_of_ranks(ranks, start.config, *start.resume, report);
  release_free_memory();
  warn_of_few_examples(*start.task, *start.log);
}

}  // namespace

StartedTraining start_training(Ranks& ranks, const StartArguments& arguments) {
  StartedTraining start;
  std::vector<std::string> options = {"--resume", arguments.resume};
  // A rank that stopped at another update would leave the others waiting for it.
  if (arguments.stop_at != kNoStop) options.push_back(concat("--stop-at=", arguments.stop_at));
  start.config = join_ranks(ranks, arguments.config, arguments.overrides, options);
  Device device;
  if (ranks.is_first()) {
    device = set_up_machine(start.config, ranks);
    start = start_first_rank(arguments.resume, std::move(start.config), device, ranks);
  } else {
    start.log = RunLog::of_other_rank(ranks.prefix());
  }
  RunLog& log = *start.log;
  const Report report([&log](const std::string& message) { log.info(message); },
                      [&log](const std::string& message) { log.warn(message); });
  share_start(ranks, start.config, start.resume, report);
  if (!ranks.is_first()) device = set_up_machine(start.config, ranks);
  tell_machine(start.config, device, ranks, log);
  log_facts(arguments.commit, device, ranks, start.resume->state().step, log);
  start.resume->computed_by(compare_kernels(ranks, start.config, *start.resume, log));
  make_task(ranks, start, report);
  log.info("model: " + learning_summary(start.task->parameters(), start.config));
  const std::string taken = start.resume->take_over(*start.task, start.config);
  if (!taken.empty()) log.info("init_from: " + taken);
  if (start.resume->goes_on()) {
    log.info(concat("resuming after update ", start.resume->state().step));
  }
  return start;
}

}  // namespace tapestry
