// tapestry report: the curves of runs, their examples and their configs on one page.
#include "apps/commands/pages/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/commands/command.h"
#include "apps/commands/output_file.h"
#include "apps/commands/pages/web_page.h"
#include "apps/tasks/task.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/build_info.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

struct ReportArguments {
  std::vector<std::string> runs = {};  ///< folders
  std::string output = kReportFile;
};

// Points of a curve: more than a wide screen has, less than makes a browser slow.
constexpr size_t kMostPoints = 20000;

// Seven digits: no eye can see more, and the page is half as long.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return std::strtod(text, nullptr);
}

// The means of `group` lines in a row; NaN stays if all of them are NaN.
Json column_of(const std::vector<double>& values, size_t group, bool is_place) {
  Json list = Json::array();
  for (size_t begin = 0; begin < values.size(); begin += group) {
    const size_t end = std::min(values.size(), begin + group);
    if (is_place) {
      list.push_back(number(values[end - 1]));
      continue;
    }
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    list.push_back(number(sum / static_cast<double>(end - begin)));
  }
  return list;
}

Json json_of(const MetricTable& table, size_t group) {
  Json columns = Json::array();
  for (size_t i = 0; i < table.names.size(); ++i) {
    const std::string& name = table.names[i];
    const bool is_place = name == "step" || name == "tokens" || name == "seconds";
    columns.push_back(column_of(table.columns[i], group, is_place));
  }
  return {{"names", table.names}, {"columns", std::move(columns)}};
}

// True for fields of an example that are the same at each validation.
bool is_given(const std::string& key) {
  for (const char* const other : {"step", "kind", "example", "output", "guesses", "png"}) {
    if (key == other) return false;
  }
  return true;
}

// Examples with all of their outputs. If a number got another example (the data changed), the older
// one is left out.
Json examples_of(const RunRecord& run) {
  std::map<int64_t, Json> examples;
  for (const Json& line : run.samples) {
    Json given = Json::array();
    for (const auto& [key, value] : line.items()) {
      if (is_given(key) && value.is_string()) given.push_back({key, value});
    }
    Json& example = examples[line["example"].get<int64_t>()];
    if (example.is_null() || example["given"] != given) {
      example = {{"given", given}, {"outputs", Json::array()}};
    }
    if (line.contains("png")) example["png"] = line["png"];
    Json output{{"step", line["step"]}, {"output", line.value("output", "")}};
    if (line.contains("guesses")) output["guesses"] = line["guesses"];
    example["outputs"].push_back(std::move(output));
  }
  Json list = Json::array();
  for (auto& [number, example] : examples) list.push_back(std::move(example));
  return list;
}

// The line of the best validation, else of the last.
Json line_of_best(const std::vector<Json>& lines, const std::optional<RunRecord::Best>& best) {
  for (const Json& line : lines) {
    if (best && line["step"] == best->step) return line;
  }
  return lines.empty() ? Json() : lines.back();
}

Json json_of(RunRecord& run) {
  const auto best = run.best();
  const size_t group = (run.train.rows() + kMostPoints - 1) / kMostPoints;
  if (group > 1) {
    run.warnings.push_back(concat(run.name, ": each point of the training's curves is the mean of ",
                                  group, " lines of metrics.jsonl"));
  }
  Json test;
  for (const auto& [name, value] : run.test) test[name] = number(value);
  Json result{{"name", run.name},
              {"folder", run.folder},
              {"metric", run.metric},
              {"train", json_of(run.train, std::max<size_t>(1, group))},
              {"valid", json_of(run.valid, 1)},
              {"test", std::move(test)},
              {"skipped", run.skipped},
              {"starts", run.starts},
              {"samples", examples_of(run)},
              {"lengths", line_of_best(run.lengths, best)},
              {"confusion", line_of_best(run.confusions, best)},
              {"config", run.config},
              {"warnings", run.warnings}};
  result["best"] = best ? Json{{"step", best->step}, {"value", number(best->value)}} : Json();
  return result;
}

int run_report(const ReportArguments& arguments) {
  write_report(arguments.runs, arguments.output);
  std::cerr << "the report of " << arguments.runs.size()
            << (arguments.runs.size() == 1 ? " run is " : " runs is ") << arguments.output << '\n';
  return 0;
}

void add_report(CLI::App& app, ReportArguments& arguments) {
  app.add_option("runs", arguments.runs, "run folders; several are drawn over each other")
      ->required();
  app.add_option("--output", arguments.output, "file to write, - for stdout")
      ->capture_default_str();
}

}  // namespace

std::string report_html(std::vector<RunRecord> runs) {
  name_runs(runs);
  Json list = Json::array();
  for (RunRecord& run : runs) list.push_back(json_of(run));
  const Json data{{"runs", std::move(list)},
                  {"differing", differing_keys(runs)},
                  {"notice", concat("Written by tapestry ", build_info().version, '.')}};
  return html_of({.title = runs.size() == 1 ? runs[0].name : concat(runs.size(), " runs"),
                  .styles = {"dygraph.min.css", "report.css"},
                  .scripts = {"dygraph.min.js", "page.js", "report.js"},
                  .data = data.dump(-1, ' ', false, Json::error_handler_t::replace),
                  .licence = web_file("dygraphs_licence")});
}

void write_report(const std::vector<std::string>& folders, const std::string& output) {
  OutputFile file(output);
  std::vector<RunRecord> runs;
  for (const std::string& folder : folders) {
    runs.push_back(read_run(folder));
    for (const std::string& warning : runs.back().warnings) {
      std::cerr << "warning: " << printable(warning) << '\n';
    }
  }
  file.stream() << report_html(std::move(runs));
  file.finish();
}

extern const Command kReport(
    "report", "One HTML page about runs: curves, examples, confusions, configs, machines",
    add_report, run_report);

}  // namespace tapestry
