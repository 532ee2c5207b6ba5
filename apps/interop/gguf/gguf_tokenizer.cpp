#include "apps/interop/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "apps/interop/gguf/gguf_vocabulary.h"
#include "core/base/text.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/parts/written_file.h"
#include "data/tokenizers/protobuf.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace tapestry::interop {
namespace {

using tokenizer_file::AddedToken;
using tokenizer_file::byte_level;
using tokenizer_file::FramePart;

constexpr const char* kPrefix = "tokenizer.ggml.";
std::string key_of(const char* name) { return std::string(kPrefix) + name; }

struct Pieces {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;  // of SentencePiece's
};

// Unset with a reason if it is not the id of a token.
std::optional<int64_t> id_of(const GgufFile& file, const char* name, size_t tokens,
                             Reasons& reasons) {
  const std::string key = key_of(name);
  const std::optional<int64_t> id = file.integer(key);
  // Files without such a token have said so with the largest number of their type.
  if (!id || *id == -1 || *id == 0xFFFFFFFF) return std::nullopt;
  if (*id < 0 || *id >= static_cast<int64_t>(tokens)) {
    reasons.push_back(concat(key, " is ", *id, ", the vocabulary has ", tokens, " tokens"));
    return std::nullopt;
  }
  return id;
}

Pieces pieces_of(const GgufFile& file, bool scored, int64_t rows, Reasons& reasons) {
  Pieces pieces;
  const auto texts = file.texts(key_of("tokens"));
  if (!texts || texts->empty()) {
    reasons.push_back(concat(key_of("tokens"), " is missing"));
    return pieces;
  }
  pieces.texts = *texts;
  const size_t size = pieces.texts.size();
  if (static_cast<int64_t>(size) > rows) {
    reasons.push_back(
        concat(key_of("tokens"), " has ", size, " tokens, the model has ", rows, " rows for them"));
  }
  const auto same_size = [&](const char* key, size_t count) {
    if (count != size) {
      reasons.push_back(
          concat(key_of(key), " has ", count, " elements, ", key_of("tokens"), " has ", size));
    }
  };
  pieces.types =
      file.integers(key_of("token_type")).value_or(std::vector<int32_t>(size, GgufPiece::kNormal));
  same_size("token_type", pieces.types.size());
  if (scored) {
    const auto scores = file.reals(key_of("scores"));
    if (!scores) reasons.push_back(concat(key_of("scores"), " is missing"));
    pieces.scores = scores.value_or(std::vector<float>(size));
    same_size("scores", pieces.scores.size());
  }
  if (!reasons.empty()) return pieces;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t id = 0; id < size; ++id) {
    const std::string& text = pieces.texts[id];
    const int32_t type = pieces.types[id];
    const auto [other, first] = seen.emplace(text, id);
    if (!first) {
      reasons.push_back(
          concat("the tokens ", other->second, " and ", id, " are both '", text, "'"));
    } else if (text.empty()) {
      reasons.push_back(concat("token ", id, " is empty"));
    } else if (type < GgufPiece::kNormal || type > GgufPiece::kByte ||
               (type == GgufPiece::kByte && !scored)) {
      reasons.push_back(concat("token ", id, " ('", text, "') has the type ", type));
    }
    if (reasons.size() >= 8) break;
  }
  return pieces;
}

std::vector<AddedToken> added_tokens(const Pieces& pieces) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < pieces.texts.size(); ++id) {
    const int32_t type = pieces.types[id];
    if (type == GgufPiece::kNormal || type == GgufPiece::kUnused) continue;
    tokens.push_back({.id = static_cast<int64_t>(id),
                      .content = pieces.texts[id],
                      .special = type != GgufPiece::kUserDefined});
  }
  return tokens;
}

Json pre_tokenizer(const GgufPreTokenizer& row) {
  Json parts = Json::array();
  if (row.digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const std::string& split : row.splits) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", split}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back(byte_level(/*add_prefix_space=*/false, /*trim_offsets=*/true,
                             /*use_regex=*/row.splits.empty()));
  if (parts.size() == 1) return parts[0];
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

// bos and eos around each text, as far as the file wants them.
Json frame(const Pieces& pieces, std::optional<int64_t> before, std::optional<int64_t> after) {
  if (!before && !after) {
    return byte_level(/*add_prefix_space=*/true, /*trim_offsets=*/false, /*use_regex=*/true);
  }
  std::vector<FramePart> single, pair;
  for (std::vector<FramePart>* const parts : {&single, &pair}) {
    int type = 0;
    const auto add = [&](std::optional<int64_t> id) {
      if (id) parts->push_back({pieces.texts[static_cast<size_t>(*id)], id, type});
    };
    for (const char* text : {"A", "B"}) {
      add(before);
      parts->push_back({.name = text, .type = type});
      add(after);
      ++type;
      if (parts == &single) break;
    }
  }
  return tokenizer_file::template_of(single, pair);
}

