#include "apps/commands/answers/filter.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "apps/commands/number_bounds.h"
#include "core/base/text.h"

namespace tapestry {

void add_model(CLI::App& app, FilterArguments& arguments) {
  app.add_option_function<std::string>(
         "--model", [&arguments](const std::string& path) { arguments.models.paths = {path}; },
         "checkpoint or run folder")
      ->required();
  add_compute(app, arguments.compute);
}

void add_models(CLI::App& app, FilterArguments& arguments) {
  app.add_option("--model", arguments.models.paths,
                 "checkpoint or run folder; given again: models over one vocabulary, whose "
                 "probabilities are averaged (the config is the first one's)")
      ->required();
  add_weights(app, arguments.models);
  add_compute(app, arguments.compute);
}

CLI::Option* add_input(CLI::App& app, FilterArguments& arguments) {
  return app
      .add_option("--input", arguments.input,
                  "file of lines (compressed is fine); -: standard input. On a terminal a file "
                  "shows how far it is")
      ->capture_default_str();
}

void add_output_file(CLI::App& app, std::string& output) {
  app.add_option("--output", output,
                 "file; it has its name when all is done, before that the name FILE.part; -: "
                 "standard output")
      ->capture_default_str();
}

void add_output(CLI::App& app, FilterArguments& arguments, const char* batch) {
  add_output_file(app, arguments.output);
  app.add_option("--ill-formed", arguments.ill_formed,
                 "what becomes of a line that is not UTF-8, or no record where records are read: "
                 "empty (it is answered like an empty line, and counted) | replace (its "
                 "ill-formed bytes are read as U+FFFD) | error")
      ->check(CLI::IsMember(names_of(FilterArguments::kIllFormed)))
      ->capture_default_str();
  app.add_option("--batch-size", arguments.batch_size, batch)
      ->check(number<int64_t>(between(1, 1 << 20)))
      ->capture_default_str();
}

CLI::Option* add_detail(CLI::App& app, std::string& detail, const char* meaning) {
  return app.add_option("--detail", detail, meaning)->check(CLI::IsMember({"jsonl"}));
}

void add_pairs(CLI::App& app, FilterArguments& arguments) {
  app.add_flag("--pairs", arguments.pairs,
               "a line has two texts with a tab between them, which the model reads in one row; "
               "without this so if it learnt from data.train.text_pair_column");
}

void add_attention(CLI::App& app, FilterArguments& arguments) {
  app.add_option("--attention", arguments.attention,
                 "also write the attention weights of the first 20 answers: a page (HTML), or a "
                 "table if the name ends in .json, which has the scores before and after scaling, "
                 "too");
}

std::string one_line(const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
      {"\n", "\\n"},
      {"\r", "\\r"},
      {"\v", "\\v"},
      {"\f", "\\f"},
      {"\xC2\x85", "\\u0085"},
      {"\xE2\x80\xA8", "\\u2028"},
      {"\xE2\x80\xA9", "\\u2029"}};
  std::string line = text;
  for (const auto& [end, name] : kEnds) {
    for (size_t at = 0; (at = line.find(end, at)) != std::string::npos; at += name.size()) {
      line.replace(at, end.size(), name);
    }
  }
  return line;
}

std::string json_line(const nlohmann::ordered_json& object) {
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json token_details(const Hypothesis& hypothesis, const Tokenizer& tokenizer) {
  using Json = nlohmann::ordered_json;
  Json pieces = Json::array();
  for (const int32_t id : hypothesis.tokens) pieces.push_back(tokenizer.piece(id));
  std::vector<double> each = hypothesis.token_log_probabilities;
  const Json end = each.size() > hypothesis.tokens.size() ? Json(each.back()) : Json();
  each.resize(hypothesis.tokens.size());
  return {{"tokens", std::move(pieces)},
          {"token_log_probabilities", each},
          {"end_log_probability", end}};
}

}  // namespace tapestry
