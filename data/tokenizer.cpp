#include "data/tokenizer.h"

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "data/files.h"
#include "data/huggingface_files.h"
#include "data/marian.h"
#include "data/tokenizer_types.h"

namespace tapestry {
namespace {

using tokenizers::fail_option;

struct Type {
  const char* name;
  const char* contents;   // of its file
  const char* extension;  // of its file
  bool (*owns)(const std::string& bytes);
  decltype(&tokenizers::train_bpe) train;  // null: TokenizerOptions do not have it
  decltype(&tokenizers::load_bpe) load;
};

// Of the file beside a tokenizer.json.
constexpr const char* kIdsEnding = "_ids.json";

bool owns_the_rest(const std::string&) { return true; }

// SentencePiece's files have no header: they come last.
constexpr Type kTable[] = {
    {"bpe", "a byte-pair encoding", ".txt", tokenizers::is_bpe, tokenizers::train_bpe,
     tokenizers::load_bpe},
    {"char", "a vocabulary of characters", ".txt", tokenizers::is_characters,
     tokenizers::train_characters, tokenizers::load_characters},
    {"huggingface", "a tokenizer.json of Hugging Face's", ".json", is_huggingface,
     tokenizers::train_huggingface, tokenizers::load_huggingface},
    {"marian", "a side of Marian's tokenizers", ".marian", is_marian, nullptr,
     tokenizers::load_marian},
    {"sentencepiece", "a SentencePiece model or no tokenizer", ".model", owns_the_rest,
     tokenizers::train_sentencepiece, tokenizers::load_sentencepiece},
};

const Type& type_of(const std::string& bytes) {
  return *std::find_if(std::begin(kTable), std::end(kTable),
                       [&](const Type& type) { return type.owns(bytes); });
}

const Type& type_named(const std::string& name) {
  return *std::find_if(std::begin(kTable), std::end(kTable),
                       [&](const Type& type) { return type.name == name; });
}

void check_same_side(const Tokenizer& a, const std::string& name_a, const Tokenizer& b,
                     const std::string& name_b) {
  if (a.serialized() == b.serialized()) return;
  const auto both = static_cast<int32_t>(std::min(a.vocab_size(), b.vocab_size()));
  int32_t id = 0;
  while (id < both && a.piece(id) == b.piece(id)) ++id;
  const auto piece = [id](const Tokenizer& tokenizer) {
    return id < tokenizer.vocab_size() ? concat('\'', tokenizer.piece(id), '\'') : "none";
  };
  const std::string where =
      id == a.vocab_size() && id == b.vocab_size()
          ? "the pieces are the same, their scores or the normalisation differ."
          : concat("the first that differs has id ", id, ": ", piece(a), " and ", piece(b), '.');
  fail(ErrorKind::kData, "[tokenizer] ", name_a, " and ", name_b,
       " must have the same vocabulary, got ", a.vocab_size(), " and ", b.vocab_size(), " pieces; ",
       where);
}

}  // namespace

namespace tokenizers {

void fail_option(const std::string& what) { fail(ErrorKind::kConfig, "[tokenizer] ", what); }

void fail_too_large(const TokenizerOptions& options, const std::string& largest) {
  fail_option(concat("vocab_size ", options.vocab_size,
                     " is too large for this text, the largest possible is ", largest,
                     ". max_sentences and the limit of each corpus decide how much text is read."));
}

void fail_too_small(const TokenizerOptions& options, const std::string& needed) {
  fail_option(concat("vocab_size ", options.vocab_size,
                     " is too small for this text, its characters and the reserved pieces need ",
                     needed, "; or lower character_coverage."));
}

std::string code_point_name(char32_t c) {
  char text[16];
  std::snprintf(text, sizeof(text), "U+%04X", static_cast<unsigned>(c));
  return text;
}

bool parse_code_point(const std::string& name, char32_t& c) {
  unsigned value = 0;
  constexpr size_t kLongest = 8;  // U+10FFFF
  if (name.size() > kLongest || std::sscanf(name.c_str(), "U+%X", &value) != 1) return false;
  c = value;
  const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
  return c <= kMostCodePoint && !surrogate && code_point_name(c) == name;
}

std::vector<std::string> reserved_pieces() { return {"<pad>", "<unk>", "<s>", "</s>"}; }

std::vector<std::string> special_pieces(const TokenizerOptions& options) {
  std::vector<std::string> pieces;
  if (options.mask_piece) pieces.push_back(kMaskPiece);
  for (int64_t i = 0; i < options.sentinels; ++i) pieces.push_back(sentinel_piece(i));
  return pieces;
}

}  // namespace tokenizers

std::string sentinel_piece(int64_t i) { return concat("<extra_id_", i, '>'); }

int64_t TokenizerOptions::least_pieces() const {
  return kEosId + 1 + sentinels + (mask_piece ? 1 : 0) + (byte_fallback ? 256 : 0) + 1;
}

void TokenizerOptions::validate(const OptionReport& report) const {
  report.expect_one_of("type", type, kTypes);
  report.expect_one_of("algorithm", algorithm, kAlgorithms);
  report.expect_one_of("normalization", normalization, kNormalizations);
  report.expect(sentinels >= 0 && sentinels <= kMostSentinels, "sentinels", "must be in [0, ",
                kMostSentinels, "], got ", sentinels, '.');
  report.expect(path.empty() || share, "share",
                "must be true with path, which gives one tokenizer to both sides.");
  report.expect(type != "huggingface" || !path.empty(), "path",
                "must name a tokenizer.json with type huggingface, which cannot be trained.");
  // The text or the file decides the size of the others.
  if (learns_pieces()) {
    report.expect(vocab_size >= least_pieces() && vocab_size <= kMostPieces, "vocab_size",
                  "must be in [", least_pieces(), ", ", kMostPieces, ']',
                  byte_fallback   ? " with byte_fallback"
                  : sentinels > 0 ? " with sentinels"
                                  : "",
                  ", got ", vocab_size, '.');
  }
  report.expect(character_coverage >= kLeastCoverage && character_coverage <= 1,
                "character_coverage", "must be in [", kLeastCoverage, ", 1], got ",
                character_coverage, '.');
  report.expect(max_sentences >= 0, "max_sentences", "must be 0 (all) or more, got ", max_sentences,
                '.');
}

std::vector<PlacedToken> Tokenizer::encode_with_places(std::string_view) const {
  fail_option("this type of tokenizer cannot say where its tokens stand in a text.");
}

bool Tokenizer::starts_word(int32_t id) const {
  check(id >= 0 && id < vocab_size(), "tokenizer", "ids must be in [0, ", vocab_size(), "), got ",
        id, '.');
  return true;
}

std::optional<int32_t> Tokenizer::sentinel_id(int64_t i) const {
  if (i < 0 || i >= sentinels()) return std::nullopt;
  return sentinel_ids_[static_cast<size_t>(i)];
}

bool Tokenizer::is_special(int32_t id) const {
  const auto among = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return id == special_.pad || id == special_.unk || id == special_.bos || id == special_.eos ||
         id == mask_id_ || among(sentinel_ids_) || among(special_.unused) ||
         among(special_.further);
}

std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                 const LineSource& lines, uint64_t seed) {
  options.validate();
  return type_named(options.type).train(options, lines, seed);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& bytes, const std::string& name) {
  return type_of(bytes).load(bytes, name);
}

