#include "apps/interop/model_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/checkpoint/file_names.h"
#include "apps/tasks/task.h"
#include "core/base/text.h"
#include "data/files/files.h"
#include "data/files/utf8.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kCard = "README.md";
constexpr const char* kBaseCard = "README.base.md";
constexpr const char* kMark = "<!-- A card by tapestry export. -->";

/// What the hub and transformers call a task.
struct CardTask {
  const char* task;
  const char* tag;         ///< pipeline_tag
  const char* auto_class;  ///< of transformers
};
constexpr CardTask kTasks[] = {
    {"translation", "translation", "AutoModelForSeq2SeqLM"},
    {"denoising", "text2text-generation", "AutoModelForSeq2SeqLM"},
    {"clm", "text-generation", "AutoModelForCausalLM"},
    {"mlm", "fill-mask", "AutoModelForMaskedLM"},
    {"classification", "text-classification", "AutoModelForSequenceClassification"},
    {"multi_label", "text-classification", "AutoModelForSequenceClassification"},
    {"text_regression", "text-classification", "AutoModelForSequenceClassification"},
    {"token_classification", "token-classification", "AutoModelForTokenClassification"},
    {"question_answering", "question-answering", "AutoModelForQuestionAnswering"},
};
constexpr CardTask kImages = {"classification", "image-classification",
                              "AutoModelForImageClassification"};

constexpr CardTask kVectors = {"embedding", "sentence-similarity", "AutoModel"};
constexpr CardTask kHeadless = {"mlm", "feature-extraction", "AutoModel"};

// `theirs`: config.json. The class of an encoder without a head ends with "Model".
const CardTask& task_row(const Config& config, const Json& theirs) {
  if (examples_of(config).of_images()) return kImages;
  if (config.task->can(kEmbedsTexts)) return kVectors;
  const Json names = theirs.is_object() ? theirs.value("architectures", Json()) : Json();
  const bool named = names.is_array() && !names.empty() && names[0].is_string();
  if (config.model_type == ModelType::kEncoder && named &&
      names[0].get<std::string>().ends_with("Model")) {
    return kHeadless;
  }
  const auto* const found = std::ranges::find_if(kTasks, [&](const CardTask& row) {
    return std::string_view(row.task) == config.task->name_of_models();
  });
  check(found != std::end(kTasks), "export", "no card for task ", config.task->name, '.');
  return *found;
}

std::string file_name(const std::string& path) {
  const fs::path name = fs::path(path).filename();
  return name.empty() ? fs::path(path).parent_path().filename().string() : name.string();
}

constexpr std::array kFiles = {
    &CorpusSpec::source,       &CorpusSpec::target,    &CorpusSpec::ding,  &CorpusSpec::text,
    &CorpusSpec::images,       &CorpusSpec::labels,    &CorpusSpec::squad, &CorpusSpec::conll,
    &CorpusSpec::pair_weights, &CorpusSpec::alignments};

// The config without the folders of this machine.
Config without_folders(Config config) {
  const auto cut = [](std::string& path) { path = file_name(path); };
  for (auto* corpora : {&config.data.train, &config.data.valid, &config.data.test}) {
    for (CorpusSpec& corpus : *corpora) {
      for (const auto member : kFiles) cut(corpus.*member);
      cut(corpus.records.path);
    }
  }
  for (std::string* path : {&config.output_dir, &config.init_from, &config.data.cache_dir,
                            &config.tokenizer.path, &config.tokenizer.source_path,
                            &config.tokenizer.target_path, &config.training.alignments}) {
    cut(*path);
  }
  return config;
}

std::string names_of_files(const std::vector<CorpusSpec>& corpora) {
  std::vector<std::string> names;
  for (const CorpusSpec& corpus : corpora) {
    for (const std::string& key : CorpusSpec::file_keys()) {
      if (!corpus.file(key).empty()) names.push_back(file_name(corpus.file(key)));
    }
  }
  return join(names, ", ");
}

