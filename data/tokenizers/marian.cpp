#include "data/tokenizers/marian.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/tokenizers/languages.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/parts/unicode_text.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMarianHeader = "tapestry marian 1\n";
constexpr const char* kTargetVocabulary = "target_vocab.json";

}  // namespace

namespace tokenizers {
namespace {

class MarianTokenizer : public Tokenizer {
 public:
  MarianTokenizer(const std::string& bytes, const std::string& name)
      : bytes_(bytes), files_(split_marian(bytes, name)) {
    const auto status = processor_.LoadFromSerializedProto(files_.pieces);
    if (!status.ok()) {
      fail(ErrorKind::kData, "[tokenizer] ", name,
           " has no SentencePiece model: ", status.message(), '.');
    }
    read_vocabulary(name);
    read_ids(name);
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      own_ids_.push_back(id_of(processor_.IdToPiece(id)));
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const PlacedToken& token : encode_with_places(text)) ids.push_back(token.id);
    return ids;
  }

  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    for (const TextSection& section : special_words_.sections(text)) {
      const int64_t begin = section.text.data() - text.data();
      if (section.id >= 0) {
        tokens.push_back({section.id, begin, begin + std::ssize(section.text)});
      } else {
        encode_section(section.text, begin, tokens);
      }
    }
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::vector<std::string> pieces;
    for (const int32_t id : ids) {
      if (!is_special(id)) pieces.push_back(piece(id));
    }
    std::string joined, text;
    const auto status = processor_.Decode(pieces, &joined);
    check(status.ok(), "tokenizer", "SentencePiece cannot decode: ", status.message(), '.');
    // Pieces of the other side keep their marks.
    for (size_t at = 0; at < joined.size();) {
      const bool mark = std::string_view(joined).substr(at).starts_with(kSpacePiece);
      text += mark ? ' ' : joined[at];
      at += mark ? kSpacePiece.size() : 1;
    }
    return std::string(strip(text));
  }

  int64_t vocab_size() const override { return std::ssize(pieces_); }

  std::string piece(int32_t id) const override {
    check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
          id, '.');
    const auto& text = pieces_[static_cast<size_t>(id)];
    return text ? *text : concat("<unused_", id, '>');
  }

  const std::string& serialized() const override { return bytes_; }
  bool starts_word(int32_t id) const override { return piece(id).starts_with(kSpacePiece); }
  bool reads_special_words() const override { return true; }

  bool has_ids_of(const Tokenizer& other) const override {
    const auto* const side = dynamic_cast<const MarianTokenizer*>(&other);
    return side != nullptr && side->pieces_ == pieces_ &&
           side->files_.ids.json() == files_.ids.json();
  }

 private:
  void read_vocabulary(const std::string& name) {
    const Json json = Json::parse(files_.vocabulary, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      fail(ErrorKind::kData, "[tokenizer] the vocabulary of ", name, " is not a JSON object.");
    }
    const int64_t rows = files_.ids.rows > 0 ? files_.ids.rows : std::ssize(json);
    pieces_.resize(static_cast<size_t>(rows));
    for (const auto& [text, id] : json.items()) {
      if (!id.is_number_integer() || id < 0 || id >= rows) {
        fail(ErrorKind::kData, "[tokenizer] the vocabulary of ", name, " gives '", text,
             "' the id ", id.is_primitive() ? id.dump() : id.type_name(), ", the model has ", rows,
             " rows.");
      }
      auto& place = pieces_[id.get<size_t>()];
      if (place) {
        fail(ErrorKind::kData, "[tokenizer] the vocabulary of ", name, " gives the id ", id.dump(),
             " to '", *place, "' and to '", text, "'.");
      }
      place = text;
      ids_.emplace(text, id.get<int32_t>());
    }
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (!pieces_[static_cast<size_t>(id)]) special_.unused.push_back(id);
    }
  }

  void read_ids(const std::string& name) {
    const auto known = [&](const char* what, int64_t id) {
      if (id < 0 || id >= vocab_size()) {
        fail(ErrorKind::kData, "[tokenizer] ", name, " has no token with the id ", id,
             ", which is to be its ", what, '.');
      }
      return static_cast<int32_t>(id);
    };
    const HuggingFaceIds& ids = files_.ids;
    if (!ids.unk) {
      fail(ErrorKind::kData, "[tokenizer] the vocabulary of ", name, " must have a token <unk>.");
    }
    special_.pad = ids.pad ? std::optional(known("pad", *ids.pad)) : std::nullopt;
    special_.unk = known("unk", *ids.unk);
    special_.bos = known("bos", ids.bos);
    special_.eos = known("eos", ids.eos);
    for (const int64_t end : ids.ends) special_.more_ends.push_back(known("end", end));
    if (ids.start) special_.start = known("start", *ids.start);
    if (ids.first) special_.first = known("first", *ids.first);
    special_.one_text = TextFrame{{}, {special_.eos}};
    std::vector<std::optional<int32_t>> words = {special_.pad, special_.unk, special_.eos};
    if (ids.language) {
      special_.one_text->before = {known("language", *ids.language)};
      for (int32_t id = 0; id < vocab_size(); ++id) {
        const auto& text = pieces_[static_cast<size_t>(id)];
        if (text && text->starts_with("__") && is_language_token(*text)) {
          special_.languages.push_back(id);
        }
      }
      special_.further = special_.languages;
      words.push_back(special_.bos);
      words.insert(words.end(), special_.languages.begin(), special_.languages.end());
    }
    for (const auto& id : words) {
      if (id && pieces_[static_cast<size_t>(*id)]) {
        special_words_.add(*id, *pieces_[static_cast<size_t>(*id)]);
      }
    }
  }

  int32_t id_of(const std::string& text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? *special_.unk : found->second;
  }

  // Encodes a text without special words. ">>fr<<" in front of it is one token, which tells a model
  // the language to write.
  void encode_section(std::string_view text, int64_t begin,
                      std::vector<PlacedToken>& tokens) const {
    const bool names = !files_.ids.language && text.starts_with(">>");
    const size_t close = names ? text.find("<<") : std::string_view::npos;
    if (close != std::string_view::npos) {
      const std::string_view code = text.substr(0, close + 2);
      tokens.push_back({id_of(std::string(code)), begin, begin + std::ssize(code)});
      text.remove_prefix(code.size());
      begin += std::ssize(code);
    }
    const auto encoded = processor_.EncodeAsImmutableProto(text);
    for (const auto& piece : encoded.pieces()) {
      // A piece that this side does not know may belong to the other one.
      const auto id = static_cast<int>(piece.id());
      const bool unknown = processor_.IsUnknown(id);
      tokens.push_back({unknown ? id_of(std::string(piece.piece())) : own_ids_[id],
                        begin + piece.begin(), begin + piece.end()});
    }
  }

  std::string bytes_;
  MarianFiles files_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::optional<std::string>> pieces_;  // by id; unset: no piece has it
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<int32_t> own_ids_;  // by SentencePiece's
  TokenFinder special_words_;
};

}  // namespace

