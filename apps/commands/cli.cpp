#include "apps/commands/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "apps/commands/cli_options.h"
#include "apps/commands/import_export.h"
#include "apps/commands/pages/watch.h"
#include "apps/commands/plan.h"
#include "apps/commands/replay.h"
#include "apps/interop/architectures.h"
#include "apps/interop/export_formats.h"
#include "apps/run/program_facts.h"
#include "apps/run/progress_line.h"
#include "apps/run/ranks.h"
#include "core/device_runtime.h"
#include "core/error.h"
#include "core/nearest_name.h"
#include "core/text.h"
#include "data/corpus.h"
#include "nn/decoding.h"

namespace tapestry {
namespace {

void add_config(CLI::App* command, std::string& config, std::vector<std::string>& overrides) {
  command->add_option("config", config, "YAML file")->required();
  command->add_option("overrides", overrides, "section.key=value, winning over the file");
}

void add_train(CLI::App& app, Run& run, Ranks& ranks, const char* commit) {
  auto* command = app.add_subcommand("train", "Train the model of a config file");
  auto arguments = std::make_shared<TrainArguments>();
  arguments->commit = commit;
  add_config(command, arguments->config, arguments->overrides);
  command
      ->add_option("--resume", arguments->resume,
                   "auto: go on from output_dir's newest checkpoint; never; or a checkpoint's path")
      ->capture_default_str();
  command->add_flag_callback(
      "--help-keys",
      [&run] {
        run = [] { return run_help({.all = true}); };
        throw CLI::Success();  // no config is needed
      },
      "list every key of a config");
  command->callback([&run, &ranks, arguments] {
    run = [&ranks, arguments] { return run_train(*arguments, ranks); };
  });
}

void add_evaluate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("evaluate",
                                     "BLEU and chrF with sacreBLEU's signature, ROUGE; or what a "
                                     "model achieves on data");
  auto arguments = std::make_shared<EvaluateArguments>();
  auto* hypothesis = add_translation_options(*command, arguments->translations);
  auto* model = command->add_option("--model", arguments->model, "run or checkpoint");
  auto* data = command->add_option(
      "--data", arguments->data,
      "what to measure the model on: train, valid or test (of its config), a file (.tsv, .csv, "
      ".jsonl, .txt, .json; also compressed), or keys as of data.train (source=FILE target=FILE)");
  auto* text = command->add_option("--text", arguments->text, "short for --data text=FILE");
  command
      ->add_option("--documents", arguments->documents,
                   join(names_of(CorpusSpec::kDocuments), " | ") + " (default: as in the training)")
      ->check(CLI::IsMember(names_of(CorpusSpec::kDocuments)));
  command->add_flag("--json", arguments->json, "one JSON object");
  hypothesis->excludes(model);
  auto* images = command->add_option("--images", arguments->images, "short for --data images=FILE");
  auto* labels = command->add_option("--labels", arguments->labels, "IDX file of their labels");
  auto* squad = command->add_option("--squad", arguments->squad, "short for --data squad=FILE");
  auto* jsonl = command->add_option("--jsonl", arguments->jsonl, "short for --data jsonl=FILE");
  const std::vector<CLI::Option*> sources = {data, text, images, squad, jsonl};
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i]->needs(model);
    for (size_t j = 0; j < i; ++j) sources[i]->excludes(sources[j]);
  }
  labels->needs(images);
  add_compute(command, arguments->compute);
  command->callback([&run, arguments] { run = [arguments] { return run_evaluate(*arguments); }; });
}

void add_gradcheck(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "gradcheck", "Check every gradient by finite differences; exit code 1 when one fails");
  auto arguments = std::make_shared<GradcheckArguments>();
  command->add_option("config", arguments->config, "also check this config's model, made small");
  command->add_option("overrides", arguments->overrides, "section.key=value");
  command->add_option("--filter", arguments->filter, "only rows whose name holds this");
  command->callback([&run, arguments] { run = [arguments] { return run_gradcheck(*arguments); }; });
}

