#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/commands/commands.h"
#include "apps/config/config.h"
#include "apps/run/log.h"
#include "apps/run/resume.h"
#include "apps/run/signals.h"
#include "apps/run/trainer.h"
#include "core/blas.h"
#include "core/device_runtime.h"
#include "core/parallel.h"
#include "data/files.h"

namespace tapestry {
namespace {

constexpr int64_t kFewExamples = 50;  // fewer than these make a metric that nobody can rely on

}  // namespace

int run_train(const TrainArguments& arguments) {
  Config config = load_config(arguments.config, arguments.overrides);
  const Device device = parse_device(config.device);
  set_num_threads(config.threads);
  check_precision(training_precision(config, device), device);
  install_signal_handlers();
  RunFolder folder(config.output_dir);
  Resume resume(arguments.resume, folder, config);
  RunLog log(folder.path(), resume.state().step);
  for (const std::string& name : config.training.report_to) {
    log.report_to(make_reporter(name, {.folder = folder.path(),
                                       .resumed_step = resume.state().step,
                                       .keys = flat_keys(config),
                                       .metric = config.training.metric_for_best_model}));
  }
  write_file(folder.file("config.yaml"), to_yaml(config));
  if (!resume.passed_over().empty()) log.warn(resume.passed_over());
  if (!resume.changes().empty()) {
    if (resume.goes_on()) {
      log.info("changed since the checkpoint: " + resume.changes());
    } else {
      log.warn("the model of init_from computes otherwise: " + resume.changes());
    }
  }
  if (config.lora.rank > 0 && config.init_from.empty() && !resume.goes_on()) {
    log.warn("training.lora without init_from: what stays as it is was drawn at random");
  }
  if (const std::string why = why_no_gpu(); config.device == "auto" && !why.empty()) {
    log.warn(concat("no GPU answers: ", why));
  }
  log.info(concat("device ", device, ", ", num_threads(), " threads, ", blas_description()));
  if (const std::string warning = blas_warning(); !warning.empty()) log.warn(warning);

  const std::unique_ptr<TrainingTask> task =
      make_task(config, resume.tokenizers(), resume.state().position,
                {[&](const std::string& message) { log.info(message); },
                 [&](const std::string& message) { log.warn(message); },
                 [&](const std::string& what, const LoadProgress& progress) {
                   log.loading(what, progress.share, concat(progress.read, " read"));
                 }});
  // With what the task found in the data: classes, the format of images.
  write_file(folder.file("config.yaml"),
             to_yaml(load_checkpoint_config(task->files().at(kConfigFile), kConfigFile)));
  for (const HeldOut set : kHeldOut) {
    const int64_t examples = task->examples(set);
    if (examples == 0 || examples >= kFewExamples) continue;
    log.warn(concat(name_of(set), " has only ", examples, examples == 1 ? " example" : " examples",
                    ": its figures say little"));
  }
  const ParamStore& store = task->parameters();
  log.info(concat("model: ", store.elements(), " parameters in ", store.parameters().size(),
                  " tensors"));
  const std::string taken = resume.take_over(*task, config);
  if (!taken.empty()) log.info("init_from: " + taken);
  if (resume.goes_on()) log.info(concat("resuming after update ", resume.state().step));
  Trainer trainer(config, *task, folder, log, std::move(resume));
  return trainer.run();
}

}  // namespace tapestry