const GgufPreTokenizer* pre_tokenizer_named(const GgufFile& file, Reasons& reasons) {
  const std::string name = file.text(key_of("pre")).value_or("default");
  std::vector<std::string> known;
  for (const GgufPreTokenizer& row : gguf_pre_tokenizers()) {
    if (name == row.name) return &row;
    known.emplace_back(row.name);
  }
  reasons.push_back(concat(key_of("pre"), " is '", name, "', Tapestry knows ", join(known, ", "),
                           ": other ways to cut a text would give other tokens"));
  return nullptr;
}

std::shared_ptr<const Tokenizer> byte_level_bpe(const GgufFile& file, int64_t rows,
                                                Reasons& reasons) {
  const GgufPreTokenizer* const pre = pre_tokenizer_named(file, reasons);
  const Pieces pieces = pieces_of(file, /*scored=*/false, rows, reasons);
  const auto merges = file.texts(key_of("merges"));
  if (!merges) reasons.push_back(concat(key_of("merges"), " is missing"));
  if (file.flag(key_of("add_space_prefix")) == true) {
    reasons.push_back(concat(key_of("add_space_prefix"),
                             " is true, which a tokenizer of bytes here does not have"));
  }
  const size_t size = pieces.texts.size();
  const auto id = [&](const char* name) { return id_of(file, name, size, reasons); };
  const auto bos = id("bos_token_id"), unk = id("unknown_token_id"), pad = id("padding_token_id"),
             mask = id("mask_token_id");
  const size_t known = reasons.size();
  const std::vector<int64_t> ends = gguf_ends(file, reasons);
  if (ends.empty() && reasons.size() == known) {
    reasons.push_back(concat(key_of("eos_token_id"), " is missing"));
  }
  if (!reasons.empty()) return nullptr;
  Json vocab = Json::object();
  for (size_t token = 0; token < size; ++token) {
    if (pieces.types[token] == GgufPiece::kUnused) continue;
    tokenizer_file::append(vocab, pieces.texts[token], token);
  }
  const bool begins = file.flag(key_of("add_bos_token")).value_or(pre->begins);
  const bool closes = file.flag(key_of("add_eos_token")).value_or(false);
  if (begins && !bos) reasons.push_back(concat(key_of("bos_token_id"), " is missing"));
  if (!reasons.empty()) return nullptr;
  const std::optional<int64_t> none;
  const std::string json = tokenizer_file::written(
      {.added_tokens = added_tokens(pieces),
       .normalizer = pre->normal_form ? Json{{"type", "NFC"}} : Json(),
       .pre_tokenizer = pre_tokenizer(*pre),
       .post_processor = frame(pieces, begins ? bos : none, closes ? ends.front() : none),
       .decoder = byte_level(/*add_prefix_space=*/true, /*trim_offsets=*/true, /*use_regex=*/true),
       .model =
           tokenizer_file::BpeModel{
               .vocab = std::move(vocab), .merges = *merges, .ignore_merges = pre->whole_words}
               .json()});
  HuggingFaceIds ids;
  ids.pad = pad;
  ids.unk = unk;
  ids.mask = mask;
  ids.bos = bos.value_or(ends.front());
  ids.eos = ends.front();
  ids.rows = rows;
  ids.ends.assign(ends.begin() + 1, ends.end());
  ids.frames_once = true;
  return load_tokenizer(join_huggingface(json, ids.json()), file.name() + " (tokenizer.ggml)");
}

// The field numbers of SentencePiece's ModelProto.
enum Model : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };

std::string sentencepiece_bytes(const Pieces& pieces, const std::optional<int64_t> (&ids)[4],
                                bool bytes, bool prefix, bool trims) {
  ProtobufWriter model;
  for (size_t id = 0; id < pieces.texts.size(); ++id) {
    model.message(kPieces, ProtobufWriter()
                               .bytes(1, pieces.texts[id])
                               .single(2, pieces.scores[id])
                               .integer(3, pieces.types[id]));
  }
  ProtobufWriter trainer;
  trainer.integer(3, SentencePieceModel::kBpe).integer(35, bytes ? 1 : 0);
  // unk, bos, eos and pad: their ids are 40 to 43, their pieces 45 to 48. No piece can be called
  // "\n": a text cannot have it in a line.
  for (uint32_t i = 0; i < 4; ++i) {
    trainer.integer(40 + i, ids[i].value_or(-1));
  }
  for (uint32_t i = 0; i < 4; ++i) {
    trainer.bytes(45 + i, ids[i] ? pieces.texts[static_cast<size_t>(*ids[i])] : "\n");
  }
  ProtobufWriter normalizer;
  normalizer.bytes(1, "identity")
      .integer(3, prefix ? 1 : 0)
      .integer(4, trims ? 1 : 0)
      .integer(5, 1);
  model.message(kTrainerSpec, trainer).message(kNormalizerSpec, normalizer);
  return model.text();
}

