#include "data/tokenizers/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/base/error.h"
#include "data/tokenizers/bpe_model.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/parts/written_file.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry {
namespace {

using tokenizer_file::AddedToken;
using tokenizer_file::FramePart;
using tokenizer_file::Json;
using tokenizers::kSpacePiece;
using Piece = SentencePieceModel::Piece;

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      const auto byte = i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u;
      group = group << 8 | byte;
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

Json sequence(const char* list, Json parts) {
  return parts.empty() ? Json() : Json{{"type", "Sequence"}, {list, std::move(parts)}};
}

Json replace(const char* kind, const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

Json metaspace(bool prefix) {
  return {{"type", "Metaspace"},
          {"replacement", kSpacePiece},
          {"prepend_scheme", prefix ? "always" : "never"},
          {"split", true}};
}

// \A and \z, for ^ and $ stop at the ends of lines.
void add_trimming(Json& normalizers) {
  normalizers.push_back(replace("Regex", "\\A +| +\\z", ""));
  normalizers.push_back(replace("Regex", " {2,}", " "));
}

void add_charsmap(const std::string& charsmap, Json& normalizers) {
  if (charsmap.empty()) return;
  normalizers.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(charsmap)}});
}

Json decoder_of(bool byte_fallback, bool prefix) {
  if (!byte_fallback) return metaspace(prefix);
  Json parts = {replace("String", std::string(kSpacePiece), " "),
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (prefix) {
    parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence("decoders", parts);
}

Json bpe_model(Json vocab, Json merges, bool byte_fallback, bool fuse_unk) {
  return tokenizer_file::BpeModel{.vocab = std::move(vocab),
                                  .merges = std::move(merges),
                                  .unk_token = "<unk>",
                                  .fuse_unk = fuse_unk,
                                  .byte_fallback = byte_fallback}
      .json();
}

// SentencePiece merges the pair whose piece has the best score: a list of all pairs in that order
// does the same.
Json merges_of(const std::vector<Piece>& pieces) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].type == SentencePieceModel::kNormal) {
      ids.emplace(pieces[id].text, static_cast<int32_t>(id));
    }
  }
  struct Merge {
    int32_t left, right;
    float score;
  };
  std::vector<Merge> merges;
  for (const Piece& piece : pieces) {
    if (piece.type != SentencePieceModel::kNormal) continue;
    const std::string_view text = piece.text;
    const size_t first = merges.size();
    for (size_t at = 1; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;  // inside a character
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({left->second, right->second, piece.score});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return a.left != b.left ? a.left < b.left : a.right < b.right;
              });
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  Json list = Json::array();
  for (const Merge& merge : merges) {
    list.push_back(pieces[static_cast<size_t>(merge.left)].text + ' ' +
                   pieces[static_cast<size_t>(merge.right)].text);
  }
  return list;
}

Json vocabulary_of(const Tokenizer& tokenizer) {
  Json vocab = Json::object();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    tokenizer_file::append(vocab, tokenizer.piece(id), id);
  }
  return vocab;
}

// normalizer, pre_tokenizer, decoder and model.
Json sentencepiece_parts(const Tokenizer& tokenizer) {
  const SentencePieceModel model =
      SentencePieceModel::parse(tokenizer.serialized(), "the tokenizer");
  Json normalizers = Json::array();
  add_charsmap(model.charsmap, normalizers);
  if (model.remove_extra_whitespaces) add_trimming(normalizers);
  Json parts = {{"normalizer", sequence("normalizers", normalizers)},
                {"pre_tokenizer", metaspace(model.add_dummy_prefix)},
                {"decoder", decoder_of(model.byte_fallback, model.add_dummy_prefix)}};
  if (model.algorithm != SentencePieceModel::kUnigram) {
    parts["model"] = bpe_model(vocabulary_of(tokenizer), merges_of(model.pieces),
                               model.byte_fallback, /*fuse_unk=*/true);
    return parts;
  }
  Json pieces = Json::array();
  for (const Piece& piece : model.pieces) pieces.push_back({piece.text, piece.score});
  parts["model"] = {{"type", "Unigram"},
                    {"unk_id", tokenizer.special().unk.value_or(kUnkId)},
                    {"vocab", std::move(pieces)},
                    {"byte_fallback", model.byte_fallback}};
  return parts;
}

