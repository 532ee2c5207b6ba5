#include "apps/cli.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <new>

#include "apps/commands.h"
#include "core/error.h"

namespace tapestry {
namespace {

using Run = std::function<int()>;

void add_compute(CLI::App* command, ComputeArguments& compute) {
  command->add_option("--device", compute.device, "auto | cpu | cuda | cuda:N")
      ->capture_default_str();
  command->add_option("--threads", compute.threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_config(CLI::App* command, std::string& config, std::vector<std::string>& overrides) {
  command->add_option("config", config, "YAML file")->required();
  command->add_option("overrides", overrides, "section.key=value, winning over the file");
}

void add_train(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("train", "Train the model of a config file");
  auto arguments = std::make_shared<TrainArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command
      ->add_option("--resume", arguments->resume,
                   "auto: go on from output_dir's newest checkpoint; never; or a checkpoint's path")
      ->capture_default_str();
  command->callback([&run, arguments] { run = [arguments] { return run_train(*arguments); }; });
}

void add_translate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("translate", "Translate standard input line by line");
  auto arguments = std::make_shared<TranslateArguments>();
  command->add_option("--model", arguments->model, "checkpoint or run folder")->required();
  command
      ->add_option("--beam-size", arguments->beam_size,
                   "hypotheses kept; 1 is greedy search (default: the config's, like those below)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--length-penalty", arguments->length_penalty,
                   "exponent of the length normalisation")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--length-penalty-type", arguments->length_penalty_type, "average | gnmt | none")
      ->check(CLI::IsMember({"average", "gnmt", "none"}));
  command
      ->add_option("--max-length-ratio", arguments->max_length_ratio,
                   "longest output in tokens for each source token, plus 10")
      ->check(CLI::PositiveNumber);
  command->add_option("--n-best", arguments->n_best, "translations of each line, best first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch-size", arguments->batch_size, "lines translated at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--detail", arguments->detail, "jsonl: scores and tokens, one object a line")
      ->check(CLI::IsMember({"jsonl"}));
  add_compute(command, arguments->compute);
  command->callback([&run, arguments] { run = [arguments] { return run_translate(*arguments); }; });
}

void add_score(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "score", "Log-probability and tokens of each target line given its source line");
  auto arguments = std::make_shared<ScoreArguments>();
  command->add_option("--model", arguments->model, "checkpoint or run folder")->required();
  command->add_option("--source", arguments->source, "file")->required();
  command->add_option("--target", arguments->target, "file")->required();
  add_compute(command, arguments->compute);
  command->callback([&run, arguments] { run = [arguments] { return run_score(*arguments); }; });
}

void add_evaluate(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("evaluate", "BLEU and chrF with sacreBLEU's signature");
  auto arguments = std::make_shared<EvaluateArguments>();
  command->add_option("--hypothesis", arguments->hypothesis, "file; -: standard input")->required();
  command->add_option("--reference", arguments->reference, "file")->required();
  command->add_option("--tokenize", arguments->tokenize, "13a | none")
      ->check(CLI::IsMember({"13a", "none"}))
      ->capture_default_str();
  command->add_flag("--lowercase", arguments->lowercase, "compare lower-cased text");
  command->add_flag("--json", arguments->json, "one JSON object");
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
  command->callback([&run, arguments] { run = [arguments] { return run_inspect(*arguments); }; });
}

void add_average(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("average", "Average the parameters of checkpoints");
  auto arguments = std::make_shared<AverageArguments>();
  command->add_option("checkpoints", arguments->inputs, "checkpoint folders")->required();
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->callback([&run, arguments] { run = [arguments] { return run_average(*arguments); }; });
}

void add_bench(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand("bench", "Time training steps");
  auto arguments = std::make_shared<BenchArguments>();
  add_config(command, arguments->config, arguments->overrides);
  command->add_option("--shape", arguments->shape,
                      "BxSxT: synthetic tokens (default: the config's data)");
  command->add_option("--steps", arguments->steps, "timed steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup-steps", arguments->warmup_steps, "steps before those")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json, "also write the figures to this file");
  command->callback([&run, arguments] { run = [arguments] { return run_bench(*arguments); }; });
}

int report(const std::string& message, ErrorKind kind) {
  std::cout.flush();  // what was done stands before what failed, also where both go to one file
  std::cerr << "error: " << message << std::endl;
  return static_cast<int>(kind);
}

/// Results that did not reach stdout (a full disk, say) are a failure like any other.
bool stdout_is_written() { return std::cout.flush().good() && std::fflush(stdout) == 0; }

int run_guarded(const Run& run) {
  try {
    const int code = run();
    return stdout_is_written() ? code : report("cannot write to stdout.", ErrorKind::kRuntime);
  } catch (const Error& error) {
    return report(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    return report("out of memory.", ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    return report(error.what(), ErrorKind::kRuntime);
  }
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app{"Tapestry trains Transformers from a YAML file."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tapestry 0.1.0");
  Run run;
  add_train(app, run);
  add_translate(app, run);
  add_score(app, run);
  add_evaluate(app, run);
  add_gradcheck(app, run);
  add_inspect(app, run);
  add_average(app, run);
  add_bench(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(concat(error.what(), " See tapestry --help."), ErrorKind::kConfig);
  }
  return run_guarded(run);
}

}  // namespace tapestry
