// What the files beside a tokenizer.json say of it: tokenizer_config.json, special_tokens_map.json
// and added_tokens.json. transformers reads them all, whatever the file itself says.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace tapestry {

/// Throws Error(kData), with the name, if the bytes are no JSON object or nested too deeply.
nlohmann::json parse_tokenizer_object(const std::string& bytes, const std::string& name);

/// The ids of the tokens of a tokenizer.json: the model's, then the added ones.
std::unordered_map<std::string, int64_t> token_ids(const nlohmann::json& tokenizer);

class NamedTokens {
 public:
  /// `model_type` is that of config.json, which tells the tokenizer's class where
  /// tokenizer_config.json does not; it may be empty. Throws Error(kData) if a file is no JSON
  /// object.
  NamedTokens(const std::string& folder, const std::string& model_type);

  const nlohmann::json& config() const { return config_; }

  /// "bos" -> "<s>"; "" if no file says so.
  std::string find(const std::string& role) const;

  /// The token of tokenizer_config.json's tgt_lang; "" if it names none.
  std::string target_language() const;

  /// Does to the contents of a tokenizer.json what the files say: tokens that they name are cut out
  /// of texts as tokens, the classes of BERT and GPT-2 have keys for what is done to a text first,
  /// and NLLB's puts its languages around texts.
  void apply(nlohmann::json& tokenizer) const;

 private:
  /// A token with its flags.
  struct Named {  // NOLINT(bugprone-exception-escape): the JSON library's moves do not throw
    nlohmann::json token;
    bool rules = false;       ///< its flags count where tokenizer.json has others
    bool only_known = false;  ///< it is none where the vocabulary does not have it
  };
  std::vector<Named> tokens() const;
  void add_tokens(nlohmann::json& tokenizer) const;
  void set_options(nlohmann::json& tokenizer) const;
  void set_languages(nlohmann::json& tokenizer) const;
  bool flag(const char* key, bool fallback) const;

  nlohmann::json config_, map_, added_;
  std::string class_;  // without its ending "Fast"
};

/// Takes the tokens out of a tokenizer.json that have no row in a model's table, so that no text
/// has them. Returns them, sorted.
std::vector<std::string> drop_tokens_without_row(nlohmann::json& tokenizer, int64_t rows);

}  // namespace tapestry
