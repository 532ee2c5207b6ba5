#include "apps/interop/sentence_vectors.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_folder.h"
#include "core/base/text.h"
#include "data/files/files.h"

namespace tapestry::interop {
namespace {

constexpr const char* kModulesFile = "modules.json";
constexpr const char* kLimitsFile = "sentence_bert_config.json";
constexpr const char* kProgramFile = "config_sentence_transformers.json";
constexpr const char* kPoolingFolder = "1_Pooling";

// One way of pooling: our word, theirs today, and the key of older files.
struct PoolingRow {
  TextPooling pooling;
  const char* ours;
  const char* theirs;
  const char* key;
};
constexpr PoolingRow kPoolings[] = {
    {TextPooling::kMean, "mean", "mean", "pooling_mode_mean_tokens"},
    {TextPooling::kFirst, "cls", "cls", "pooling_mode_cls_token"},
    {TextPooling::kLast, "last", "lasttoken", "pooling_mode_lasttoken"},
};

// The name of a class in its module: "sentence_transformers.models.Pooling".
std::string class_of(const Json& module) {
  const std::string type = module.is_object() ? value_of(module, "type", "").dump() : "";
  const std::string name = type.size() < 2 ? "" : type.substr(1, type.size() - 2);
  return name.substr(name.rfind('.') + 1);
}

// The ways of pooling that a file turns on, by our word or by its key.
std::vector<std::string> ways_of(const Json& pooling) {
  const Json mode = value_of(pooling, "pooling_mode", Json());
  std::vector<std::string> ways;
  for (const auto& [key, value] : pooling.items()) {
    const bool on = key.starts_with("pooling_mode_") ? value == true : false;
    if (on) ways.push_back(key);
  }
  if (mode.is_string()) ways.push_back(mode.get<std::string>());
  for (std::string& way : ways) {
    for (const PoolingRow& row : kPoolings) {
      if (way == row.key || way == row.theirs) way = row.ours;
    }
  }
  std::ranges::sort(ways);
  ways.erase(std::ranges::unique(ways).begin(), ways.end());
  return ways;
}

void read_pooling(const std::string& folder, const Json& module, SentenceVectors& vectors,
                  Reasons& reasons) {
  const Json path = value_of(module, "path", kPoolingFolder);
  const std::string file =
      concat(folder, '/', path.is_string() ? path.get<std::string>() : "", "/config.json");
  const std::vector<std::string> ways = ways_of(read_json_if_there(file));
  const bool known = ways.size() == 1 && std::ranges::any_of(kPoolings, [&](const auto& row) {
                       return ways.front() == row.ours;
                     });
  if (known) {
    vectors.pooling = ways.front();
  } else {
    reasons.push_back(concat(file, " pools by ", ways.empty() ? "nothing" : join(ways, " and "),
                             ", Tapestry by one of mean, cls, last"));
  }
}

Json pooling_of(const ModelOptions& model) {
  Json pooling = {{"word_embedding_dimension", model.hidden_size}};
  for (const PoolingRow& row : kPoolings) pooling[row.key] = row.pooling == model.text_pooling;
  for (const char* key : {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                          "pooling_mode_weightedmean_tokens"}) {
    pooling[key] = false;
  }
  pooling["include_prompt"] = true;
  return pooling;
}

Json modules_of(const ModelOptions& model) {
  Json modules = Json::array();
  const auto add = [&](const char* path, const char* type) {
    const auto number = modules.size();
    modules.push_back({{"idx", number},
                       {"name", std::to_string(number)},
                       {"path", path},
                       {"type", concat("sentence_transformers.models.", type)}});
  };
  add("", "Transformer");
  add(kPoolingFolder, "Pooling");
  if (model.unit_vectors) add("2_Normalize", "Normalize");
  return modules;
}

// True if the files that a model came with say what it does.
bool came_alike(const ModelFiles& model) {
  const auto& came = model.tokenizers.came_with;
  const auto read = [&](const std::string& name) {
    const auto file = came.find(name);
    return file == came.end() ? Json()
                              : Json::parse(file->second, nullptr, /*allow_exceptions=*/false);
  };
  const Json modules = read(kModulesFile), limits = read(kLimitsFile);
  if (!modules.is_array()) return false;
  bool normalize = false, pools = false;
  for (const Json& module : modules) {
    normalize |= class_of(module) == "Normalize";
    if (class_of(module) != "Pooling") continue;
    const Json path = value_of(module, "path", "");
    const Json pooling = read(concat(path.get<std::string>(), "/config.json"));
    pools = pooling.is_object() && pooling.size() > 0 &&
            ways_of(pooling) == ways_of(pooling_of(model.config.model));
  }
  const Json length = limits.is_object() ? value_of(limits, "max_seq_length", Json()) : Json();
  return pools && normalize == model.config.model.unit_vectors &&
         (length.is_null() || length == model.config.data.corpus.max_length);
}

}  // namespace

bool has_modules(const std::string& folder) {
  return std::filesystem::is_regular_file(concat(folder, '/', kModulesFile));
}

SentenceVectors sentence_vectors_of(const std::string& folder, Reasons& reasons, Reasons& notes) {
  SentenceVectors vectors;
  const std::string path = concat(folder, '/', kModulesFile);
  const Json modules = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!modules.is_array()) {
    reasons.push_back(concat(path, " is no list of modules"));
    return vectors;
  }
  for (const Json& module : modules) {
    const std::string name = class_of(module);
    if (name == "Pooling") {
      read_pooling(folder, module, vectors, reasons);
    } else if (name == "Normalize") {
      vectors.normalize = true;
    } else if (name != "Transformer") {
      reasons.push_back(concat(path, " has a module ", name.empty() ? "without a type" : name,
                               ", Tapestry has Transformer, Pooling and Normalize"));
    }
  }
  const Json limits = read_json_if_there(concat(folder, '/', kLimitsFile));
  const Json length = value_of(limits, "max_seq_length", Json());
  if (length.is_number_integer()) vectors.max_length = length.get<int64_t>();
  if (value_of(limits, "do_lower_case", false) == true) {
    notes.push_back(concat(kLimitsFile,
                           " has do_lower_case: texts must come in lower case, unless "
                           "the tokenizer folds them."));
  }
  const Json program = read_json_if_there(concat(folder, '/', kProgramFile));
  const Json prompt = value_of(program, "default_prompt_name", Json());
  if (!prompt.is_null()) {
    notes.push_back(concat(kProgramFile, " puts the prompt ", prompt.dump(),
                           " before each text: write it there."));
  }
  return vectors;
}

std::map<std::string, std::string> sentence_vector_files(const ModelFiles& model) {
  if (came_alike(model)) return {};
  const auto text = [](const Json& json) { return json.dump(2) + "\n"; };
  const Json limits = {{"max_seq_length", model.config.data.corpus.max_length},
                       {"do_lower_case", false}};
  return {{kModulesFile, text(modules_of(model.config.model))},
          {concat(kPoolingFolder, "/config.json"), text(pooling_of(model.config.model))},
          {kLimitsFile, text(limits)}};
}

}  // namespace tapestry::interop