void add_inspect(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("inspect", "Parameters, shapes, memory and tokenizer");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("path", arguments->path, "checkpoint, run folder or config")->required();
  command->add_option("overrides", arguments->overrides, "section.key=value");
  command->add_flag("--shapes", arguments->shapes,
                    "the shapes that go through the model, too, from a dry run");
  command->callback([&run, arguments] { run = [arguments] { return run_inspect(*arguments); }; });
}

void add_plan(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "plan",
      "The memory, time and disk that a training will take; exit code 5 when the memory "
      "is not there");
  auto arguments = std::make_shared<PlanArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command->add_option("--ranks", arguments->ranks, "that share it: figures of one of them")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->callback([&run, arguments] { run = [arguments] { return run_plan(*arguments); }; });
}

void add_replay(CLI::App& app, Run& run, Ranks& ranks) {
  auto* command = app.add_subcommand(
      "replay",
      "An update of a run once more: the same bits, the first number that is none, texts");
  auto arguments = std::make_shared<ReplayArguments>();
  command->add_option("run", arguments->run, "run folder")->required();
  command
      ->add_option("--step", arguments->step,
                   "the update, 1 for the first; without it the last records are listed")
      ->check(CLI::PositiveNumber);
  command->add_option("--texts", arguments->texts, "rows shown of each micro-batch; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", arguments->threads, "0: as the config says")
      ->check(CLI::NonNegativeNumber);
  command->callback([&run, &ranks, arguments] {
    run = [&ranks, arguments] { return run_replay(*arguments, ranks); };
  });
}

void add_average(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("average", "Average the parameters of checkpoints");
  auto arguments = std::make_shared<AverageArguments>();
  command->add_option("checkpoints", arguments->inputs, "checkpoint folders")->required();
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_average(*arguments); }; });
}

void add_report(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "report", "One HTML page about runs: curves, examples, confusions, configs, machines");
  auto arguments = std::make_shared<ReportArguments>();
  command->add_option("runs", arguments->runs, "run folders; several are drawn over each other")
      ->required();
  command->add_option("--output", arguments->output, "file to write, - for stdout")
      ->capture_default_str();
  command->callback([&run, arguments] { run = [arguments] { return run_report(*arguments); }; });
}

void add_watch(CLI::App& app, Run& run) {
  auto* command =
      app.add_subcommand("watch", "The curves of runs in the terminal, while they train");
  auto arguments = std::make_shared<WatchArguments>();
  command->add_option("runs", arguments->runs, "run folders")->required();
  command->add_option("--interval", arguments->interval, "seconds from one look to the next")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", arguments->once, "print what is there and end");
  command->footer(
      "n or space turns to the next page of charts, p to the one before. q leaves it; the training "
      "does not notice.");
  command->callback([&run, arguments] { run = [arguments] { return run_watch(*arguments); }; });
}

void add_import(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("import", "Make a checkpoint of a Hugging Face folder");
  auto arguments = std::make_shared<ImportArguments>();
  command
      ->add_option("folder", arguments->folder,
                   "with config.json and model.safetensors, or PEFT's with adapters")
      ->required();
  command->add_option("--base", arguments->base,
                      "Hugging Face folder of the adapters' model (default: the one they name)");
  command->add_option("--output", arguments->output, "checkpoint to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_import(*arguments); }; });
}

void add_export(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("export", "Write a model as other systems read it");
  auto arguments = std::make_shared<ExportArguments>();
  command->add_option("--model", arguments->model, "checkpoint or run folder")->required();
  command->add_option("--format", arguments->format, join(interop::export_format_names(), " | "))
      ->check(CLI::IsMember(interop::export_format_names()))
      ->capture_default_str();
  std::vector<std::string> architectures;
  for (const auto* one : interop::architectures()) architectures.emplace_back(one->name);
  command->add_option("--architecture", arguments->architecture,
                      concat("of a Hugging Face folder: ", join(architectures, ", "),
                             " (default: the first that the model fits)"));
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_export(*arguments); }; });
}

