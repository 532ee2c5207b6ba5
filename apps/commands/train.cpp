// tapestry train: trains the model of a config file.
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/pages/report.h"
#include "apps/config/reference.h"
#include "apps/run/launch/launcher.h"
#include "apps/run/pretrained.h"
#include "apps/run/start_training.h"
#include "apps/run/trainer/trainer.h"
#include "apps/run/updates.h"
#include "core/allocator.h"

namespace tapestry {
namespace {

struct TrainArguments : ConfigArguments {
  std::string resume = "auto";  ///< auto | never | path of a checkpoint
  int64_t stop_at = kNoStop;
  int64_t ranks = 0;  ///< 0: this process is one
};

// A report that cannot be written must not change how a training ends.
void tell_report(const RunFolder* folder, RunLog& log) {
  if (folder == nullptr) return;
  const std::string path = concat(folder->path(), '/', kReportFile);
  release_free_memory();  // the report takes its own
  try {
    write_report({folder->path()}, path);
    log.info("report: " + path);
  } catch (const std::exception& error) {
    log.warn(concat("no report: ", error.what()));
  }
}

int launch(const TrainArguments& arguments) {
  const auto words = [&](const std::string& resume) {
    std::vector<std::string> all = {"train", arguments.config, "--resume", resume};
    if (arguments.stop_at != kNoStop) all.push_back(concat("--stop-at=", arguments.stop_at));
    all.insert(all.end(), arguments.overrides.begin(), arguments.overrides.end());
    return all;
  };
  return launch_ranks(load_run_config(arguments.config, arguments.overrides),
                      {arguments.ranks, arguments.resume, words});
}

int run_train(const TrainArguments& arguments, Program& program) {
  if (arguments.ranks > 0) return launch(arguments);
  Ranks& ranks = program.ranks;
  StartedTraining start = start_training(
      ranks,
      {arguments.config, arguments.overrides, arguments.resume, arguments.stop_at, program.commit});
  RunFolder* const folder = start.folder.get();
  Trainer trainer(start.config, *start.task, ranks, folder, *start.log, std::move(*start.resume));
  int code = 0;
  try {
    code = trainer.run(arguments.stop_at);
  } catch (const Error& error) {
    // A training that diverged is the one to look at.
    if (error.kind() == ErrorKind::kDiverged) tell_report(folder, *start.log);
    throw;
  }
  if (code == 0) tell_report(folder, *start.log);
  return code;
}

void add_train(CLI::App& app, TrainArguments& arguments, Program& program) {
  add_config(app, arguments);
  app.add_option("--resume", arguments.resume,
                 "auto: go on from output_dir's newest checkpoint; never; or a checkpoint's path")
      ->capture_default_str();
  app.add_option("--stop-at", arguments.stop_at,
                 "saves and ends after this update; a later start goes on with the same bits")
      ->type_name("UPDATE")
      ->check(number<int64_t>(at_least(1)));
  app.add_option("--ranks", arguments.ranks,
                 "starts this number of ranks on this machine, which train together (over Open "
                 "MPI's mpirun); see distributed.on_failure")
      ->check(number<int64_t>(between(1, 4096)));
  app.add_flag_callback(
      "--help-keys",
      [&program] {
        program.run = [] {
          std::cout << describe_all_keys();
          return 0;
        };
        throw CLI::Success();  // no config is needed
      },
      "list every key of a config");
}

}  // namespace

extern const Command kTrain("train", "Train the model of a config file", add_train, run_train);

}  // namespace tapestry