// The rules of a normalisation as that library reads them: SentencePiece puts them into each of its
// models.
std::string charsmap_of(const std::string& normalization) {
  if (normalization == "identity") return "";
  TokenizerOptions options;
  options.algorithm = "char";
  options.vocab_size = 16;
  options.normalization = normalization;
  bool given = false;
  const LineSource one_line = [&](std::string& line) {
    line = "a b c d";
    return !std::exchange(given, true);
  };
  const auto tokenizer = train_tokenizer(options, one_line, /*seed=*/1);
  return SentencePieceModel::parse(tokenizer->serialized(), "the normalisation").charsmap;
}

Json bpe_parts(const Tokenizer& tokenizer) {
  const auto model = tokenizers::BpeModel::parse(tokenizer.serialized(), "the tokenizer");
  Json normalizers = Json::array();
  add_charsmap(charsmap_of(model.normalization), normalizers);
  normalizers.push_back(replace("String", std::string(kSpacePiece), " "));
  add_trimming(normalizers);
  // A word is split where letters, digits and others meet; its mark belongs to the first part.
  const std::string mark = std::string(kSpacePiece);
  const std::string kinds = mark + "?[\\p{L}\\p{M}]+|" + mark + "?\\p{N}+|" + mark +
                            "?[^\\p{L}\\p{M}\\p{N}" + mark + "]+";
  Json merges = Json::array();
  for (const auto& [left, right] : model.merges) merges.push_back(left + ' ' + right);
  const Json splits = {metaspace(/*prefix=*/true),
                       {{"type", "Split"},
                        {"pattern", {{"Regex", kinds}}},
                        {"behavior", "Isolated"},
                        {"invert", false}}};
  return {{"normalizer", sequence("normalizers", normalizers)},
          {"pre_tokenizer", sequence("pretokenizers", splits)},
          {"decoder", decoder_of(model.byte_fallback, /*prefix=*/true)},
          {"model", bpe_model(vocabulary_of(tokenizer), merges, model.byte_fallback, true)}};
}

Json character_parts(const Tokenizer& tokenizer) {
  return {{"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model", bpe_model(vocabulary_of(tokenizer), Json::array(), false, false)}};
}

// Words and numbers are whole, each other character is one; the mark belongs to the first part.
Json word_parts(const Tokenizer& tokenizer) {
  Json normalizers = Json::array();
  const std::string& bytes = tokenizer.serialized();
  const std::string key = "\nnormalization ";
  const size_t at = bytes.find(key) + key.size();
  add_charsmap(charsmap_of(bytes.substr(at, bytes.find('\n', at) - at)), normalizers);
  normalizers.push_back(replace("String", std::string(kSpacePiece), " "));
  add_trimming(normalizers);
  const std::string mark = std::string(kSpacePiece);
  const std::string kinds =
      mark + "?[\\p{L}\\p{M}]+|" + mark + "?\\p{N}+|" + mark + "?[^" + mark + "]";
  const Json splits = {metaspace(/*prefix=*/true),
                       {{"type", "Split"},
                        {"pattern", {{"Regex", kinds}}},
                        {"behavior", "Isolated"},
                        {"invert", false}}};
  return {{"normalizer", sequence("normalizers", normalizers)},
          {"pre_tokenizer", sequence("pretokenizers", splits)},
          {"decoder", metaspace(/*prefix=*/true)},
          {"model",
           {{"type", "WordLevel"}, {"vocab", vocabulary_of(tokenizer)}, {"unk_token", "<unk>"}}}};
}

Json parts_of(const Tokenizer& tokenizer) {
  if (tokenizers::is_words(tokenizer.serialized())) return word_parts(tokenizer);
  if (tokenizers::is_bpe(tokenizer.serialized())) return bpe_parts(tokenizer);
  if (tokenizers::is_characters(tokenizer.serialized())) return character_parts(tokenizer);
  return sentencepiece_parts(tokenizer);
}

std::vector<AddedToken> added_tokens(const Tokenizer& tokenizer) {
  std::vector<AddedToken> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id) && std::ranges::count(tokenizer.symbols(), id) == 0) continue;
    tokens.push_back({.id = id, .content = tokenizer.piece(id)});
  }
  return tokens;
}