void add_bench(CLI::App& app, Run& run, Ranks& ranks) {
  auto* command = app.add_subcommand(
      "bench", "Time training steps, or with --decode the answers of a config's model or of a run");
  auto arguments = std::make_shared<BenchArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command->add_option("--shape", arguments->shape,
                      "BxSxT, or BxT for a language model: synthetic tokens (default: the config's "
                      "data); with --decode BxSxT for all: answers, tokens of each source or "
                      "prompt, tokens of each answer");
  auto* decode = command->add_flag(
      "--decode", arguments->decode,
      "greedy search and beam search, with float32 and int8 weights, and their memory; of one "
      "prompt also the share of what the memory's bandwidth allows");
  command->add_option("--beam-size", arguments->beam_size, "of --decode (default: the config's)")
      ->check(CLI::Range(int64_t{1}, SearchOptions::kMostBeams))
      ->needs(decode);
  command->add_option("--threads", arguments->threads, "of --decode; 0: as the config says")
      ->check(CLI::NonNegativeNumber)
      ->needs(decode);
  command->add_option("--steps", arguments->steps, "timed steps, or rounds of --decode")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup-steps", arguments->warmup_steps, "steps before those")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json, "also write the figures to this file");
  command->callback([&run, &ranks, arguments] {
    run = [&ranks, arguments] {
      return arguments->decode ? bench_decoding(*arguments) : run_bench(*arguments, ranks);
    };
  });
}

/// " did you mean 'train'?" if one of the names is similar to the word, both without leading
/// dashes.
std::string suggestion(const std::string& word, std::vector<std::string> names,
                       const char* dashes = "") {
  for (std::string& name : names) std::replace(name.begin(), name.end(), '-', '_');
  std::string nearest = nearest_name(word, names);
  std::replace(nearest.begin(), nearest.end(), '_', '-');
  return nearest.empty() ? "" : concat(" did you mean '", dashes, nearest, "'?");
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

/// The help of a command, the keys of a config, or, if nothing is asked for, all that there is.
int answer_help(const CLI::App& app, const HelpArguments& arguments) {
  if (arguments.markdown || arguments.schema) return run_help(arguments);
  // App::help() would be that of the command that was given, which is `help`.
  const auto text_of = [](const CLI::App& asked, const std::string& name) {
    return asked.get_formatter()->make_help(&asked, name, CLI::AppFormatMode::Normal);
  };
  if (arguments.key.empty()) {
    std::cout << text_of(app, app.get_name())
              << "\ntapestry help COMMAND, tapestry COMMAND --help: the options of a command\n\n";
    return run_help(arguments);
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() != arguments.key) continue;
    std::cout << text_of(*command, concat(app.get_name(), ' ', arguments.key));
    return 0;
  }
  try {
    return run_help(arguments);
  } catch (const Error& error) {  // no such key
    const std::string command = suggestion(arguments.key, command_names(app));
    if (command.empty()) throw;
    fail(error.kind(), error.what(), " Of the commands,", command);
  }
}

void add_help(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("help", "Explain a command, or the keys of a config");
  auto arguments = std::make_shared<HelpArguments>();
  command->add_option("word", arguments->key,
                      "command, or key or section of a config, such as training.optimizer");
  command->add_flag("--markdown", arguments->markdown, "all keys, as the page configs/README.md");
  command->add_flag("--schema", arguments->schema,
                    "all keys, as the JSON Schema configs/schema.json, which editors know");
  command->callback([&app, &run, arguments] {
    run = [&app, arguments] { return answer_help(app, *arguments); };
  });
}

/// The error message for a command line that cannot be parsed.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const CLI::App& asked = commands.empty() ? app : *commands.front();
  if (const std::string word = argc > 1 ? argv[1] : "";
      commands.empty() && !word.empty() && !word.starts_with('-')) {
    return concat("unknown command '", word, "';", suggestion(word, command_names(app)));
  }
  for (const std::string& given : asked.remaining()) {
    const size_t dashes = given.find_first_not_of('-');
    if (dashes == 0 || dashes == std::string::npos) continue;
    const std::string word = given.substr(0, given.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* option : asked.get_options()) {
      const std::vector<std::string>& own = option->get_lnames();
      names.insert(names.end(), own.begin(), own.end());
    }
    return concat("unknown option '", word, "'",
                  commands.empty() ? "" : concat(" of ", asked.get_name()), ';',
                  suggestion(word.substr(dashes), names, "--"));
  }
  return error.what();
}

