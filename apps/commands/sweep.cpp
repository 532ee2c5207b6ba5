// tapestry sweep: trains a config with other values, and says which are the best.
#include "apps/run/sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/options.h"
#include "apps/commands/padded.h"
#include "apps/commands/pages/report.h"
#include "apps/run/signals.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

using Cells = std::vector<std::string>;

std::string value_of(const std::string& override_text) {
  return override_text.substr(override_text.find('=') + 1);
}

Cells cells_of(const SweepRow& row, int64_t seeds) {
  Cells cells = {fmt::format("{:03}", row.trial + 1), row.mean ? figure(*row.mean) : "-"};
  if (seeds > 1) cells.push_back(row.mean ? figure(row.half_width) : "-");
  cells.push_back(std::to_string(row.updates));
  cells.push_back(row.outcome.empty() ? "not trained" : row.outcome);
  for (const std::string& override_text : row.overrides) cells.push_back(value_of(override_text));
  return cells;
}

// Columns of equal width, aligned to the left, two spaces apart.
void print_table(const std::vector<Cells>& lines) {
  std::vector<int64_t> widths(lines.front().size());
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], count_code_points(cells[i]));
    }
  }
  for (const Cells& cells : lines) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      line += i + 1 == cells.size() ? cells[i] : padded(cells[i], widths[i]) + "  ";
    }
    std::cout << line << '\n';
  }
}

void print_rows(const Sweep& sweep, const std::vector<SweepRow>& rows, int64_t seeds) {
  Cells head = {"trial", sweep.metric()};
  if (seeds > 1) head.emplace_back("+/- 95 %");
  head.insert(head.end(), {"updates", "outcome"});
  for (const std::string& override_text : rows.front().overrides) {
    head.push_back(override_text.substr(0, override_text.find('=')));
  }
  std::vector<Cells> lines = {head};
  for (const SweepRow& row : rows) lines.push_back(cells_of(row, seeds));
  print_table(lines);
}

// The runs that have something to show, best first.
void write_page(const std::vector<SweepRow>& rows, const std::string& folder) {
  std::vector<std::string> folders;
  for (const SweepRow& row : rows) {
    for (const std::string& run : row.folders) {
      if (std::filesystem::exists(run + "/metrics.jsonl")) folders.push_back(run);
    }
  }
  if (folders.empty()) return;
  const std::string path = concat(folder, '/', kReportFile);
  write_report(folders, path);
  std::cerr << "report: " << path << '\n';
}

// "250", or "120 to 300" where trials differ.
std::string range_of(const std::vector<int64_t>& updates) {
  const auto [least, most] = std::ranges::minmax(updates);
  return least == most ? concat(most) : concat(least, " to ", most);
}

// What will be trained, before it is.
std::string plan_of(const Sweep& sweep, const SweepOptions& options) {
  const Halving& halving = sweep.halving();
  std::string text = concat("sweep: ", sweep.trials(), sweep.trials() == 1 ? " trial" : " trials");
  if (options.seeds > 1) text += concat(" of ", options.seeds, " seeds");
  for (size_t rung = 0; halving.rungs() > 1 && rung < halving.rungs(); ++rung) {
    text += concat(rung == 0 ? ", " : ", then ", halving.trials[rung], " until update ",
                   range_of(halving.updates[rung]));
  }
  if (halving.rungs() > 1) {
    text += concat("; at most ", halving.most_updates(), " updates of each seed");
  }
  return text;
}

// One word of a command, in quotes where the shell would read more into it.
std::string for_shell(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_@%+=:,./-", c) != nullptr;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + '\'';
}

int run_sweep(const SweepOptions& options) {
  Sweep sweep(options);
  std::cerr << plan_of(sweep, options) << '\n';
  install_signal_handlers();
  end_on_signal(false);
  const int signal = sweep.run([](const std::string& line) { std::cerr << line << '\n'; });
  if (signal != 0) {
    std::cerr << "stopped by " << name_of_signal(signal) << "; the same command goes on\n";
    return 128 + signal;
  }
  const std::vector<SweepRow> rows = sweep.rows();
  print_rows(sweep, rows, options.seeds);
  write_page(rows, options.output);
  if (!rows.front().mean) {
    fail(ErrorKind::kDiverged, "[sweep] no trial has a value: all of them failed.");
  }
  std::cerr << "best: tapestry train " << for_shell(options.config);
  for (const auto* const overrides : {&sweep.fixed(), &rows.front().overrides}) {
    for (const std::string& text : *overrides) std::cerr << ' ' << for_shell(text);
  }
  std::cerr << '\n';
  return 0;
}

void add_sweep(CLI::App& app, SweepOptions& options) {
  app.add_option("config", options.config, "YAML file")->required();
  app.add_option("overrides", options.overrides,
                 "section.key=LOW..HIGH, LOW..HIGH:log, A,B,C, or one value for all trials. A "
                 "range is drawn evenly, with :log evenly by factors, a list entry by entry");
  app.add_option("--output", options.output, "folder of the trials, the report and sweep.json")
      ->required();
  app.add_option(
         "--trials", options.trials,
         "different draws; without ranges it may be left out: all cells of the grid. Without "
         "--halving more of them train behind those of an earlier start")
      ->check(number<int64_t>(between(1, 100000)));
  CLI::Option* const halving = app.add_flag(
      "--halving", options.halving,
      "successive halving: all trials train for a while, the better part of them goes on");
  app.add_option("--factor", options.factor, "one of this number of trials goes on")
      ->check(number<int>(between(2, 16)))
      ->needs(halving)
      ->capture_default_str();
  app.add_option("--seeds", options.seeds, "runs of each trial, with seeds one after the other")
      ->check(number<int>(between(1, 31)))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the draws")
      ->check(number<uint64_t>(at_least(0)))
      ->capture_default_str();
  app.add_option("--processes", options.processes, "trials that train at the same time")
      ->check(number<int>(between(1, 1024)))
      ->capture_default_str();
}

}  // namespace

extern const Command kSweep("sweep",
                            "Train a config with other values, drawn or from lists, and compare",
                            add_sweep, run_sweep);

}  // namespace tapestry
