// /translate and /languages, as LibreTranslate's clients call them.
#include <algorithm>
#include <optional>
#include <set>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

struct LanguagePair {
  std::string source, target;
};

// The languages of a model whose name is de-en.
std::optional<LanguagePair> languages_of(const ServedModel& model) {
  const std::string& name = model.name();
  const size_t at = name.find('-');
  const auto is_code = [](std::string_view code) {
    return (code.size() == 2 || code.size() == 3) &&
           std::ranges::all_of(code, [](char c) { return c >= 'a' && c <= 'z'; });
  };
  if (at == std::string::npos) return std::nullopt;
  LanguagePair pair{name.substr(0, at), name.substr(at + 1)};
  if (!is_code(pair.source) || !is_code(pair.target)) return std::nullopt;
  return pair;
}

// The model that a call names, or that has its languages.
ServedModel& translator_of(const Service& service, const Call& call) {
  const std::string source = call.text("source", "auto"), target = call.text("target");
  if (call.has("model")) return service.model_for(call, kTranslates);
  std::vector<std::string> pairs;
  ServedModel* other = nullptr;
  for (const auto& model : service.models()) {
    if (!model->can(kTranslates)) continue;
    const std::optional<LanguagePair> pair = languages_of(*model);
    if (!pair) {
      if (other == nullptr) other = model.get();
      continue;
    }
    pairs.push_back(concat(pair->source, " to ", pair->target));
    if ((source == "auto" || source == pair->source) &&
        (target.empty() || target == pair->target)) {
      return *model;
    }
  }
  if (other != nullptr) return *other;
  if (pairs.empty()) return service.model_for(call, kTranslates);
  refuse(400, "no model here translates ", source, " to ", target.empty() ? "any" : target,
         ", there is ", join(pairs, ", "), '.');
}

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(text.substr(begin, end - begin));
  }
  lines.push_back(text.substr(begin));
  return lines;
}

Reply answer_translate(const Service& service, const Call& call) {
  if (const std::string format = call.text("format", "text"); format != "text") {
    refuse(400, "the field 'format' must be text, got '", format, "'.");
  }
  const int64_t alternatives = call.integer("alternatives", 0);
  if (alternatives < 0 || alternatives >= SearchOptions::kMostBeams) {
    refuse(400, "the field 'alternatives' must be in [0, ", SearchOptions::kMostBeams - 1,
           "], got ", alternatives, '.');
  }
  ServedModel& model = translator_of(service, call);
  const std::vector<std::string> texts = call.texts("q");
  std::vector<std::string> lines;
  std::vector<size_t> counts;
  for (const std::string& text : texts) {
    const std::vector<std::string> of_text = lines_of_text(text);
    counts.push_back(of_text.size());
    lines.insert(lines.end(), of_text.begin(), of_text.end());
  }
  const Service::Admitted admitted(service, std::ssize(lines));
  SearchOptions options = model.config().generation;
  options.n_best = alternatives + 1;
  options.seed = call.seed().value_or(options.seed);
  // As many beams as answers, if the config has fewer.
  if (!options.do_sample) options.num_beams = std::max(options.num_beams, options.n_best);
  const auto found = model.translate(lines, options, call.end);
  // Answer n of a text has answer n of each of its lines.
  Json translated = Json::array(), others = Json::array();
  size_t first = 0;
  for (const size_t count : counts) {
    std::vector<std::string> answers(static_cast<size_t>(options.n_best));
    for (size_t n = 0; n < answers.size(); ++n) {
      for (size_t i = first; i < first + count; ++i) {
        if (i > first) answers[n] += '\n';
        if (n < found[i].size()) answers[n] += model.text_of(found[i][n]);
      }
    }
    first += count;
    translated.push_back(answers[0]);
    others.push_back(std::vector<std::string>(answers.begin() + 1, answers.end()));
  }
  const bool listed = call.body.at("q").is_array();
  Json json = {{"translatedText", listed ? translated : translated[0]}};
  if (alternatives > 0) json["alternatives"] = listed ? others : others[0];
  return json_reply(json);
}

Reply answer_languages(const Service& service, const Call&) {
  std::map<std::string, std::set<std::string>> targets;
  for (const auto& model : service.models()) {
    if (!model->can(kTranslates)) continue;
    if (const std::optional<LanguagePair> pair = languages_of(*model)) {
      targets[pair->source].insert(pair->target);
      targets[pair->target];
    }
  }
  Json list = Json::array();
  for (const auto& [code, of_code] : targets) {
    list.push_back({{"code", code}, {"name", code}, {"targets", of_code}});
  }
  return json_reply(list);
}

}  // namespace

extern const Endpoint kTranslateEndpoint{
    "POST",
    "/translate",
    "Translate a text or a list of texts, line by line (as LibreTranslate)",
    {{"q", FieldType::kTextOrTexts, "what to translate", true},
     {"source", FieldType::kText, "language, or auto; models named like de-en have languages"},
     {"target", FieldType::kText, "language"},
     {"format", FieldType::kText, "text"},
     {"alternatives", FieldType::kInteger, "further translations of each text"},
     {"model", FieldType::kText, "name of a model, instead of languages"},
     {"seed", FieldType::kInteger, "of draws, if the model's config draws"}},
    answer_translate};

extern const Endpoint kLanguagesEndpoint{
    "GET", "/languages", "Languages of the models (as LibreTranslate)", {}, answer_languages};

}  // namespace tapestry
