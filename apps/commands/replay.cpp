// tapestry replay: computes an update of a run again, and finds the first value that is not finite.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/run/start.h"
#include "apps/run/trainer/trainer.h"
#include "core/base/printable.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

struct ReplayArguments {
  std::string run = {};
  int64_t step = 0;   ///< 0: lists the run's records
  int64_t texts = 8;  ///< rows shown of each micro-batch; 0: all
  int threads = 0;    ///< 0: the config's
};

constexpr size_t kListed = 20;  // records

// The name of what the run kept of this update if something went wrong in it.
std::string incident_of(const std::string& run, int64_t step) {
  return concat(run, '/', kIncidentPrefix, step);
}

// The weights that come nearest before an update.
struct Source {
  std::string path;  ///< of an incident or a checkpoint; "" if the run starts from the beginning
  std::optional<Checkpoint> files;
};

// The newest whole one from before the step.
Source source_of(const std::string& run, int64_t step) {
  const std::string incident = incident_of(run, step);
  if (is_checkpoint(incident)) return {incident, Checkpoint(incident)};
  std::vector<int64_t> steps = checkpoint_steps(run);
  std::erase_if(steps, [&](int64_t of) { return of >= step; });
  for (auto of = steps.rbegin(); of != steps.rend(); ++of) {
    const std::string path = concat(run, "/checkpoint-", *of);
    try {
      Checkpoint checkpoint(path);
      checkpoint.open_all();
      return {path, std::move(checkpoint)};
    } catch (const Error& error) {
      std::cerr << "warning: " << path << " is passed over: " << error.what() << '\n';
    }
  }
  return {};
}

// Throws Error(kConfig) for an update that the run did not make, as far as its records say.
void check_step(const ReplayArguments& arguments, const std::vector<UpdateRecord>& records) {
  if (records.empty()) return;
  int64_t last = records.back().step;
  for (const int64_t step : checkpoint_steps(arguments.run)) last = std::max(last, step);
  if (arguments.step <= last || is_checkpoint(incident_of(arguments.run, arguments.step))) return;
  fail(ErrorKind::kConfig, "[replay] ", arguments.run, " has made ", last,
       last == 1 ? " update" : " updates", ", got --step ", arguments.step, '.');
}

Config config_of(Source& source, const std::string& run) {
  Config config = source.files ? load_checkpoint_config(source.files->read(kConfigFile),
                                                        source.path + "/" + kConfigFile)
                               : load_config(run + "/config.yaml");
  config.output_dir = fs::absolute(run);  // a run may have moved
  return config;
}

std::string place_text(const UpdateRecord& record) {
  return fmt::format("seed {}, epoch {}, from batch {} on: {} micro-batches, {} tokens, {} targets",
                     record.seed, record.start.epoch, record.start.batch, record.micro_batches,
                     record.tokens, record.targets);
}

std::string health_text(const UpdateRecord& record) {
  std::string text = fmt::format("loss {:.6g}  nll {:.6g}  gradient norm {:.6g}  clip {:.4g}",
                                 record.loss, record.nll, record.grad_norm, record.clip);
  if (record.zero_gradients) {
    text += fmt::format("  zero gradients {:.2f} %", 100 * *record.zero_gradients);
  }
  if (record.largest_activation) {
    text += fmt::format("  largest activation {:.4g}", *record.largest_activation);
  }
  return text;
}

int list(const std::string& run, const std::vector<UpdateRecord>& records) {
  if (records.empty()) {
    fail(ErrorKind::kData, "[replay] ", run, " has no ", FlightRecorder::kFile, '.');
  }
  for (size_t i = records.size() - std::min(records.size(), kListed); i < records.size(); ++i) {
    fmt::print("update {:>8}  {}\n", records[i].step, health_text(records[i]));
  }
  for (const UpdateRecord& record : records) {
    const std::string incident = incident_of(run, record.step);
    if (!is_checkpoint(incident)) continue;
    fmt::print("{}{}: {}", kIncidentPrefix, record.step, Checkpoint(incident).read(kIncidentFile));
  }
  return 0;
}

