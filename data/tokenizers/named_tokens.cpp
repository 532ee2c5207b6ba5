#include "data/tokenizers/named_tokens.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "core/base/error.h"
#include "data/files/files.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Whoever walks through the parts of a tokenizer goes down as deep as they are.
void check_depth(const std::string& bytes, const std::string& name) {
  constexpr int64_t kDeepest = 64;
  int64_t depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char byte = bytes[i];
    if (in_text && byte == '\\') {
      ++i;
    } else if (byte == '"') {
      in_text = !in_text;
    } else if (!in_text && (byte == '{' || byte == '[') && ++depth > kDeepest) {
      fail(ErrorKind::kData, "[tokenizer] ", name, " is nested more than ", kDeepest,
           " levels deep at byte ", i, '.');
    } else if (!in_text && (byte == '}' || byte == ']')) {
      --depth;
    }
  }
}

Json read_object_if_there(const std::string& path) {
  return fs::is_regular_file(path) ? parse_tokenizer_object(read_file(path), path) : Json::object();
}

// Null where it is missing.
const Json& member(const Json& json, const std::string& key) {
  static const Json kNull;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? kNull : *found;
}

// A token is a text, or an object with its flags.
std::string content_of(const Json& token) {
  const Json& text = token.is_object() ? member(token, "content") : token;
  return text.is_string() ? text.get<std::string>() : "";
}

Json token_with(const Json& token, bool special) {
  Json full = {{"content", content_of(token)}, {"special", special}, {"normalized", !special}};
  for (const char* key : {"single_word", "lstrip", "rstrip"}) full[key] = false;
  if (!token.is_object()) return full;
  for (const char* key : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    if (const Json& flag = member(token, key); flag.is_boolean()) full[key] = flag;
  }
  return full;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

constexpr std::initializer_list<const char*> kLikeBert = {"BertTokenizer", "DistilBertTokenizer",
                                                          "ElectraTokenizer", "MobileBertTokenizer",
                                                          "FunnelTokenizer"};
constexpr std::initializer_list<const char*> kLikeGpt2 = {"GPT2Tokenizer", "RobertaTokenizer",
                                                          "BartTokenizer"};

// What a class calls its special tokens where no file does, by role.
std::vector<std::pair<std::string, std::string>> usual_tokens(const std::string& name) {
  if (is_one_of(name, kLikeBert)) {
    return {
        {"unk", "[UNK]"}, {"sep", "[SEP]"}, {"pad", "[PAD]"}, {"cls", "[CLS]"}, {"mask", "[MASK]"}};
  }
  if (name == "GPT2Tokenizer") return {{"eos", "<|endoftext|>"}};
  if (is_one_of(name, kLikeGpt2)) {
    return {
        {"bos", "<s>"}, {"eos", "</s>"}, {"unk", "<unk>"}, {"pad", "<pad>"}, {"mask", "<mask>"}};
  }
  return {};
}

// The class of a tokenizer where no file names it.
std::string class_of(const std::string& model_type) {
  if (model_type == "bert") return "BertTokenizer";
  if (model_type == "gpt2") return "GPT2Tokenizer";
  if (model_type == "roberta" || model_type == "bart") return "RobertaTokenizer";
  return "";
}

}  // namespace

Json parse_tokenizer_object(const std::string& bytes, const std::string& name) {
  check_depth(bytes, name);
  Json json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(ErrorKind::kData, "[tokenizer] ", name, " is not a JSON object.");
  return json;
}

std::unordered_map<std::string, int64_t> token_ids(const Json& tokenizer) {
  std::unordered_map<std::string, int64_t> ids;
  const Json& vocab = member(member(tokenizer, "model"), "vocab");
  if (vocab.is_object()) {
    for (const auto& [token, id] : vocab.items()) {
      if (id.is_number_integer()) ids[token] = id.get<int64_t>();
    }
  } else if (vocab.is_array()) {
    for (size_t id = 0; id < vocab.size(); ++id) {
      if (vocab[id].is_array() && !vocab[id].empty() && vocab[id][0].is_string()) {
        ids[vocab[id][0].get<std::string>()] = static_cast<int64_t>(id);
      }
    }
  }
  for (const Json& token : member(tokenizer, "added_tokens")) {
    const Json& id = member(token, "id");
    if (token.is_object() && id.is_number_integer() && member(token, "content").is_string()) {
      ids[token["content"].get<std::string>()] = id.get<int64_t>();
    }
  }
  return ids;
}