/// The sentence with a full stop, which a missing suggestion and CLI11 leave out.
std::string ended(std::string sentence) {
  if (sentence.ends_with(';')) sentence.pop_back();
  return sentence.ends_with('.') || sentence.ends_with('?') ? sentence : sentence + '.';
}

// Facts for a bug report.
std::string version_text(const char* commit) {
  std::string text;
  for (const auto& [name, value] : program_facts(commit)) {
    text += concat(text.empty() ? "" : "\n", name, name == "tapestry" ? " " : ": ", value);
  }
  return text;
}

/// Results that did not reach stdout (a full disk, say) are a failure like any other.
bool stdout_is_written() { return std::cout.flush().good() && std::fflush(stdout) == 0; }

// With TAPESTRY_GPU_TIMES in the environment, prints the GPU's times on stderr.
int run_timed(const Run& run) {
  if (std::getenv("TAPESTRY_GPU_TIMES") == nullptr) return run();
  time_kernels();
  const int code = run();
  const std::vector<KernelTime> times = kernel_times();
  double total = 0;
  for (const KernelTime& time : times) total += time.milliseconds;
  fmt::print(stderr, "{:>12} {:>9} {:>7}  on the GPU, without CUDA graphs\n", "ms", "launches",
             "share");
  for (const KernelTime& time : times) {
    fmt::print(stderr, "{:>12.3f} {:>9} {:>6.2f}%  {}\n", time.milliseconds, time.launches,
               total > 0 ? 100 * time.milliseconds / total : 0, time.name);
  }
  fmt::print(stderr, "{:>12.3f}  in total\n", total);
  return code;
}

// Turns exceptions into messages and exit codes. Ends the other ranks after a failure of this one,
// which would leave them waiting.
int run_guarded(const Run& run, Ranks& ranks) {
  const auto report = [&](const std::string& message, ErrorKind kind) {
    return ranks.fail(message, static_cast<int>(kind));
  };
  try {
    const ProgressDisplay display;
    const int code = run_timed(run);
    if (!stdout_is_written()) return report("cannot write to stdout.", ErrorKind::kRuntime);
    ranks.leave();
    return code;
  } catch (const Error& error) {
    return report(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return report("out of memory.", ErrorKind::kOutOfMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    const bool name = error.code() == std::errc::filename_too_long;
    return report(concat("[file] ", error.path1().string(), ": ", error.code().message(), '.'),
                  name ? ErrorKind::kData : ErrorKind::kRuntime);
  } catch (const std::exception& error) {
    return report(error.what(), ErrorKind::kRuntime);
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const char* commit) {
  CLI::App app{"Tapestry trains Transformers from a YAML file.", "tapestry"};
  app.require_subcommand(1);
  app.set_version_flag("--version", [commit] { return version_text(commit); });
  app.set_help_all_flag("--help-all", "the help of every command; train --help-all: every key");
  Ranks ranks;
  Run run;
  add_train(app, run, ranks, commit);
  add_filters(app, run);
  add_evaluate(app, run);
  add_gradcheck(app, run);
  add_plan(app, run);
  add_replay(app, run, ranks);
  add_inspect(app, run);
  add_report(app, run);
  add_watch(app, run);
  add_average(app, run);
  add_import(app, run);
  add_export(app, run);
  add_bench(app, run, ranks);
  add_help(app, run);
  if (argc <= 1) {
    std::cout << app.help();
    return stdout_is_written() ? 0 : static_cast<int>(ErrorKind::kRuntime);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForAllHelp& all) {
    app.exit(all);
    const std::vector<CLI::App*> asked = app.get_subcommands();
    const bool keys = !asked.empty() && asked[0]->get_option_no_throw("--help-keys") != nullptr;
    if (keys) std::cout << "\nKeys of a config:\n\n";
    return keys ? run_guarded([] { return run_help({.all = true}); }, ranks) : 0;
  } catch (const CLI::Success& success) {  // --help, --version, --help-keys
    return run ? run_guarded(run, ranks) : app.exit(success);
  } catch (const CLI::ParseError& error) {
    return ranks.fail(concat(ended(explain(app, error, argc, argv)), " See tapestry --help."),
                      static_cast<int>(ErrorKind::kConfig));
  }
  return run_guarded(run, ranks);
}

}  // namespace tapestry
