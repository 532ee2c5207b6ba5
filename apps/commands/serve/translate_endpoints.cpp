// /translate, /detect and /languages, as LibreTranslate's clients call them.
#include <algorithm>
#include <cmath>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/languages.h"
#include "apps/tasks/answers/result_alignments.h"
#include "data/corpora/empty_text.h"

namespace tapestry {
namespace {

// LibreTranslate's hundredths.
Json json_of(const DetectedLanguage& language) {
  return {{"confidence", std::round(1e4 * language.probability) / 100},
          {"language", language.code}};
}

// A list for each line: the words of the source and of the best translation that belong together.
Json alignments_of(ServedModel& model, const std::vector<std::string>& lines,
                   const std::vector<std::vector<Hypothesis>>& found, const CallEnd& end) {
  std::vector<std::vector<int32_t>> sources;
  std::vector<PlacedText> places;
  std::vector<std::vector<Hypothesis>> best;
  std::vector<size_t> of_lines;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (found[i].empty()) continue;
    places.push_back(placed_source(*model.pairs().tokenizers().source, lines[i]));
    sources.push_back(places.back().ids());
    model.pairs().cut_source(sources.back(), static_cast<int64_t>(i) + 1);  // as the search did
    places.back().tokens.resize(sources.back().size());
    best.push_back({found[i][0]});
    of_lines.push_back(i);
  }
  Json list = std::vector<Json>(lines.size(), Json::array());
  if (sources.empty()) return list;
  const Turns::Turn turn(model.computing(), end);
  const auto alignments = align_results(
      model.pairs(),
      {.sources = sources, .places = &places, .results = best, .batch_size = model.batch_size()});
  for (size_t i = 0; i < of_lines.size(); ++i) list[of_lines[i]] = alignments[i].at(0);
  return list;
}

struct AskedTexts {
  std::vector<std::string> lines = {};
  std::vector<size_t> counts = {};  // of the lines of each text

  explicit AskedTexts(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::vector<std::string> of_text = lines_of_text(text);
      counts.push_back(of_text.size());
      lines.insert(lines.end(), of_text.begin(), of_text.end());
    }
  }
};

SearchOptions options_of(const ServedModel& model, const Call& call) {
  const int64_t alternatives = call.integer("alternatives", 0);
  if (alternatives < 0 || alternatives >= SearchOptions::kMostBeams) {
    refuse(400, "the field 'alternatives' must be in [0, ", SearchOptions::kMostBeams - 1,
           "], got ", alternatives, '.');
  }
  SearchOptions options = model.config().generation;
  options.n_best = alternatives + 1;
  options.seed = call.seed().value_or(options.seed);
  // As many beams as answers, if the config has fewer.
  if (!options.do_sample) options.num_beams = std::max(options.num_beams, options.n_best);
  return options;
}

Reply answer_translate(const Service& service, const Call& call) {
  if (const std::string format = call.text("format", "text"); format != "text") {
    refuse(400, "the field 'format' must be text, got '", format, "'.");
  }
  const std::vector<std::string> texts = call.texts("q");
  const auto [held, detected] = translator_of(service, call, texts[0]);
  ServedModel& model = *held;
  const SearchOptions options = options_of(model, call);
  const AskedTexts asked(texts);
  const Service::Admitted admitted(service, std::ssize(asked.lines));
  const auto found = model.translate(asked.lines, options, call.end);
  // Answer n of a text has answer n of each of its lines.
  Json translated = Json::array(), others = Json::array(), aligned = Json::array();
  const bool aligns = call.is_true("alignments");
  const Json alignments = aligns ? alignments_of(model, asked.lines, found, call.end) : Json();
  size_t first = 0;
  for (const size_t count : asked.counts) {
    std::vector<std::string> answers(static_cast<size_t>(options.n_best));
    for (size_t n = 0; n < answers.size(); ++n) {
      for (size_t i = first; i < first + count; ++i) {
        if (i > first) answers[n] += '\n';
        if (n < found[i].size()) answers[n] += model.text_of(found[i][n]);
      }
    }
    translated.push_back(answers[0]);
    others.push_back(std::vector<std::string>(answers.begin() + 1, answers.end()));
    Json of_text = Json::array();
    for (size_t i = first; aligns && i < first + count; ++i) of_text.push_back(alignments[i]);
    aligned.push_back(std::move(of_text));
    first += count;
  }
  const bool listed = call.body.at("q").is_array();
  Json json = {{"translatedText", listed ? translated : translated[0]}};
  if (options.n_best > 1) json["alternatives"] = listed ? others : others[0];
  if (aligns) json["alignments"] = listed ? aligned : aligned[0];
  if (detected) json["detectedLanguage"] = json_of(*detected);
  return json_reply(json);
}

Reply answer_detect(const Service& service, const Call& call) {
  const Service::Admitted admitted(service, 1);
  const auto found = detected_languages(service, call.text("q"), call.end);
  if (!found) {
    refuse(501,
           "no model here can tell languages: that takes a classification model whose labels are "
           "all codes of languages, such as de and en.");
  }
  Json list = Json::array();
  for (const DetectedLanguage& language : *found) list.push_back(json_of(language));
  return json_reply(list);
}

Reply answer_languages(const Service& service, const Call&) {
  Json list = Json::array();
  for (const auto& [code, targets] : served_languages(service)) {
    list.push_back({{"code", code}, {"name", code}, {"targets", targets}});
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
     {"alignments", FieldType::kBoolean,
      "for each line the pairs of a word of the source and one of the translation, from 0"},
     {"model", FieldType::kText, "name of a model, instead of languages"},
     {"seed", FieldType::kInteger, "of draws, if the model's config draws"}},
    answer_translate};

extern const Endpoint kDetectEndpoint{
    "POST",
    "/detect",
    "The languages of a text (as LibreTranslate), by a classification model with their labels",
    {{"q", FieldType::kText, "the text", true}},
    answer_detect};

extern const Endpoint kLanguagesEndpoint{
    "GET", "/languages", "Languages of the models (as LibreTranslate)", {}, answer_languages};

}  // namespace tapestry