/// What the folder around a checkpoint tells.
struct RunFacts {
  std::vector<std::pair<std::string, double>> valid, test;  ///< metrics by name
  std::string examples;                                     ///< "29000 read, 28990 kept"
};

// Metrics in a line of metrics.jsonl.
std::vector<std::pair<std::string, double>> metrics_in(const Json& line) {
  std::vector<std::pair<std::string, double>> metrics;
  for (const auto& [name, value] : line.items()) {
    const bool other = name == "step" || name == "seconds" || name == "checkpoint" ||
                       name == "tokens" || name == "peak_bytes" || name == "tokens_per_s";
    if (!other && value.is_number()) metrics.emplace_back(name, value.get<double>());
  }
  return metrics;
}

std::string examples_in(const std::string& log) {
  const size_t at = log.rfind("training data");
  if (at == std::string::npos) return "";
  const std::string line = log.substr(at, log.find('\n', at) - at);
  const size_t kept = line.find(" kept");
  const size_t colon = line.rfind(": ", kept);
  if (kept == std::string::npos || colon == std::string::npos) return "";
  return line.substr(colon + 2, kept + 5 - colon - 2);
}

RunFacts facts_of(const std::string& checkpoint) {
  RunFacts facts;
  const fs::path folder = fs::weakly_canonical(checkpoint), run = folder.parent_path();
  const std::string name = folder.filename();
  const std::string metrics = (run / "metrics.jsonl").string(), log = (run / "train.log").string();
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix) || !fs::is_regular_file(metrics)) return facts;
  std::istringstream lines(read_file(metrics));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step")) continue;
    const std::string kind = line.value("kind", "");
    const bool own = line["step"].dump() == name.substr(kPrefix.size());
    if (kind == "valid" && own) facts.valid = metrics_in(line);
    const bool tested = line.value("checkpoint", Json()).dump() == name.substr(kPrefix.size());
    if (kind == "test" && tested) facts.test = metrics_in(line);
  }
  if (fs::is_regular_file(log)) facts.examples = examples_in(read_file(log));
  return facts;
}

// The name of the model that this one began with; "" if it began with nothing.
std::string name_of_base(const Config& config) {
  if (!config.init_from.empty()) return file_name(config.init_from);
  const std::vector<std::string> files = files_of(config.data.train);
  const bool imported = !files.empty() && fs::is_directory(files.front());
  return imported ? file_name(files.front()) : "";
}

bool is_imported_only(const Config& config) {
  return config.init_from.empty() && !name_of_base(config).empty();
}

// The hub's list of results.
std::string results_of(const Config& config, const CardTask& task, const RunFacts& facts,
                       const std::string& name) {
  std::string text;
  const auto add = [&](const std::vector<CorpusSpec>& corpora,
                       const std::vector<std::pair<std::string, double>>& metrics) {
    if (metrics.empty() || corpora.empty()) return;
    const std::string files = Json(names_of_files(corpora)).dump();
    text += concat("  - task:\n      type: ", task.tag, "\n    dataset:\n      name: ", files,
                   "\n      type: ", files, "\n    metrics:\n");
    for (const auto& [metric, value] : metrics) {
      text += fmt::format("    - type: {}\n      value: {:.6g}\n", metric, value);
    }
  };
  add(config.data.valid, facts.valid);
  add(config.data.test, facts.test);
  if (text.empty()) return "";
  return concat("model-index:\n- name: ", Json(name).dump(), "\n  results:\n", text);
}

std::string front_matter(const Config& config, const CardTask& task, const RunFacts& facts,
                         const std::string& type, const std::string& name) {
  std::string text = concat("---\nlibrary_name: transformers\npipeline_tag: ", task.tag,
                            "\ntags:\n- tapestry\n- ", type, '\n');
  if (const std::string base = name_of_base(config); !base.empty()) {
    text += concat("base_model: ", Json(base).dump(), '\n');
  }
  return text + results_of(config, task, facts, name) + "---\n";
}

