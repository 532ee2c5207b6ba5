#include "data/tokenizers/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "data/files/files.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/marian.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/parts/text_regex.h"
#include "data/tokenizers/tokenizer_types.h"

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
  decltype(&tokenizers::bpe_side) side = nullptr;  // null: texts are as they are
};

// Ending of the file beside a tokenizer.json.
constexpr const char* kIdsEnding = "_ids.json";
constexpr const char* kCameWithFile = "came_with.json";

// An export writes a file of this name into its own folder.
bool stays_inside(const std::string& name) {
  const size_t slash = std::min(name.find('/'), name.size());
  const std::string_view first = std::string_view(name).substr(0, slash);
  const std::string_view rest = std::string_view(name).substr(std::min(slash + 1, name.size()));
  const auto plain = [](std::string_view part) {
    return !part.empty() && part[0] != '.' && part.find_first_of("/\\") == std::string_view::npos;
  };
  return plain(first) && (slash == name.size() || plain(rest));
}

bool owns_the_rest(const std::string&) { return true; }

// SentencePiece's files have no header: they come last.
constexpr Type kTable[] = {
    {"bpe", "a byte-pair encoding", ".txt", tokenizers::is_bpe, tokenizers::train_bpe,
     tokenizers::load_bpe, tokenizers::bpe_side},
    {"word", "a vocabulary of words", ".txt", tokenizers::is_words, tokenizers::train_words,
     tokenizers::load_words, tokenizers::words_side},
    {"char", "a vocabulary of characters", ".txt", tokenizers::is_characters,
     tokenizers::train_characters, tokenizers::load_characters},
    {"huggingface", "a tokenizer.json of Hugging Face's", ".json", is_huggingface,
     tokenizers::train_huggingface, tokenizers::load_huggingface},
    {"marian", "a side of Marian's tokenizers", ".marian", is_marian, nullptr,
     tokenizers::load_marian},
    {"sentencepiece", "a SentencePiece model or no tokenizer", ".model", owns_the_rest,
     tokenizers::train_sentencepiece, tokenizers::load_sentencepiece,
     tokenizers::sentencepiece_side},
};

const Type& type_of(const std::string& bytes) {
  return *std::find_if(std::begin(kTable), std::end(kTable),
                       [&](const Type& type) { return type.owns(bytes); });
}

const Type& type_named(const std::string& name) {
  return *std::find_if(std::begin(kTable), std::end(kTable),
                       [&](const Type& type) { return type.name == name; });
}

// The bytes without the parts that only decide where rows begin and end.
std::string vocabulary_of(const std::string& bytes) {
  if (!is_huggingface(bytes)) return bytes;
  HuggingFaceFiles files = split_huggingface(bytes, "a tokenizer");
  files.ids.ends.clear();
  files.ids.language.reset();
  files.ids.first.reset();
  files.ids.frames_once = false;
  return join_huggingface(files.tokenizer, files.ids.json());
}

void check_same_side(const Tokenizer& a, const std::string& name_a, const Tokenizer& b,
                     const std::string& name_b) {
  if (vocabulary_of(a.serialized()) == vocabulary_of(b.serialized())) return;
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

std::vector<std::string> reserved_pieces() { return {"<pad>", "<unk>", "<s>", kEosPiece}; }

void add_symbols(const std::vector<std::string>& symbols, int32_t first_id, TokenFinder& finder) {
  for (const std::string& symbol : symbols) finder.add(first_id++, symbol);
}

void validate_symbols(const TokenizerOptions& options, const OptionReport& report) {
  const auto refuse = [&](const std::string& symbol, const char* what) {
    return report.expect(false, "user_symbols", "must ", what, ", got '", symbol, "'.");
  };
  report.expect(std::ssize(options.user_symbols) <= TokenizerOptions::kMostSymbols, "user_symbols",
                "must be at most ", TokenizerOptions::kMostSymbols, ", got ",
                options.user_symbols.size(), '.');
  std::set<std::string> seen;
  const std::vector<std::string> reserved = reserved_pieces();
  seen.insert(reserved.begin(), reserved.end());
  seen.insert(kMaskPiece);
  for (const std::string& symbol : options.user_symbols) {
    const bool spaces = symbol.find(kSpacePiece) != std::string::npos ||
                        std::ranges::any_of(symbol, [](char c) { return c >= 0 && c <= ' '; });
    if (symbol.empty()) {
      refuse(symbol, "not be empty");
    } else if (spaces) {
      refuse(symbol, "have no white space or control characters");
    } else if (symbol.starts_with("<extra_id_") || !seen.insert(symbol).second) {
      refuse(symbol, "name each piece once, and none that is reserved");
    }
  }
  if (options.user_symbol_pattern.empty()) return;
  try {
    TextRegex(options.user_symbol_pattern, "");
  } catch (const Error& error) {
    report.expect(false, "user_symbol_pattern", "must be a regular expression: ", error.what());
  }
}

void find_symbols(const TextRegex& pattern, std::string_view text, std::set<std::string>& found) {
  std::vector<ByteRange> matches;
  pattern.find_all(text, matches);
  for (const auto& [begin, end] : matches) {
    if (end > begin) found.emplace(text.substr(begin, end - begin));
  }
}

std::vector<std::string> special_pieces(const TokenizerOptions& options) {
  std::vector<std::string> pieces;
  if (options.mask_piece) pieces.push_back(kMaskPiece);
  for (int64_t i = 0; i < options.sentinels; ++i) pieces.push_back(sentinel_piece(i));
  return pieces;
}

}  // namespace tokenizers

