// A tokenizer.json to write: the keys of the file and of its parts, in the order of Hugging Face's
// library.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tapestry::tokenizer_file {

/// An object of it finds a key by looking through all: append() fills a vocabulary.
using Json = nlohmann::ordered_json;

/// Adds a key that the object does not have, without looking for it.
void append(Json& object, const std::string& key, Json value);

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool lstrip = false, rstrip = false, special = true;

  Json json() const;
};

Json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex);

struct BpeModel {
  Json vocab;  ///< {token: id}
  Json merges = Json::array();
  Json unk_token = nullptr;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;

  Json json() const;
};

/// A part of what is written around texts: a special token, or without an id a text ("A", "B").
struct FramePart {
  std::string name;
  std::optional<int64_t> id = {};
  int type = 0;  ///< the segment
};
/// TemplateProcessing of a text and of a pair of texts.
Json template_of(const std::vector<FramePart>& single, const std::vector<FramePart>& pair);

struct Parts {
  std::vector<AddedToken> added_tokens;
  Json normalizer = nullptr, pre_tokenizer = nullptr, post_processor = nullptr, decoder = nullptr;
  Json model;
};
/// The bytes of the file, with a line end; `indent` as of Json::dump().
std::string written(const Parts& parts, int indent = -1);

}  // namespace tapestry::tokenizer_file