// Pieces that are merged by their scores, with pieces for bytes.
std::shared_ptr<const Tokenizer> scored(const GgufFile& file, int64_t rows, Reasons& reasons,
                                        Reasons& notes) {
  const std::string pre = file.text(key_of("pre")).value_or("default");
  if (pre != "default") {
    reasons.push_back(concat(key_of("pre"), " is '", pre, "', expected 'default' with ",
                             key_of("model"), " 'llama'"));
  }
  Pieces pieces = pieces_of(file, /*scored=*/true, rows, reasons);
  const size_t size = pieces.texts.size();
  const auto id = [&](const char* name) { return id_of(file, name, size, reasons); };
  const std::optional<int64_t> ids[4] = {id("unknown_token_id"), id("bos_token_id"),
                                         id("eos_token_id"), id("padding_token_id")};
  const auto& [unk, bos, eos, pad] = ids;
  if (!unk) reasons.push_back(concat(key_of("unknown_token_id"), " is missing"));
  if (!eos) reasons.push_back(concat(key_of("eos_token_id"), " is missing"));
  if (!reasons.empty()) return nullptr;
  const bool bytes = std::ranges::count(pieces.types, int32_t{GgufPiece::kByte}) == 256;
  if (!bytes && std::ranges::find(pieces.types, int32_t{GgufPiece::kByte}) != pieces.types.end()) {
    reasons.emplace_back(
        "the vocabulary has some of the 256 pieces of a byte, expected all or none");
  }
  for (size_t token = size; token < static_cast<size_t>(rows); ++token) {
    pieces.texts.push_back(concat("<unused_", token, '>'));
    pieces.scores.push_back(0);
    pieces.types.push_back(GgufPiece::kUnused);
  }
  const bool begins = file.flag(key_of("add_bos_token")).value_or(true);
  const bool closes = file.flag(key_of("add_eos_token")).value_or(false);
  const bool own_ids = unk == kUnkId && eos == kEosId && pad == kPadId;
  // Documents of ours begin with eos, of others with bos.
  const bool known = own_ids ? (begins ? bos == eos : bos == kBosId) : begins && bos.has_value();
  if (closes || !known) {
    reasons.push_back(concat("the texts of this kind of tokenizer begin with ",
                             own_ids ? "eos_token_id" : "bos_token_id", ": ",
                             key_of("bos_token_id"), " is ", file.shown(key_of("bos_token_id")),
                             ", add_bos_token ", begins ? "true" : "false", ", add_eos_token ",
                             closes ? "true" : "false"));
  }
  if (!reasons.empty()) return nullptr;
  std::optional<int64_t> own[4];
  std::ranges::copy(ids, own);
  if (own_ids) own[1] = kBosId;
  for (const int64_t end : gguf_ends(file, reasons)) {
    if (end == eos) continue;
    notes.push_back(concat("the token ", end, " ('", pieces.texts[static_cast<size_t>(end)],
                           "') does not end a text here: this type of tokenizer has one end."));
  }
  const bool prefix = file.flag(key_of("add_space_prefix")).value_or(true);
  const bool trims = file.flag(key_of("remove_extra_whitespaces")).value_or(false);
  return load_tokenizer(sentencepiece_bytes(pieces, own, bytes, prefix, trims), file.name());
}

// Keys that are read, or that only programs for other tasks read.
constexpr const char* kKnown[] = {"model",
                                  "pre",
                                  "tokens",
                                  "token_type",
                                  "scores",
                                  "merges",
                                  "bos_token_id",
                                  "eos_token_id",
                                  "eot_token_id",
                                  "eom_token_id",
                                  "unknown_token_id",
                                  "padding_token_id",
                                  "mask_token_id",
                                  "add_bos_token",
                                  "add_eos_token",
                                  "add_space_prefix",
                                  "remove_extra_whitespaces",
                                  "seperator_token_id",
                                  "cls_token_id",
                                  "token_type_count"};

}  // namespace

bool is_gguf_tokenizer_key(const std::string& key) {
  return std::ranges::any_of(kKnown, [&](const char* name) { return key == key_of(name); });
}

std::vector<int64_t> gguf_ends(const GgufFile& file, Reasons& reasons) {
  std::vector<int64_t> ends;
  const auto texts = file.texts(key_of("tokens"));
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const auto id = id_of(file, name, texts ? texts->size() : 0, reasons);
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  }
  return ends;
}

std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufFile& file, int64_t rows,
                                                Reasons& reasons, Reasons& notes) {
  const std::string engine = file.text(key_of("model")).value_or("none");
  if (engine == "gpt2") return byte_level_bpe(file, rows, reasons);
  if (engine == "llama") return scored(file, rows, reasons, notes);
  reasons.push_back(concat(key_of("model"), " is '", engine,
                           "', Tapestry reads gpt2 (byte-level BPE) and llama (SentencePiece)"));
  return nullptr;
}

bool is_one_document(const GgufFile& file, const Tokenizer& tokenizer) {
  return !tokenizer.special().one_text && file.flag(key_of("add_bos_token")) == false;
}

}  // namespace tapestry::interop