std::string sentinel_piece(int64_t i) { return concat("<extra_id_", i, '>'); }

int64_t TokenizerOptions::least_pieces() const {
  return kEosId + 1 + sentinels + std::ssize(user_symbols) + (mask_piece ? 1 : 0) +
         (byte_fallback ? 256 : 0) + 1;
}

void TokenizerOptions::validate(const OptionReport& report) const {
  report.expect_one_of("type", type, kTypes);
  report.expect_one_of("algorithm", algorithm, kAlgorithms);
  report.expect_one_of("normalization", normalization, kNormalizations);
  report.expect(sentinels >= 0 && sentinels <= kMostSentinels, "sentinels", "must be in [0, ",
                kMostSentinels, "], got ", sentinels, '.');
  if (!target_normalization.empty()) {
    report.expect_one_of("target_normalization", target_normalization, kNormalizations);
  }
  report.expect(path.empty() || share, "share",
                "must be true with path, which gives one tokenizer to both sides.");
  report.expect(source_path.empty() == target_path.empty(), "source.path",
                "must be there together with target.path.");
  report.expect(path.empty() || source_path.empty(), "path",
                "must not be there beside source.path and target.path.");
  tokenizers::validate_symbols(*this, report);
  report.expect(type != "huggingface" || !path.empty() || !source_path.empty(), "path",
                "must name a tokenizer.json with type huggingface, which cannot be trained.");
  // The text or the file decides the size of the others.
  if (learns_pieces()) {
    report.expect(vocab_size >= least_pieces() && vocab_size <= kMostPieces, "vocab_size",
                  "must be in [", least_pieces(), ", ", kMostPieces, ']',
                  byte_fallback           ? " with byte_fallback"
                  : sentinels > 0         ? " with sentinels"
                  : !user_symbols.empty() ? " with user_symbols"
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

void tokenizers::expect_dropout(const SubwordSampling& how) {
  if (how.alpha == 0 && how.dropout > 0) return;
  fail_option(concat("sampling of byte-pair encodings needs a dropout above 0 and no alpha, got ",
                     how.dropout, " and ", how.alpha, '.'));
}

std::shared_ptr<const SubwordSampler> Tokenizer::sampler(const SubwordSampling&) const {
  fail_option(
      "sampling needs pieces of words: type bpe, or SentencePiece's algorithm bpe or unigram.");
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

std::shared_ptr<const Tokenizer> as_side(const Tokenizer& tokenizer,
                                         const std::string& normalization) {
  const Type& type = type_of(tokenizer.serialized());
  check(type.side != nullptr, "tokenizer", "only types that normalise have sides, got ", type.name,
        '.');
  return type.side(tokenizer.serialized(), normalization);
}

struct SideNormalizer::Parts {
  tokenizers::Normalizer normalizer;
  tokenizers::TokenFinder symbols;
};

SideNormalizer::SideNormalizer(const std::string& normalization,
                               const std::vector<std::string>& symbols) {
  auto parts = std::make_unique<Parts>(Parts{tokenizers::Normalizer(normalization), {}});
  tokenizers::add_symbols(symbols, 0, parts->symbols);
  parts_ = std::move(parts);
}

SideNormalizer::~SideNormalizer() = default;

std::string SideNormalizer::operator()(std::string_view text) const {
  std::string out, buffer;
  for (const auto& section : parts_->symbols.sections(text)) {
    out += section.id >= 0 ? section.text : parts_->normalizer(section.text, buffer);
  }
  return out;
}

std::shared_ptr<const Tokenizer> read_tokenizer(const TokenizerOptions& options,
                                                const std::string& path) {
  options.validate();
  const std::string bytes =
      options.type == "huggingface" ? read_huggingface(path) : read_file(path);
  const Type& found = type_of(bytes);
  if (found.name != options.type) {
    fail(ErrorKind::kData, "[tokenizer] ", path, " must be of type ", options.type, ", got ",
         found.contents, '.');
  }
  const auto tokenizer = load_tokenizer(bytes, path);
  if (options.mask_piece && !tokenizer->mask_id()) {
    fail_option(concat(path, " must have the special piece ", kMaskPiece, ", got none."));
  }
  if (tokenizer->sentinels() < options.sentinels) {
    fail_option(concat(path, " must have the special pieces ", sentinel_piece(0), " to ",
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
  if (source == nullptr) {  // of a model of images
  } else if (one()) {
    add("tokenizer", *source);
  } else {
    add("source", *source);
    add("target", *target);
  }
  if (!came_with.empty()) files[kCameWithFile] = nlohmann::json(came_with).dump(1) + "\n";
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
  std::map<std::string, std::string> came_with;
  if (const auto found = files.find(kCameWithFile); found != files.end()) {
    const auto json = nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
    const bool good = json.is_object() &&
                      std::ranges::all_of(json, [](const auto& text) { return text.is_string(); });
    if (!good) {
      fail(ErrorKind::kData, "[tokenizer] ", kCameWithFile, " must be a JSON object of texts.");
    }
    json.get_to(came_with);
    for (const auto& [name, bytes] : came_with) {
      if (stays_inside(name)) continue;
      fail(ErrorKind::kData, "[tokenizer] ", kCameWithFile, " names '", name,
           "', expected a file name, or one in a folder.");
    }
  }
  const bool only = files.size() == 1 && !came_with.empty();  // of a model of images
  if (only) return {nullptr, nullptr, std::move(came_with)};
  if (const auto joint = load("tokenizer")) return {joint, joint, std::move(came_with)};
  TokenizerPair pair{load("source"), load("target"), std::move(came_with)};
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