std::shared_ptr<const Tokenizer> load_marian(const std::string& bytes, const std::string& name) {
  return std::make_shared<MarianTokenizer>(bytes, name);
}

}  // namespace tokenizers

std::string join_marian(const MarianFiles& files) {
  return concat(kMarianHeader, files.ids.json(), '\n', files.vocabulary.size(), '\n',
                files.vocabulary, files.pieces);
}

MarianFiles split_marian(const std::string& bytes, const std::string& name) {
  size_t at = kMarianHeader.size();
  const auto line = [&] {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string text = bytes.substr(at, end - at);
    at = std::min(end + 1, bytes.size());
    return text;
  };
  const HuggingFaceIds ids = HuggingFaceIds::parse(line(), name);
  const std::string length = line();
  const Json size = Json::parse(length, nullptr, /*allow_exceptions=*/false);
  if (!size.is_number_unsigned() || size.get<uint64_t>() > bytes.size() - at) {
    fail(ErrorKind::kData, "[tokenizer] ", name, " must have a vocabulary of '", length,
         "' bytes, and has ", bytes.size() - at, " for it.");
  }
  return {bytes.substr(at + size.get<size_t>()), bytes.substr(at, size.get<size_t>()), ids};
}

bool is_marian(const std::string& bytes) { return bytes.starts_with(kMarianHeader); }

bool has_marian_tokenizers(const std::string& folder) {
  return std::ranges::all_of(
      std::initializer_list<const char*>{"source.spm", "target.spm", "vocab.json"},
      [&](const char* file) { return std::filesystem::is_regular_file(folder + "/" + file); });
}

TokenizerPair read_marian(const std::string& folder, const HuggingFaceHints& source,
                          const HuggingFaceHints& target) {
  const auto side = [&](const char* pieces, const std::string& vocabulary,
                        const HuggingFaceHints& hints) {
    const std::string path = folder + "/" + pieces;
    MarianFiles files{read_file(path), read_file(folder + "/" + vocabulary), {}};
    files.ids = huggingface_ids(folder, folder + "/" + vocabulary, files.vocabulary, hints);
    return load_tokenizer(join_marian(files), path);
  };
  const bool two = std::filesystem::is_regular_file(folder + "/" + kTargetVocabulary);
  return {side("source.spm", "vocab.json", source),
          side("target.spm", two ? kTargetVocabulary : "vocab.json", target)};
}

}  // namespace tapestry
