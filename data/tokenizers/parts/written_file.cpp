#include "data/tokenizers/parts/written_file.h"

namespace tapestry::tokenizer_file {

void append(Json& object, const std::string& key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(key, std::move(value));
}

Json AddedToken::json() const {
  return {{"id", id},         {"content", content},  {"single_word", false}, {"lstrip", lstrip},
          {"rstrip", rstrip}, {"normalized", false}, {"special", special}};
}

Json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

Json BpeModel::json() const {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unk_token},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", fuse_unk},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", ignore_merges},
          {"vocab", vocab},
          {"merges", merges}};
}

Json template_of(const std::vector<FramePart>& single, const std::vector<FramePart>& pair) {
  Json special = Json::object();
  const auto list_of = [&](const std::vector<FramePart>& parts) {
    Json list = Json::array();
    for (const FramePart& part : parts) {
      const char* const kind = part.id ? "SpecialToken" : "Sequence";
      list.push_back({{kind, {{"id", part.name}, {"type_id", part.type}}}});
      if (!part.id) continue;
      special[part.name] = {{"id", part.name},
                            {"ids", Json::array({*part.id})},
                            {"tokens", Json::array({part.name})}};
    }
    return list;
  };
  Json one = list_of(single), two = list_of(pair);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(one)},
          {"pair", std::move(two)},
          {"special_tokens", std::move(special)}};
}

std::string written(const Parts& parts, int indent) {
  Json added = Json::array();
  for (const AddedToken& token : parts.added_tokens) added.push_back(token.json());
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", parts.normalizer},
                     {"pre_tokenizer", parts.pre_tokenizer},
                     {"post_processor", parts.post_processor},
                     {"decoder", parts.decoder},
                     {"model", parts.model}};
  return file.dump(indent) + "\n";
}

}  // namespace tapestry::tokenizer_file