Json frame_of(const Tokenizer& tokenizer, const TextFrame& frame) {
  if (frame.before.empty() && frame.after.empty()) return nullptr;
  std::vector<FramePart> single;
  const auto add = [&](std::vector<FramePart>& parts, const std::vector<int32_t>& ids, int type) {
    for (const int32_t id : ids) parts.push_back({tokenizer.piece(id), id, type});
  };
  add(single, frame.before, 0);
  single.push_back({"A"});
  add(single, frame.after, 0);
  std::vector<FramePart> pair = single;
  pair.push_back({.name = "B", .type = 1});
  add(pair, frame.after, 1);
  return tokenizer_file::template_of(single, pair);
}

}  // namespace

std::string tokenizer_json(const Tokenizer& tokenizer, const TextFrame& frame,
                           bool cuts_at_symbols) {
  // The library normalises and marks the parts between added tokens as if each were a text.
  if (!tokenizer.symbols().empty() && !cuts_at_symbols) {
    fail(ErrorKind::kData,
         "[export] tokenizer.json cannot say where words begin beside symbols of ",
         "the user, got ", tokenizer.symbols().size(), " of them, '",
         tokenizer.piece(tokenizer.symbols()[0]), "' the first.");
  }
  Json parts = parts_of(tokenizer);
  return tokenizer_file::written({.added_tokens = added_tokens(tokenizer),
                                  .normalizer = std::move(parts["normalizer"]),
                                  .pre_tokenizer = std::move(parts["pre_tokenizer"]),
                                  .post_processor = frame_of(tokenizer, frame),
                                  .decoder = std::move(parts["decoder"]),
                                  .model = std::move(parts["model"])});
}

std::string unigram_json(const UnigramFile& file) {
  Json pieces = Json::array();
  std::vector<AddedToken> added;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    pieces.push_back({piece.text, piece.score});
    if (piece.type != SentencePieceModel::kControl && piece.type != SentencePieceModel::kUnknown) {
      continue;
    }
    added.push_back(
        {.id = static_cast<int64_t>(id), .content = piece.text, .lstrip = piece.text == "<mask>"});
  }
  const auto add = [&](std::vector<FramePart>& parts, const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      parts.push_back({file.pieces[static_cast<size_t>(id)].text, id});
    }
  };
  std::vector<FramePart> one, two;
  for (std::vector<FramePart>* const parts : {&one, &two}) {
    add(*parts, file.before);
    parts->push_back({"A"});
  }
  add(one, file.after);
  add(two, file.between);
  two.push_back({"B"});
  add(two, file.after);
  Json normalizers = Json::array();
  add_charsmap(file.charsmap, normalizers);
  return tokenizer_file::written(
      {.added_tokens = std::move(added),
       .normalizer = normalizers.empty() ? Json() : normalizers[0],
       .pre_tokenizer =
           sequence("pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace(/*prefix=*/true)}),
       .post_processor = tokenizer_file::template_of(one, two),
       .decoder = metaspace(/*prefix=*/true),
       .model = {{"type", "Unigram"},
                 {"unk_id", file.unk},
                 {"vocab", std::move(pieces)},
                 {"byte_fallback", false}}},
      /*indent=*/2);
}

std::string t5_tokenizer_json(const std::string& bytes, int64_t sentinels,
                              const std::string& name) {
  SentencePieceModel model = SentencePieceModel::parse(bytes, name);
  constexpr const char* kSpecial[] = {"<pad>", "</s>", "<unk>"};
  constexpr int32_t kEos = 1, kUnk = 2;
  for (size_t id = 0; id < std::size(kSpecial); ++id) {
    if (id < model.pieces.size() && model.pieces[id].text == kSpecial[id]) continue;
    fail(ErrorKind::kData, "[tokenizer] ", name, " must begin with <pad>, </s> and <unk>, got '",
         id < model.pieces.size() ? model.pieces[id].text : "", "' as piece ", id, '.');
  }
  if (model.algorithm != SentencePieceModel::kUnigram) {
    fail(ErrorKind::kData, "[tokenizer] ", name, " must be a unigram model, as T5's are.");
  }
  for (int64_t i = sentinels; i-- > 0;) {
    model.pieces.push_back({sentinel_piece(i), 0, SentencePieceModel::kControl});
  }
  return unigram_json({.pieces = std::move(model.pieces),
                       .charsmap = std::move(model.charsmap),
                       .unk = kUnk,
                       .between = {kEos},
                       .after = {kEos}});
}

}  // namespace tapestry
