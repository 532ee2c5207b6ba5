#include "apps/tasks/evaluation_data.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/text.h"
#include "data/corpora/records/record_files.h"

namespace tapestry {
namespace {

// Endings of files that hold no records, and their keys.
constexpr std::pair<const char*, const char*> kOtherEndings[] = {
    {".json", "squad"}, {".txt", "text"}, {".conll", "conll"}};

// The key of data.train that a file's name asks for, or "".
std::string key_of_name(std::string name) {
  for (const char* packed : {".gz", ".zst", ".xz", ".bz2"}) {
    if (name.ends_with(packed)) name.erase(name.rfind('.'));
  }
  for (const RecordFormat* format : record_formats()) {
    for (const std::string& end : format->endings) {
      if (name.ends_with(end)) return format->name;
    }
  }
  for (const auto& [end, key] : kOtherEndings) {
    if (name.ends_with(end)) return key;
  }
  return "";
}

}  // namespace

std::string known_data_endings() {
  std::vector<std::string> endings;
  for (const RecordFormat* format : record_formats()) {
    endings.insert(endings.end(), format->endings.begin(), format->endings.end());
  }
  for (const auto& [end, key] : kOtherEndings) endings.emplace_back(end);
  return join(endings, ", ");
}

namespace {

std::string key_of_file(const std::string& path) {
  const std::string key = key_of_name(path);
  if (!key.empty()) return concat(key, '=', nlohmann::json(path).dump());
  fail(ErrorKind::kConfig,
       "[evaluate] --data must be train, valid, test, keys of data.train such as ",
       "jsonl=FILE or source=FILE target=FILE, or a file whose name ends in one of ",
       known_data_endings(), ", got '", path, "'.");
}

std::vector<std::string> keys_of(const std::vector<std::string>& data) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const std::string& text : data) {
    const bool is_key = text.find('=') < text.find_first_of("/.");
    keys.push_back(is_key ? text : key_of_file(text));
    const std::string key = keys.back().substr(0, keys.back().find('='));
    if (seen.insert(key).second) continue;
    fail(ErrorKind::kConfig, "[evaluate] --data gives ", key,
         " twice; one call measures one file.");
  }
  return keys;
}

const std::vector<CorpusSpec>* corpora_of_config(const DataOptions& data, const std::string& name) {
  return name == "train"   ? &data.train
         : name == "valid" ? &data.valid
         : name == "test"  ? &data.test
                           : nullptr;
}

}  // namespace

std::vector<CorpusSpec> corpora_to_measure(const Config& config,
                                           const std::vector<std::string>& data) {
  if (data.size() == 1) {
    if (const auto* const corpora = corpora_of_config(config.data, data[0])) {
      if (!corpora->empty()) return *corpora;
      fail(ErrorKind::kConfig, "[evaluate] the model's config has no data.", data[0], '.');
    }
  }
  const std::vector<std::string> keys = keys_of(data);
  if (keys.empty()) {
    fail(ErrorKind::kConfig,
         "[evaluate] give --data (or --text, --images, --squad, --jsonl) to measure the model on.");
  }
  return {read_corpus(config, keys)};
}

}  // namespace tapestry
