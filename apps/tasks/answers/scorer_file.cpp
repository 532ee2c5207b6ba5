#include "apps/tasks/answers/scorer_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/config/reader.h"
#include "apps/tasks/answers/scorers.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;

constexpr double kLargestWeight = 1e9;

std::vector<ConfigChoice<const ScorerKind*>> choices(bool directions) {
  std::vector<ConfigChoice<const ScorerKind*>> choices;
  for (const ScorerKind& kind : scorer_kinds()) {
    const bool fits = directions ? kind.needs == kScoresPairs : kind.needs == 0;
    if (fits) choices.push_back({kind.name, &kind});
  }
  return choices;
}

std::string section_of(const ConfigSection& s) {
  const std::string key = s.full_name("");  // ends in a point
  return key.substr(0, key.size() - 1);
}

class ScorerReader {
 public:
  explicit ScorerReader(const std::string& path)
      : folder_(fs::path(path).parent_path()), root_(parse_config_file(path)) {}

  std::vector<ScorerSpec> read() {
    std::vector<ScorerSpec> scorers;
    read_config(root_, [&](ConfigSection& s) {
      s.demand("scorers");
      s.section_list("scorers", scorers, "What scores hypotheses.",
                     [&](ConfigSection& scorer, ScorerSpec& spec) { bind(scorer, spec); });
      if (s.given("scorers")) check(s, scorers);
    });
    return scorers;
  }

  const ConfigNode& root() const { return root_; }

 private:
  void bind(ConfigSection& s, ScorerSpec& spec) const {
    const bool of_model = s.has("model");
    const bool is_map = s.is_sound(section_of(s));
    if (is_map && !of_model && !s.has("feature")) {
      s.complain("model", '\'', s.full_name("feature"), "' or '", s.full_name("model"),
                 "' must say what scores.");
    }
    const auto features = choices(false);
    spec.kind = features.front().value;
    s.read_choice_if(!of_model, "with a model", "feature", spec.kind, features,
                     "What a search or a text tells by itself.");
    s.read_if(of_model, "without a model", "model", spec.model_as_written,
              "Run or checkpoint folder.");
    std::optional<Config> config;
    if (of_model) config = config_of_model(s, spec);
    const bool pairs = config && config->task->can(kScoresPairs);
    const std::string why =
        of_model ? "with this model, which does not translate" : "without a model that translates";
    const bool known = !of_model || config;  // else the model is the only error
    if (pairs) s.demand("direction");
    const auto directions = choices(true);
    if (known) {
      if (pairs) spec.kind = directions.front().value;
      s.read_choice_if(pairs, why, "direction", spec.kind, directions,
                       "Translation of the source, or back to it.");
      s.read_if(pairs, why, "source_language", spec.languages.source_language,
                "Of what the model reads.");
      s.read_if(pairs, why, "target_language", spec.languages.target_language,
                "Of what the model writes.");
    } else {
      for (const char* key : {"direction", "source_language", "target_language"}) s.know(key);
    }
    if (config && config->task->can(kContinuesText)) spec.kind = &text_scorer_kind();
    s.read("weight", spec.weight, "Factor of its values.",
           between(-kLargestWeight, kLargestWeight));
  }

  // Nothing if the folder holds no model that scores.
  std::optional<Config> config_of_model(ConfigSection& s, ScorerSpec& spec) const {
    if (spec.model_as_written.empty()) return std::nullopt;  // refused already, or to be
    spec.model = fs::absolute(folder_ / spec.model_as_written).lexically_normal().string();
    try {
      Checkpoint checkpoint(resolve_checkpoint(spec.model));
      Config config = config_of(checkpoint);
      if (config.task->can(kScoresPairs) || config.task->can(kContinuesText)) return config;
      s.complain("model", '\'', s.full_name("model"), "' must be a model of task ",
                 tasks_that_can(kScoresPairs), " or ", tasks_that_can(kContinuesText), ", ",
                 spec.model, " holds one of task ", config.task->name, '.');
    } catch (const Error& error) {
      s.complain("model", '\'', s.full_name("model"), "': ", error.what());
    }
    return std::nullopt;
  }

  static void check(ConfigSection& s, const std::vector<ScorerSpec>& scorers) {
    if (scorers.empty()) s.complain("scorers", "'scorers' must have at least one scorer.");
    const auto name = [&](size_t i) { return scorers.size() == 1 ? "" : concat('.', i); };
    bool sound = true;
    std::map<std::vector<std::string>, size_t> seen;
    for (size_t i = 0; i < scorers.size(); ++i) {
      const ScorerSpec& one = scorers[i];
      sound = sound && s.is_sound(concat("scorers", name(i)));
      const auto [first, fresh] = seen.try_emplace(
          {one.kind->name, one.model, one.languages.source_language, one.languages.target_language},
          i);
      if (fresh || !sound) continue;
      const char* const key = one.model.empty() ? ".feature" : ".model";
      s.complain_of(concat("scorers", name(i), key),
                    concat("'scorers", name(i), "' is the same scorer as 'scorers",
                           name(first->second), "'."));
    }
    const bool zero = std::ranges::all_of(scorers, [](auto& one) { return one.weight == 0; });
    if (sound && !scorers.empty() && zero) {
      s.complain("scorers", "'scorers' must have a weight other than 0.");
    }
  }

  fs::path folder_;
  ConfigNode root_;
};

void set(ConfigNode& map, const std::string& key, ConfigNode value) {
  if (ConfigEntry* const entry = map.find(key)) {
    entry->value = std::move(value);
  } else {
    map.entries.push_back({key, {}, std::move(value)});
  }
}

fs::path folder_of(const std::string& path) {
  return fs::absolute(fs::path(path).parent_path() / ".").lexically_normal();
}

}  // namespace

std::string ScorerSpec::name() const {
  std::string name = model.empty() ? kind->name : concat(kind->name, ':', model_as_written);
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == '|' || c == '='; }, '_');
  return name;
}

std::vector<double> ScorerFile::weights() const {
  std::vector<double> weights;
  for (const ScorerSpec& scorer : scorers) weights.push_back(scorer.weight);
  return weights;
}

std::string ScorerFile::with_weights(const std::vector<double>& weights,
                                     const std::string& new_path) const {
  ConfigNode tree = tree_;
  ConfigNode& list = tree.find("scorers")->value;
  const bool moved = folder_of(new_path) != folder_of(path);
  for (size_t i = 0; i < scorers.size(); ++i) {
    ConfigNode& scorer = list.kind == ConfigNode::Kind::kList ? list.items[i] : list;
    set(scorer, "weight", ConfigNode::scalar(shortest(weights[i]), false));
    if (moved && !scorers[i].model.empty()) {
      set(scorer, "model", ConfigNode::scalar(scorers[i].model, true));
    }
  }
  return to_yaml(tree);
}

ScorerFile read_scorers(const std::string& path) {
  ScorerFile file;
  file.path = path;
  ScorerReader reader(path);
  file.scorers = reader.read();
  file.tree_ = reader.root();
  return file;
}

}  // namespace tapestry