void print_texts(const Replayed& replayed, int64_t most) {
  for (size_t i = 0; i < replayed.texts.size(); ++i) {
    const std::vector<std::string>& rows = replayed.texts[i];
    const int64_t shown = most == 0 ? std::ssize(rows) : std::min(most, std::ssize(rows));
    fmt::print("micro-batch {}, {} of {} rows:\n", i, shown, rows.size());
    for (int64_t row = 0; row < shown; ++row) {
      std::string text = printable(rows[static_cast<size_t>(row)]);
      for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
        text.replace(at, 1, "\\n");
      }
      fmt::print("  {}\n", text);
    }
  }
}

void print(const Replayed& replayed, const std::vector<UpdateRecord>& records, int64_t most) {
  const UpdateRecord& now = replayed.record;
  fmt::print("{}\n{}\n", place_text(now), health_text(now));
  for (const auto& [layer, norm] : now.layers) fmt::print("  {:<32} {:.4g}\n", layer, norm);
  const auto before = std::ranges::find(records, now.step, &UpdateRecord::step);
  if (before == records.end()) {
    fmt::print("the run has no record of this update to compare with\n");
  } else if (before->same_bits(now)) {
    fmt::print("loss and gradient norm have the bits that the run recorded\n");
  } else {
    fmt::print("NOT the bits that the run recorded: {}\n", health_text(*before));
  }
  fmt::print("first number that is none: {}\n",
             replayed.finding ? replayed.finding->str() : "all are finite");
  print_texts(replayed, most);
}

int run_replay(const ReplayArguments& arguments, Program& program) {
  Ranks& ranks = program.ranks;
  if (!fs::is_directory(arguments.run)) {
    fail(ErrorKind::kConfig, "[replay] ", arguments.run, " is no run folder.");
  }
  const std::vector<UpdateRecord> records =
      FlightRecorder::read(arguments.run + "/" + FlightRecorder::kFile);
  if (arguments.step == 0) return list(arguments.run, records);
  check_step(arguments, records);

  Source source = source_of(arguments.run, arguments.step);
  Config config = config_of(source, arguments.run);
  config.device = ranks.device(config.device);
  checked_device(config);
  set_num_threads(arguments.threads > 0 ? arguments.threads : config.threads);
  RunLog log;
  Resume resume(std::move(source.files), config);
  settle_parts(config, resume, ranks.size());
  const std::string kernels = compare_kernels(ranks, config, resume, log);
  const Report report([](const std::string&) {});
  const std::unique_ptr<TrainingTask> task = make_task_of_ranks(ranks, config, resume, report);
  resume.take_over(*task, config);
  const int64_t before = resume.state().step;
  fmt::print("update {} of {}, from {}{}\n", arguments.step, arguments.run,
             source.path.empty() ? "the beginning" : source.path,
             before + 1 < arguments.step
                 ? concat(" by way of ", arguments.step - 1 - before,
                          arguments.step - 1 - before == 1 ? " update" : " updates")
                 : "");
  std::cout.flush();
  Trainer trainer(config, *task, ranks, nullptr, log, std::move(resume));
  print(trainer.replay(arguments.step), records, arguments.texts);
  return 0;
}

void add_replay(CLI::App& app, ReplayArguments& arguments) {
  app.add_option("run", arguments.run, "run folder")->required();
  app.add_option("--step", arguments.step,
                 "the update, 1 for the first; without it the last records are listed")
      ->check(number<int64_t>(at_least(1)));
  app.add_option("--texts", arguments.texts, "rows shown of each micro-batch; 0: all")
      ->capture_default_str()
      ->check(number<int64_t>(at_least(0)));
  app.add_option("--threads", arguments.threads, "0: as the config says")
      ->check(number<int>(between(0, 1024)));
}

}  // namespace

extern const Command kReplay(
    "replay", "An update of a run once more: the same bits, the first number that is none, texts",
    add_replay, run_replay);

}  // namespace tapestry
