#include "apps/commands/score_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/utf8.h"

namespace tapestry {
namespace {

void add_tests(nlohmann::ordered_json& out, const SystemScore& score) {
  if (score.interval) {
    out["mean"] = score.interval->mean;
    out["interval"] = score.interval->half_width;
  }
  if (score.p_value) out["p_value"] = *score.p_value;
}

constexpr double kSignificant = 0.05;

// The cells of one metric: the score, and the results of the tests.
std::vector<std::string> cells(const SystemScore& score, int width) {
  std::string text = fmt::format("{:.{}f}", score.score, width);
  if (score.interval) {
    text += fmt::format(" ({:.{}f} ± {:.{}f})", score.interval->mean, width,
                        score.interval->half_width, width);
  }
  if (!score.p_value) return {text, ""};
  return {text, fmt::format("{:.4f}{}", *score.p_value, *score.p_value < kSignificant ? "*" : "")};
}

// Columns as wide as their widest cell; columns with only a head are left out.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int64_t> widths(rows.front().size(), 0);
  for (size_t c = 0; c < widths.size(); ++c) {
    bool any = false;
    for (size_t r = 0; r < rows.size(); ++r) {
      widths[c] = std::max(widths[c], count_code_points(rows[r][c]));
      any = any || (r > 0 && !rows[r][c].empty());
    }
    if (!any) widths[c] = 0;
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (widths[c] == 0) continue;
      if (c > 0) line += "  ";
      line += row[c];
      line.append(static_cast<size_t>(widths[c] - count_code_points(row[c])), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace

std::string ScoreLine::str(int width) const {
  std::string text = fmt::format("{}|{} = {:.{}f}", name, signature, score.score, width);
  if (score.interval) {
    text += fmt::format(" (μ = {:.{}f} ± {:.{}f})", score.interval->mean, width,
                        score.interval->half_width, width);
  }
  return detail.empty() ? text : text + ' ' + detail;
}

nlohmann::ordered_json ScoreLine::json() const {
  nlohmann::ordered_json out{{"score", score.score}, {"name", name}};
  add_tests(out, score);
  for (const auto& [figure, value] : figures) {
    std::visit([&out, key = figure](const auto& number) { out[key] = number; }, value);
  }
  out["signature"] = signature;
  return out;
}

nlohmann::ordered_json json_of(const RougeScore& rouge) {
  nlohmann::ordered_json out;
  for (const auto& [name, part] : {std::pair{"rouge_1", &rouge.rouge_1},
                                   {"rouge_2", &rouge.rouge_2},
                                   {"rouge_l", &rouge.rouge_l}}) {
    out[name] = {{"precision", part->precision}, {"recall", part->recall}, {"f", part->f}};
  }
  out["signature"] = rouge.signature;
  return out;
}

std::string score_table(const std::vector<std::string>& systems,
                        const std::vector<ScoreColumn>& columns, int width) {
  std::vector<std::vector<std::string>> rows(systems.size() + 1);
  rows[0].push_back("system");
  for (size_t s = 0; s < systems.size(); ++s) rows[s + 1].push_back(systems[s]);
  bool tested = false;
  for (const ScoreColumn& column : columns) {
    rows[0].insert(rows[0].end(), {column.name, "p"});
    for (size_t s = 0; s < systems.size(); ++s) {
      const std::vector<std::string> of_system = cells(column.scores[s], width);
      rows[s + 1].insert(rows[s + 1].end(), of_system.begin(), of_system.end());
      tested = tested || column.scores[s].p_value.has_value();
    }
  }
  std::string text = aligned(rows) + '\n';
  if (tested) {
    text +=
        "p: how probable a difference to the first system as large as this one is if both systems "
        "are\nthe same. *: below 0.05, so chance is not likely to explain it.\n\n";
  }
  for (const ScoreColumn& column : columns) text += column.name + '|' + column.signature + '\n';
  return text;
}

nlohmann::ordered_json json_of(const std::vector<std::string>& systems,
                               const std::vector<ScoreColumn>& columns) {
  nlohmann::ordered_json out;
  for (size_t s = 0; s < systems.size(); ++s) {
    nlohmann::ordered_json row{{"name", systems[s]}};
    for (const ScoreColumn& column : columns) {
      row[column.key] = {{"score", column.scores[s].score}};
      add_tests(row[column.key], column.scores[s]);
    }
    out["systems"].push_back(row);
  }
  for (const ScoreColumn& column : columns) out["signatures"][column.key] = column.signature;
  return out;
}

}  // namespace tapestry
