// train() and evaluate().
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <csignal>
#include <memory>
#include <mutex>

#include "apps/checkpoint/model_bundle.h"
#include "apps/python/calls.h"
#include "apps/run/outputs/reporter.h"
#include "apps/run/signals.h"
#include "apps/run/start_training.h"
#include "apps/run/trainer/trainer.h"
#include "apps/run/updates.h"
#include "apps/tasks/evaluation.h"
#include "apps/tasks/evaluation_data.h"
#include "core/cpu/parallel.h"

namespace tapestry {
extern const char* const kCommit;

namespace python {
namespace {

// Metrics go to the callbacks; the exception of one stops the training.
class CallbackReporter : public Reporter {
 public:
  CallbackReporter(nb::object on_update, nb::object on_validation, PythonSignals& signals)
      : on_update_(std::move(on_update)),
        on_validation_(std::move(on_validation)),
        signals_(signals) {}
  ~CallbackReporter() override {
    const nb::gil_scoped_acquire acquired;
    on_update_.reset();
    on_validation_.reset();
  }

  void metrics(int64_t step, const std::string& kind, const MetricValues& values) override {
    const nb::gil_scoped_acquire acquired;
    const nb::object& asked = kind == "train"   ? on_update_
                              : kind == "valid" ? on_validation_
                                                : none_;
    if (!asked.is_valid() || asked.is_none() || signals_.failed()) return;
    try {
      nb::dict named;
      for (const auto& [name, value] : values) named[nb::str(name.c_str())] = value;
      asked(step, named);
    } catch (nb::python_error& error) {
      signals_.keep(std::move(error));
    }
  }
  void finish() override {}

 private:
  nb::object on_update_, on_validation_, none_;
  PythonSignals& signals_;
};

// A dict as text, which the reader of configs takes as it takes a file's.
ConfigSource source_of(const nb::object& config) {
  if (nb::isinstance<nb::dict>(config)) {
    const nb::object text = nb::module_::import_("tapestry.configs").attr("text_of")(config);
    return {"config", nb::cast<std::string>(text)};
  }
  return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(config));
}

// The number of threads belongs to the process: a training leaves it as it was.
class ThreadsAsBefore {
 public:
  ThreadsAsBefore() : before_(num_threads()) {}
  ~ThreadsAsBefore() { set_num_threads(before_); }

 private:
  int before_;
};

std::string train(const nb::object& config, const std::vector<std::string>& overrides,
                  const std::string& resume, const std::optional<int64_t>& stop_at,
                  const nb::object& on_update, const nb::object& on_validation) {
  static std::mutex one_at_a_time;
  const StartArguments arguments{source_of(config), overrides, resume, stop_at.value_or(kNoStop),
                                 kCommit};
  PythonSignals signals;
  auto reporter = std::make_unique<CallbackReporter>(on_update, on_validation, signals);
  std::string folder;
  {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(one_at_a_time);
    const ThreadsAsBefore threads;
    const SignalsFrom python([&] { return signals.pending() ? SIGINT : 0; });
    Ranks ranks;
    StartedTraining start = start_training(ranks, arguments);
    if (start.folder) folder = start.folder->path();
    start.log->report_to(std::move(reporter));
    Trainer trainer(start.config, *start.task, ranks, start.folder.get(), *start.log,
                    std::move(*start.resume));
    trainer.run(arguments.stop_at);
    ranks.leave();
  }
  signals.raise();
  return folder;
}

nb::object evaluate(const std::string& model, const nb::object& data, const std::string& device) {
  std::vector<std::string> named;
  if (nb::isinstance<nb::dict>(data)) {
    const nb::object keys = nb::module_::import_("tapestry.configs").attr("keys_of")(data);
    named = nb::cast<std::vector<std::string>>(keys);
  } else {
    named = {nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(data))};
  }
  const std::string json = without_gil([&] {
    ModelFiles files = read_model_files(model);
    const std::vector<CorpusSpec> corpora = corpora_to_measure(files.config, named);
    return to_json(evaluate_on(std::move(files), device, corpora));
  });
  return nb::module_::import_("json").attr("loads")(json);
}

}  // namespace

void bind_training(nb::module_& module) {
  using nb::literals::operator""_a;
  module.def(
      "train", &train, "config"_a, "overrides"_a = std::vector<std::string>(), nb::kw_only(),
      "resume"_a = "auto", "stop_at"_a = nb::none(), "on_update"_a = nb::none(),
      "on_validation"_a = nb::none(),
      nb::sig("def train(config: dict | str | os.PathLike, "
              "overrides: collections.abc.Sequence[str] = (), *, resume: str = 'auto', "
              "stop_at: int | None = None, "
              "on_update: collections.abc.Callable[[int, dict[str, float]], object] | None = None, "
              "on_validation: collections.abc.Callable[[int, dict[str, float]], object] | None = "
              "None) -> str"),
      "Trains the model of a config, a dict or a YAML file, and returns its run folder.\n\n"
      "Paths in a dict are relative to the working directory, those in a file to the file. "
      "overrides: \"section.key=value\". resume: auto goes on from the newest checkpoint; never; "
      "or a checkpoint's path. stop_at: saves and ends after this update.\n\n"
      "on_update(step, metrics) is called at each log line (training.logging_steps), "
      "on_validation(step, metrics) after each validation.\n\n"
      "Ctrl-C, or an exception of a callback, stops at the end of the update and saves: the same "
      "call goes on from there with the same bits. One training at a time.\n\n"
      "Raises ConfigError with all that is wrong, each with its line; DataError, DivergedError, "
      "OutOfMemoryError.");
  module.def("evaluate", &evaluate, "model"_a, "data"_a = "valid", nb::kw_only(),
             "device"_a = "auto",
             nb::sig("def evaluate(model: str, data: dict | str | os.PathLike = 'valid', *, "
                     "device: str = 'auto') -> dict"),
             "What the model of a run or checkpoint achieves on data, by name of metric; intervals "
             "of 95 % in \"intervals\".\n\n"
             "data: train, valid or test (of its config), a file whose ending tells what it holds, "
             "or a dict with keys as of data.train.");
}

}  // namespace python
}  // namespace tapestry
