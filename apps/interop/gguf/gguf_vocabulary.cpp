#include "apps/interop/gguf/gguf_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/special_ids.h"
#include "core/base/text.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace tapestry::interop {
namespace {

// Their engine merges pieces by score as SentencePiece does, but normalises nothing, and needs a
// piece for each byte.
std::optional<GgufVocabulary> of_sentencepiece(const ModelFiles& model) {
  const auto files = own_files(model.tokenizers);
  const auto file = files.find("tokenizer.model");
  if (file == files.end()) return std::nullopt;
  const SentencePieceModel pieces = SentencePieceModel::parse(file->second, file->first);
  if (pieces.algorithm != SentencePieceModel::kBpe || !pieces.byte_fallback) return std::nullopt;
  GgufVocabulary vocabulary{.engine = "llama", .pre = "default"};
  for (const SentencePieceModel::Piece& piece : pieces.pieces) {
    vocabulary.texts.push_back(piece.text);
    vocabulary.scores.push_back(piece.score);
    vocabulary.types.push_back(piece.type);
  }
  vocabulary.space_prefix = pieces.add_dummy_prefix;
  return vocabulary;
}

using Json = nlohmann::json;  // an ordered one looks through all keys for each

// The row with the same way to cut texts; null without one.
const GgufPreTokenizer* pre_tokenizer_of(const Json& file) {
  const Json pre = file.value("pre_tokenizer", Json());
  if (!pre.is_object()) return nullptr;
  Json parts = pre.value("type", Json()) == "Sequence" ? pre.value("pretokenizers", Json())
                                                       : Json::array({pre});
  std::vector<std::string> splits;
  bool digits = false, own_split = false;
  if (!parts.is_array() || parts.empty()) return nullptr;
  for (const Json& part : parts) {
    const Json type = part.value("type", Json());
    const bool last = &part == &parts.back();
    if (type == "Digits" && !last && splits.empty()) {
      digits = part.value("individual_digits", Json()) == true;
      if (!digits) return nullptr;
    } else if (type == "Split" && !last) {
      const Json pattern = part.value("pattern", Json::object()).value("Regex", Json());
      const bool isolated = part.value("behavior", Json()) == "Isolated" &&
                            part.value("invert", Json(false)) == false;
      if (!pattern.is_string() || !isolated) return nullptr;
      splits.push_back(pattern.get<std::string>());
    } else if (type == "ByteLevel" && last) {
      if (part.value("add_prefix_space", Json(true)) != false) return nullptr;
      own_split = part.value("use_regex", Json(true)) == true;
    } else {
      return nullptr;
    }
  }
  if (own_split == !splits.empty()) return nullptr;
  const bool whole_words = file.at("model").value("ignore_merges", Json(false)) == true;
  for (const GgufPreTokenizer& row : gguf_pre_tokenizers()) {
    const bool same = std::ranges::equal(splits, row.splits);
    if (same && row.digits == digits && row.whole_words == whole_words) return &row;
  }
  return nullptr;
}

// Byte-level BPE, as GPT-2 and most models of today have it.
std::optional<GgufVocabulary> of_byte_level(const Tokenizer& tokenizer) {
  if (!is_huggingface(tokenizer.serialized())) return std::nullopt;
  const Json file =
      Json::parse(split_huggingface(tokenizer.serialized(), "tokenizer.json").tokenizer);
  const Json bpe = file.value("model", Json::object());
  const Json normalizer = file.value("normalizer", Json());
  const bool plain = normalizer.is_null() || normalizer.value("type", Json()) == "NFC";
  if (bpe.value("type", Json("BPE")) != "BPE" || !bpe.contains("merges") || !plain) {
    return std::nullopt;
  }
  const GgufPreTokenizer* const pre = pre_tokenizer_of(file);
  if (pre == nullptr) return std::nullopt;
  GgufVocabulary vocabulary{.engine = "gpt2", .pre = pre->name};
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    vocabulary.texts.push_back(tokenizer.piece(id));
  }
  vocabulary.types.assign(size, GgufPiece::kNormal);
  for (const int32_t id : tokenizer.special().unused) {
    vocabulary.types[static_cast<size_t>(id)] = GgufPiece::kUnused;
  }
  for (const Json& token : file.value("added_tokens", Json::array())) {
    const auto id = token.at("id").get<size_t>();
    if (id >= size) continue;
    vocabulary.types[id] =
        token.value("special", Json(false)) == true ? GgufPiece::kControl : GgufPiece::kUserDefined;
  }
  for (const Json& merge : bpe.at("merges")) {
    vocabulary.merges.push_back(merge.is_array() ? concat(merge.at(0).get<std::string>(), ' ',
                                                          merge.at(1).get<std::string>())
                                                 : merge.get<std::string>());
  }
  return vocabulary;
}

}  // namespace

std::span<const GgufPreTokenizer> gguf_pre_tokenizers() {
  static const std::vector<GgufPreTokenizer> rows = {
      {"gpt-2", {}},
      {.name = "smollm", .splits = {}, .digits = true},
      {.name = "llama-bpe",
       .splits =
           {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .whole_words = true,
       .begins = true},
      {.name = "qwen2",
       .splits =
           {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
       .normal_form = true},
      {"default",
       {R"([\p{P}\$\+<=>\^~\|]+)",
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
        R"([0-9][0-9][0-9])"}},
  };
  return rows;
}

std::optional<GgufVocabulary> gguf_vocabulary(const ModelFiles& model) {
  std::optional<GgufVocabulary> found = of_byte_level(*model.tokenizers.source);
  return found ? found : of_sentencepiece(model);
}

}  // namespace tapestry::interop
