#include "apps/commands/serve/languages.h"

#include <algorithm>

#include "apps/commands/serve/http_error.h"
#include "apps/tasks/classes/classification.h"
#include "apps/tasks/long_line.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

struct LanguagePair {
  std::string source, target;
};

// The languages of a model whose name is de-en.
std::optional<LanguagePair> languages_of(const std::string& name) {
  const size_t at = name.find('-');
  if (at == std::string::npos) return std::nullopt;
  LanguagePair pair{name.substr(0, at), name.substr(at + 1)};
  if (!is_language_code(pair.source) || !is_language_code(pair.target)) return std::nullopt;
  return pair;
}

// The model that tells languages, or null.
std::shared_ptr<ServedModel> detector_of(const Service& service, const CallEnd& end) {
  for (const auto& entry : service.models().entries()) {
    const auto& labels = entry.config().data.labels;
    if (entry.can(kClassifies) && !reads_text_pairs(entry.config()) && labels.size() > 1 &&
        std::ranges::all_of(labels, is_language_code)) {
      return service.models().get(entry.name, end);
    }
  }
  return nullptr;
}

// Throws unless a model whose name tells its languages has those that a call asks for.
void check_languages(const std::string& name, const Call& call) {
  const std::optional<LanguagePair> pair = languages_of(name);
  if (!pair) return;
  const std::string source = call.text("source", "auto"), target = call.text("target");
  if ((source != "auto" && source != pair->source) || (!target.empty() && target != pair->target)) {
    refuse(400, "the model ", name, " translates ", pair->source, " to ", pair->target,
           ", asked was ", source, " to ", target.empty() ? "any" : target, '.');
  }
}

}  // namespace

bool is_language_code(std::string_view text) {
  return (text.size() == 2 || text.size() == 3) &&
         std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
}

std::map<std::string, std::set<std::string>> served_languages(const Service& service) {
  std::map<std::string, std::set<std::string>> targets;
  for (const auto& entry : service.models().entries()) {
    if (!entry.can(kTranslates)) continue;
    if (const std::optional<LanguagePair> pair = languages_of(entry.name)) {
      targets[pair->source].insert(pair->target);
      targets[pair->target];
    }
  }
  return targets;
}

std::optional<std::vector<DetectedLanguage>> detected_languages(const Service& service,
                                                                const std::string& text,
                                                                const CallEnd& end) {
  const std::shared_ptr<ServedModel> model = detector_of(service, end);
  if (!model) return std::nullopt;
  const TextClassifier& classifier = model->classifier();
  const FramedText row = encoder_input(classifier.config, *classifier.tokenizers.source, text, 1);
  std::vector<DetectedLanguage> found;
  if (row.empty()) return found;
  const Turns::Turn turn(model->computing(), end);
  const ClassProbabilities probabilities = classify(classifier, {row}).at(0);
  for (size_t i = 0; i < probabilities.size(); ++i) {
    found.push_back({classifier.config.data.labels[i], probabilities[i]});
  }
  std::ranges::stable_sort(found, std::greater(), &DetectedLanguage::probability);
  return found;
}

ChosenTranslator translator_of(const Service& service, const Call& call, const std::string& text) {
  if (call.has("model")) {
    std::shared_ptr<ServedModel> model = service.model_for(call, kTranslates);
    check_languages(call.text("model"), call);
    return {std::move(model)};
  }
  std::string source = call.text("source", "auto");
  const std::string target = call.text("target");
  std::set<std::string> sources;
  for (const auto& [code, targets] : served_languages(service)) {
    if (targets.contains(target) || (target.empty() && !targets.empty())) sources.insert(code);
  }
  std::optional<DetectedLanguage> detected;
  if (source == "auto" && sources.size() > 1) {
    const auto found = detected_languages(service, text, call.end);
    for (size_t i = 0; found && i < found->size() && !detected; ++i) {
      if (sources.contains((*found)[i].code)) detected = (*found)[i];
    }
    if (detected) source = detected->code;
  }
  std::vector<std::string> pairs;
  std::string other;
  for (const auto& entry : service.models().entries()) {
    if (!entry.can(kTranslates)) continue;
    const std::optional<LanguagePair> pair = languages_of(entry.name);
    if (!pair) {
      if (other.empty()) other = entry.name;
      continue;
    }
    pairs.push_back(concat(pair->source, " to ", pair->target));
    if ((source == "auto" || source == pair->source) &&
        (target.empty() || target == pair->target)) {
      return {service.models().get(entry.name, call.end), detected};
    }
  }
  if (!other.empty()) return {service.models().get(other, call.end)};
  if (pairs.empty()) return {service.model_for(call, kTranslates)};
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

}  // namespace tapestry