std::string metrics_table(const std::string& set, const std::string& files,
                          const std::vector<std::pair<std::string, double>>& metrics) {
  if (metrics.empty()) return "";
  std::string text = concat("\n## ", set, " (", files, ")\n\n| metric | value |\n|---|---|\n");
  for (const auto& [name, value] : metrics) text += fmt::format("| {} | {:.6g} |\n", name, value);
  return text;
}

std::string data_section(const Config& config, const RunFacts& facts) {
  if (is_imported_only(config)) return "";
  return concat("It learned from ", names_of_files(config.data.train),
                facts.examples.empty() ? "" : concat(" (", facts.examples, ')'), ".\n");
}

std::string loading(const Config& config, const CardTask& task) {
  const bool images = examples_of(config).of_images();
  const char* const reader = images ? "AutoImageProcessor" : "AutoTokenizer";
  return fmt::format(
      "\n## How to load it\n\n```python\nfrom transformers import {0}, {1}\n"
      "{2} = {0}.from_pretrained(\"FOLDER\")\nmodel = {1}.from_pretrained(\"FOLDER\")\n```\n",
      reader, task.auto_class, images ? "processor" : "tokenizer");
}

bool has_base_card(const ModelFiles& model) {
  return std::ranges::any_of(model.tokenizers.came_with, [](const auto& file) {
    return file.first == kCard || file.first == kBaseCard;
  });
}

}  // namespace

std::string model_card(const ModelFiles& model, const std::string& config,
                       const std::string& commit) {
  const Json theirs = Json::parse(config, nullptr, /*allow_exceptions=*/false);
  const CardTask& task = task_row(model.config, theirs);
  const RunFacts facts = facts_of(model.folder);
  const std::string type = theirs.is_object() ? theirs.value("model_type", "") : "";
  const std::string name = file_name(model.config.output_dir);
  std::string text = front_matter(model.config, task, facts, type, name);
  text += concat(kMark, "\n\n# ", name, "\n\nA ", type, " for ", task.tag, " (task ",
                 model.config.task->name, " of Tapestry");
  const std::string base = name_of_base(model.config);
  text += base.empty()                     ? ", trained from scratch)."
          : is_imported_only(model.config) ? concat(", imported from ", base, ").")
                                           : concat(", trained from ", base, ").");
  text += '\n' + data_section(model.config, facts);
  if (has_base_card(model)) text += concat("The card of what it came from is ", kBaseCard, ".\n");
  text += metrics_table("Validation", names_of_files(model.config.data.valid), facts.valid);
  text += metrics_table("Test", names_of_files(model.config.data.test), facts.test);
  text += loading(model.config, task);
  text += concat("\n## Config\n\nTapestry's, of commit ", commit.empty() ? "unknown" : commit,
                 ":\n\n```yaml\n", to_yaml(without_folders(model.config)), "```\n");
  return text;
}

std::map<std::string, std::string> cards_in(const std::string& folder) {
  std::map<std::string, std::string> cards;
  for (const char* name : {kCard, kBaseCard}) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path)) continue;
    std::string text = read_file(path);
    const bool keeps =
        text.find(kMark) == std::string::npos && find_invalid_utf8(text) == std::string::npos;
    if (keeps) cards[name] = std::move(text);
  }
  return cards;
}

void add_model_card(const ModelFiles& model, const std::string& commit, CheckpointContent& files) {
  for (const char* name : {kBaseCard, kCard}) {
    const auto came = model.tokenizers.came_with.find(name);
    if (came != model.tokenizers.came_with.end()) files[kBaseCard] = came->second;
  }
  const auto* const config = std::get_if<std::string>(&files[kConfigFile]);
  files[kCard] = model_card(model, config == nullptr ? "" : *config, commit);
}

}  // namespace tapestry::interop