NamedTokens::NamedTokens(const std::string& folder, const std::string& model_type)
    : config_(read_object_if_there(folder + "/tokenizer_config.json")),
      map_(read_object_if_there(folder + "/special_tokens_map.json")),
      added_(read_object_if_there(folder + "/added_tokens.json")) {
  const Json& name = member(config_, "tokenizer_class");
  class_ = name.is_string() ? name.get<std::string>() : class_of(model_type);
  if (class_.ends_with("Fast")) class_.resize(class_.size() - std::string_view("Fast").size());
}

std::string NamedTokens::find(const std::string& role) const {
  for (const Json* file : {&config_, &map_}) {
    std::string content = content_of(member(*file, role + "_token"));
    if (!content.empty()) return content;
  }
  return "";
}

bool NamedTokens::flag(const char* key, bool fallback) const {
  const Json& value = member(config_, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

// In the order in which transformers adds them.
std::vector<NamedTokens::Named> NamedTokens::tokens() const {
  std::map<int64_t, Named> decoder;
  const auto place = [&](const Json& id, Named token) {
    if (id.is_number_integer() && !content_of(token.token).empty()) {
      decoder[id.get<int64_t>()] = std::move(token);
    }
  };
  std::vector<Named> named;
  const auto add = [&](const Json& token) {
    if (!content_of(token).empty()) named.push_back({token_with(token, true)});
  };
  const Json& listed = member(config_, "added_tokens_decoder");
  std::vector<const Json*> files = {&config_};
  if (!listed.is_object()) files.push_back(&map_);  // else it says all
  for (const Json* file : files) {
    for (const auto& [key, value] : file->items()) {
      if (key.ends_with("_token")) add(value);
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const Json& more = member(*file, key);
      if (more.is_structured()) {
        for (const Json& token : more) add(token);
      }
    }
  }
  for (const auto& [role, token] : usual_tokens(class_)) {
    if (find(role).empty()) named.push_back({token_with(token, true), false, true});
  }
  std::set<std::string> special;
  for (const Named& one : named) special.insert(content_of(one.token));
  if (listed.is_object()) {
    for (const auto& [id, token] : listed.items()) {
      if (!token.is_object()) continue;
      place(Json::parse(id, nullptr, /*allow_exceptions=*/false),
            {token_with(token, special.contains(content_of(token))), true});
    }
  } else {
    for (const auto& [text, id] : added_.items()) {
      place(id, {token_with(text, special.contains(text))});
    }
  }
  std::vector<Named> all;
  all.reserve(decoder.size() + named.size());
  for (auto& [id, token] : decoder) all.push_back(std::move(token));
  all.insert(all.end(), named.begin(), named.end());
  return all;
}

void NamedTokens::add_tokens(Json& tokenizer) const {
  const std::vector<Named> more = tokens();
  if (more.empty()) return;
  const std::unordered_map<std::string, int64_t> ids = token_ids(tokenizer);
  int64_t next = 0;
  const auto take = [&](int64_t id) {
    if (id < std::numeric_limits<int32_t>::max()) next = std::max(next, id + 1);
  };
  for (const auto& [text, id] : ids) take(id);
  Json added = member(tokenizer, "added_tokens");
  if (!added.is_array()) added = Json::array();
  std::map<std::string, size_t> places;  // in `added`
  for (size_t i = 0; i < added.size(); ++i) places.emplace(content_of(added[i]), i);
  for (auto [token, rules, only_known] : more) {
    const std::string content = content_of(token);
    const auto there = places.find(content);
    if (there != places.end()) {
      if (rules) added[there->second].update(token);
      continue;
    }
    const auto known = ids.find(content);
    if (known == ids.end() && only_known) continue;
    const int64_t id = known == ids.end() ? next : known->second;
    take(id);
    token["id"] = id;
    places.emplace(content, added.size());
    added.push_back(std::move(token));
  }
  if (!added.empty() || tokenizer.contains("added_tokens")) tokenizer["added_tokens"] = added;
}

void NamedTokens::set_options(Json& tokenizer) const {
  const auto part = [&](const char* key, const char* type) -> Json* {
    const auto found = tokenizer.find(key);
    return found != tokenizer.end() && member(*found, "type") == type ? &*found : nullptr;
  };
  const bool bert = is_one_of(class_, kLikeBert);
  if (Json* const normalizer = part("normalizer", "BertNormalizer"); bert && normalizer) {
    (*normalizer)["lowercase"] = flag("do_lower_case", true);
    (*normalizer)["handle_chinese_chars"] = flag("tokenize_chinese_chars", true);
    const Json& strips = member(config_, "strip_accents");
    (*normalizer)["strip_accents"] = strips.is_boolean() ? strips : Json();
  }
  const bool bytes = is_one_of(class_, kLikeGpt2);
  if (Json* const cut = part("pre_tokenizer", "ByteLevel"); bytes && cut) {
    (*cut)["add_prefix_space"] = flag("add_prefix_space", false);
  }
}

std::string NamedTokens::target_language() const { return content_of(member(config_, "tgt_lang")); }

// Its class makes the frame anew, whatever tokenizer.json says.
void NamedTokens::set_languages(Json& tokenizer) const {
  if (class_ != "NllbTokenizer") return;
  const std::unordered_map<std::string, int64_t> ids = token_ids(tokenizer);
  const std::string named = content_of(member(config_, "src_lang"));
  const std::string language = named.empty() ? "eng_Latn" : named;
  const std::string end = find("eos").empty() ? "</s>" : find("eos");
  const auto of_language = ids.find(language), of_end = ids.find(end);
  if (of_language == ids.end() || of_end == ids.end()) return;
  const auto text = [](const char* id) { return Json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  const auto token = [](const std::string& id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  const auto framed = [&](std::vector<Json> texts) {
    std::vector<Json> parts;
    if (flag("legacy_behaviour", false)) {
      parts = std::move(texts);
      parts.insert(parts.end(), {token(end), token(language)});
    } else {
      parts = {token(language)};
      parts.insert(parts.end(), texts.begin(), texts.end());
      parts.push_back(token(end));
    }
    return Json(parts);
  };
  const auto special = [](const std::string& id, int64_t number) {
    return Json{{"id", id}, {"ids", {number}}, {"tokens", {id}}};
  };
  tokenizer["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", framed({text("A")})},
      {"pair", framed({text("A"), text("B")})},
      {"special_tokens",
       {{end, special(end, of_end->second)}, {language, special(language, of_language->second)}}}};
}

void NamedTokens::apply(Json& tokenizer) const {
  add_tokens(tokenizer);
  set_languages(tokenizer);
  set_options(tokenizer);
}

std::vector<std::string> drop_tokens_without_row(Json& tokenizer, int64_t rows) {
  std::vector<std::string> dropped;
  for (const auto& [token, id] : token_ids(tokenizer)) {
    if (id >= rows) dropped.push_back(token);
  }
  if (dropped.empty()) return dropped;
  std::ranges::sort(dropped);
  const auto gone = [&](const std::string& token) {
    return std::ranges::binary_search(dropped, token);
  };
  if (const auto added = tokenizer.find("added_tokens");
      added != tokenizer.end() && added->is_array()) {
    std::erase_if(added->get_ref<Json::array_t&>(),
                  [&](const Json& token) { return gone(content_of(token)); });
  }
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object()) return dropped;
  const auto vocab = model->find("vocab");
  if (vocab == model->end()) return dropped;
  if (vocab->is_array()) {
    if (static_cast<int64_t>(vocab->size()) > rows) {
      vocab->get_ref<Json::array_t&>().resize(static_cast<size_t>(rows));
    }
  } else if (vocab->is_object()) {
    for (const std::string& token : dropped) vocab->erase(token);
  }
  const auto merges = model->find("merges");
  if (merges == model->end() || !merges->is_array()) return dropped;
  const Json& inside = member(*model, "continuing_subword_prefix");
  const std::string prefix = inside.is_string() ? inside.get<std::string>() : "";
  std::erase_if(merges->get_ref<Json::array_t&>(), [&](const Json& merge) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const size_t space = std::min(text.find(' '), text.size());
      left = text.substr(0, space);
      right = text.substr(std::min(space + 1, text.size()));
    }
    const std::string tail = right.starts_with(prefix) ? right.substr(prefix.size()) : right;
    return gone(left) || gone(right) || gone(left + tail);
  });
  return dropped;
}

}  // namespace tapestry
