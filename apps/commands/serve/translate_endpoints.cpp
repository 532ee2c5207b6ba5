// /translate, /detect and /languages, as LibreTranslate's clients call them.
#include <algorithm>
#include <cmath>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/languages.h"
#include "apps/commands/serve/required_fields.h"
#include "apps/tasks/answers/result_alignments.h"
#include "apps/tasks/answers/unit_alignment.h"
#include "data/markup/tag_transfer.h"

namespace tapestry {
namespace {

// LibreTranslate's hundredths.
Json json_of(const DetectedLanguage& language) {
  return {{"confidence", std::round(1e4 * language.probability) / 100},
          {"language", language.code}};
}

// A source as the model reads it, as the search cut it.
PlacedText read_source(const ServedModel& model, const std::string& line, size_t number) {
  PlacedText placed = placed_source(*model.pairs().tokenizers().source, line);
  std::vector<int32_t> ids = placed.ids();
  model.pairs().cut_source(ids, static_cast<int64_t>(number) + 1);
  placed.tokens.resize(ids.size());
  return placed;
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
    places.push_back(read_source(model, lines[i], i));
    sources.push_back(places.back().ids());
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

// The texts of a request, line by line. HTML has a line for each block.
struct AskedTexts {
  std::vector<MarkedText> marked = {};  // none of plain text
  std::vector<std::string> lines = {};
  std::vector<size_t> counts = {};  // of the lines of each text

  AskedTexts(const std::vector<std::string>& texts, bool html) {
    for (const std::string& text : texts) {
      if (html) marked.push_back(read_markup(text, MarkupFormat::kHtml));
      const std::vector<std::string> of_text = lines_of_text(html ? marked.back().text : text);
      counts.push_back(of_text.size());
      lines.insert(lines.end(), of_text.begin(), of_text.end());
    }
  }
};

// The n-th answer to each line, aligned with the text that the line is of.
using AlignedAnswers = std::vector<std::vector<AlignedText>>;
AlignedAnswers aligned_answers(ServedModel& model, const AskedTexts& asked,
                               const std::vector<std::vector<Hypothesis>>& found,
                               const CallEnd& end) {
  AlignedAnswers aligned(found.size());
  std::vector<PlacedText> placed(found.size());
  std::vector<PartToAlign> parts;
  for (size_t text = 0, i = 0; text < asked.counts.size(); ++text) {
    const size_t last = i + asked.counts[text];
    for (size_t begin = 0; i < last; begin += asked.lines[i++].size() + 1) {
      if (found[i].empty()) continue;
      placed[i] = read_source(model, asked.lines[i], i);
      for (const Hypothesis& one : found[i]) {
        parts.push_back({&asked.marked[text], begin, &placed[i], one.tokens});
      }
    }
  }
  if (parts.empty()) return aligned;
  const Turns::Turn turn(model.computing(), end);
  auto each = align_units(model.pairs(), parts, {.batch_size = model.batch_size()});
  auto next = each.begin();
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t n = 0; n < found[i].size(); ++n) aligned[i].push_back(std::move(*next++));
  }
  return aligned;
}

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

// Whether the texts of a request are HTML.
bool asks_html(const Call& call) {
  const std::string format = call.text("format", "text");
  if (format != "text" && format != "html") {
    refuse(400, "the field 'format' must be text or html, got '", format, "'.");
  }
  return format == "html";
}

// What writes answer `n` to a text whose lines are [first, first + count).
class Answers {
 public:
  Answers(ServedModel& model, const AskedTexts& asked,
          const std::vector<std::vector<Hypothesis>>& found, const CallEnd& end)
      : model_(model), asked_(asked), found_(found) {
    if (!asked.marked.empty()) aligned_ = aligned_answers(model, asked, found, end);
  }

  std::string text(size_t text, size_t first, size_t n) const {
    std::string answer;
    AlignedText aligned;
    for (size_t i = first; i < first + asked_.counts[text]; ++i) {
      const std::string gap = i > first ? "\n" : "";
      const bool is_there = n < found_[i].size();
      if (asked_.marked.empty()) {
        answer += gap + (is_there ? model_.text_of(found_[i][n]) : "");
      } else {
        aligned.append(is_there ? aligned_[i][n] : AlignedText{}, gap);
      }
    }
    if (asked_.marked.empty()) return answer;
    return with_markup(asked_.marked[text], aligned,
                       [](std::string_view piece) { return std::string(piece); });
  }

 private:
  const ServedModel& model_;
  const AskedTexts& asked_;
  const std::vector<std::vector<Hypothesis>>& found_;
  AlignedAnswers aligned_;
};

Reply answer_translate(const Service& service, const Call& call) {
  const std::vector<std::string> texts = call.texts("q");
  const AskedTexts asked(texts, asks_html(call));
  const auto [held, detected] =
      translator_of(service, call, asked.marked.empty() ? texts[0] : asked.marked[0].text);
  ServedModel& model = *held;
  const SearchOptions options = options_of(model, call);
  const std::unique_ptr<RequiredTexts> required = required_texts(model, call);
  if (required && required->annotates() && (call.is_true("alignments") || !asked.marked.empty())) {
    refuse(400,
           "terms_mode soft writes into the lines that the model reads, so that their words "
           "cannot be counted for alignments and HTML.");
  }
  const Service::Admitted admitted(service, std::ssize(asked.lines));
  const auto found = model.translate(asked.lines, options, call.end, required.get());
  // Answer n of a text has answer n of each of its lines.
  Json translated = Json::array(), others = Json::array(), aligned = Json::array();
  const bool aligns = call.is_true("alignments");
  const Json alignments = aligns ? alignments_of(model, asked.lines, found, call.end) : Json();
  const Answers written(model, asked, found, call.end);
  size_t first = 0;
  for (size_t text = 0; text < asked.counts.size(); ++text) {
    std::vector<std::string> answers;
    for (int64_t n = 0; n < options.n_best; ++n) {
      answers.push_back(written.text(text, first, static_cast<size_t>(n)));
    }
    translated.push_back(answers[0]);
    others.push_back(std::vector<std::string>(answers.begin() + 1, answers.end()));
    const size_t last = first + asked.counts[text];
    Json of_text = Json::array();
    for (size_t i = first; aligns && i < last; ++i) of_text.push_back(alignments[i]);
    aligned.push_back(std::move(of_text));
    first = last;
  }
  const bool listed = call.body.at("q").is_array();
  Json json = {{"translatedText", listed ? translated : translated[0]}};
  if (options.n_best > 1) json["alternatives"] = listed ? others : others[0];
  if (aligns) json["alignments"] = listed ? aligned : aligned[0];
  if (required && required->any()) json["missing"] = required->missing();
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
    "POST", "/translate", "Translate a text or a list of texts, line by line (as LibreTranslate)",
    with_required_fields(
        {{"q", FieldType::kTextOrTexts, "what to translate", true},
         {"source", FieldType::kText, "language, or auto; models named like de-en have languages"},
         {"target", FieldType::kText, "language"},
         {"format", FieldType::kText,
          "text, or html: each tag comes out as it went in, around the words that its own became"},
         {"alternatives", FieldType::kInteger, "further translations of each text"},
         {"alignments", FieldType::kBoolean,
          "for each line the pairs of a word of the source and one of the translation, from 0; of "
          "HTML the lines are its blocks, without tags"},
         {"model", FieldType::kText, "name of a model, instead of languages"},
         {"seed", FieldType::kInteger, "of draws, if the model's config draws"}}),
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