std::shared_ptr<const Tokenizer> read_tokenizer(const TokenizerOptions& options) {
  options.validate();
  const std::string bytes =
      options.type == "huggingface" ? read_huggingface(options.path) : read_file(options.path);
  const Type& found = type_of(bytes);
  if (found.name != options.type) {
    fail(ErrorKind::kData, "[tokenizer] ", options.path, " must be of type ", options.type,
         ", got ", found.contents, '.');
  }
  const auto tokenizer = load_tokenizer(bytes, options.path);
  if (options.mask_piece && !tokenizer->mask_id()) {
    fail_option(concat(options.path, " must have the special piece ", kMaskPiece, ", got none."));
  }
  if (tokenizer->sentinels() < options.sentinels) {
    fail_option(concat(options.path, " must have the special pieces ", sentinel_piece(0), " to ",
                       sentinel_piece(options.sentinels - 1), ", got ", tokenizer->sentinels(),
                       " of them."));
  }
  return tokenizer;
}

std::map<std::string, std::string> TokenizerPair::files() const {
  std::map<std::string, std::string> files;
  const auto add = [&](const std::string& stem, const Tokenizer& tokenizer) {
    const std::string& bytes = tokenizer.serialized();
    const std::string name = stem + type_of(bytes).extension;
    files[name] = bytes;
    if (!is_huggingface(bytes)) return;
    HuggingFaceFiles parts = split_huggingface(bytes, name);
    files[stem + kIdsEnding] = parts.ids.json() + "\n";
    files[name] = std::move(parts.tokenizer);
  };
  if (one()) {
    add("tokenizer", *source);
  } else {
    add("source", *source);
    add("target", *target);
  }
  return files;
}

TokenizerPair load_tokenizers(const std::map<std::string, std::string>& files) {
  const auto load = [&](const std::string& stem) -> std::shared_ptr<const Tokenizer> {
    for (const char* const extension : {".model", ".txt", ".marian"}) {
      const auto found = files.find(stem + extension);
      if (found != files.end()) return load_tokenizer(found->second, found->first);
    }
    const auto json = files.find(stem + ".json"), ids = files.find(stem + kIdsEnding);
    if (json != files.end() && ids != files.end()) {
      return load_tokenizer(join_huggingface(json->second, ids->second), json->first);
    }
    return nullptr;
  };
  if (const auto joint = load("tokenizer")) return {joint, joint};
  TokenizerPair pair{load("source"), load("target")};
  if (pair.source == nullptr || pair.target == nullptr) {
    fail(ErrorKind::kData,
         "[tokenizer] expected tokenizer.model, or source.model and target.model (or these with "
         ".txt), got ",
         pair.source   ? concat("source", type_of(pair.source->serialized()).extension, " only.")
         : pair.target ? concat("target", type_of(pair.target->serialized()).extension, " only.")
                       : "neither.");
  }
  return pair;
}

void check_same_vocabulary(const TokenizerPair& a, const std::string& name_a,
                           const TokenizerPair& b, const std::string& name_b) {
  check_same_side(*a.source, name_a, *b.source, name_b);
  check_same_side(*a.target, name_a, *b.target, name_b);
}

}  // namespace tapestry
