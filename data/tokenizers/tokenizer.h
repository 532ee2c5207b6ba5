// Text to token ids and back. Tokenizers are trained in process and stored as bytes in a
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/option_report.h"
#include "data/tokenizers/sampling/subword_sampler.h"
#include "data/tokenizers/special_ids.h"

namespace tapestry {

struct TokenizerOptions {
  static constexpr const char* kTypes[] = {"sentencepiece", "bpe", "word", "char", "huggingface"};
  static constexpr const char* kAlgorithms[] = {"bpe", "unigram", "char"};
  static constexpr const char* kNormalizations[] = {"nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf",
                                                    "identity"};
  static constexpr int64_t kMostPieces = int64_t{1} << 24;
  static constexpr int64_t kMostSentinels = 10000;
  static constexpr int64_t kMostSymbols = 10000;
  static constexpr double kLeastCoverage = 0.98;  ///< SentencePiece's

  /// sentencepiece: pieces of words. bpe: pieces of words by a byte-pair encoding of our own
  /// (Sennrich et al. 2016), whose file is text; no piece has both letters and punctuation. word:
  /// whole words, numbers and runs of punctuation, the most frequent ones; others are unknown.
  /// char: every Unicode character of the text, including line ends, without normalisation; then
  /// only path, share, mask_piece, sentinels and the symbols of the options below matter.
  /// huggingface: the tokenizer.json that path names; it cannot be trained.
  std::string type = "sentencepiece";
  std::string path;         ///< file of a trained tokenizer; "": train one
  std::string source_path;  ///< paths of trained tokenizers, one for each side; both or none
  std::string target_path;
  std::string algorithm = "bpe";    ///< SentencePiece's; one of kAlgorithms
  int64_t vocab_size = 8000;        ///< number of all ids; algorithm char: at most this many
  bool share = true;                ///< one model for both sides, else one per side
  double character_coverage = 1.0;  ///< share of the text's characters that must have a piece
  bool byte_fallback = false;       ///< unknown characters become bytes (256 more pieces)
  std::string normalization = "nmt_nfkc";  ///< one of kNormalizations
  /// The normalization of targets, which a model learns to write; empty: like `normalization`. Two
  /// sides that differ only in this have one vocabulary.
  std::string target_normalization;
  /// Words that are one piece each, in any place, and that no normalisation changes.
  std::vector<std::string> user_symbols;
  /// A regular expression: each text that it matches in the corpora becomes such a symbol.
  std::string user_symbol_pattern;
  int64_t max_sentences = 1000000;  ///< lines for training, drawn uniformly; 0: all
  bool mask_piece = false;          ///< adds a piece "<mask>", for masked models and infilling
  int64_t sentinels = 0;            ///< pieces "<extra_id_0>", ... for span corruption

  /// True if vocab_size pieces are learned from a text: no file has them, and they are more than
  /// its characters.
  bool learns_pieces() const { return type != "char" && is_trained(); }
  /// True if no file has the tokenizer.
  bool is_trained() const {
    return type != "huggingface" && path.empty() && source_path.empty() && target_path.empty();
  }
  const std::string& normalization_of_target() const {
    return target_normalization.empty() ? normalization : target_normalization;
  }
  /// The smallest vocab_size to learn: the reserved tokens, and a piece.
  int64_t least_pieces() const;
  void validate(const OptionReport& report = OptionReport::throwing("tokenizer")) const;
};

/// A token, and the bytes [begin, end) of the text that it stands for.
struct PlacedToken {
  int32_t id = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Immutable and safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, without bos and eos.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Ids of a text that continues after other pieces. Without white space in front it does not
  /// begin a word.
  virtual std::vector<int32_t> encode_continuation(std::string_view text) const {
    return encode(text);
  }
  /// encode(), with the place of each token in `text`. Places ascend; a space before a word may
  /// belong to the word's first token. Throws Error(kConfig) for a type without places.
  virtual std::vector<PlacedToken> encode_with_places(std::string_view text) const;
  /// Text of `ids`; pad, bos and eos are skipped. Throws on an id outside the vocabulary.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  virtual int64_t vocab_size() const = 0;
  /// The piece of `id` in the vocabulary ("▁the", "</s>"). Throws on an id outside it.
  virtual std::string piece(int32_t id) const = 0;
  /// The bytes from which load_tokenizer() builds this tokenizer again.
  virtual const std::string& serialized() const = 0;
  /// True if a word begins with `id`, for masking of whole words: true for SentencePiece's "▁the"
  /// and for every character. Throws on an id outside the vocabulary.
  virtual bool starts_word(int32_t id) const;
  /// True if encode() finds the names of special pieces in a text, so that "<mask>" is one token.
  virtual bool reads_special_words() const { return false; }
  /// Throws Error(kConfig) if this type cuts texts in one way only, or not as `how` says.
  virtual std::shared_ptr<const SubwordSampler> sampler(const SubwordSampling& how) const;
  /// Frees the word cache. Call it after encoding; no thread may encode meanwhile.
  virtual void forget_words() const {}

  /// True if an id is the same piece in the other one, though the two may cut texts differently.
  /// Two tokenizers have a vocabulary each unless their type overrides this.
  virtual bool has_ids_of(const Tokenizer& other) const { return this == &other; }

  const SpecialIds& special() const { return special_; }
  /// Words that users made one piece each (TokenizerOptions::user_symbols), by ascending id.
  const std::vector<int32_t>& symbols() const { return symbol_ids_; }
  /// "<mask>" and "<extra_id_i>" if the vocabulary has them. No text encodes to these ids, and
  /// decode() skips them.
  std::optional<int32_t> mask_id() const { return mask_id_; }
  std::optional<int32_t> sentinel_id(int64_t i) const;
  int64_t sentinels() const { return static_cast<int64_t>(sentinel_ids_.size()); }
  /// True for pad, unk, bos, eos, the mask, the sentinels and the rest of special(): ids that are
  /// no piece of text.
  bool is_special(int32_t id) const;

 protected:
  SpecialIds special_;
  std::optional<int32_t> mask_id_;
  std::vector<int32_t> sentinel_ids_;
  std::vector<int32_t> symbol_ids_;
};

/// The end of texts in vocabularies that are trained here.
inline constexpr const char* kEosPiece = "</s>";
/// "<mask>"
inline constexpr const char* kMaskPiece = "<mask>";
/// "<extra_id_7>"
std::string sentinel_piece(int64_t i);

/// Sets `line` to the next line of training text; false at the end.
using LineSource = std::function<bool(std::string& line)>;

/// Trains a tokenizer of options.type. The result depends only on the options, the lines and
/// `seed`, which draws the max_sentences lines. Pieces of words are learned from single lines, long
/// ones in parts of at most 4192 bytes. Throws Error(kConfig) if
/// vocab_size does not fit the text, with the limit, and Error(kData) if there is no text.
std::shared_ptr<const Tokenizer> train_tokenizer(const TokenizerOptions& options,
                                                 const LineSource& lines, uint64_t seed);

/// Inverse of Tokenizer::serialized(); the bytes decide the type, `name` is for messages. Throws
/// Error(kData) if they are of no type, or if the ids of pad, unk, bos and eos are not 0, 1,
/// 2, 3.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& bytes, const std::string& name);

/// The same tokenizer with another normalisation, as one of the two sides of a translation with one
/// vocabulary (Tokenizer::has_ids_of). Only for types that normalise.
std::shared_ptr<const Tokenizer> as_side(const Tokenizer& tokenizer,
                                         const std::string& normalization);

/// Applies `normalization` to a text, but not to its symbols.
class SideNormalizer {
 public:
  SideNormalizer(const std::string& normalization, const std::vector<std::string>& symbols);
  ~SideNormalizer();
  std::string operator()(std::string_view text) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// The tokenizer of the file `path`, by default of options.path. Throws Error(kData) if the file
/// cannot be read or is no tokenizer of options.type, Error(kConfig) if it lacks a special piece
/// that the options require.
std::shared_ptr<const Tokenizer> read_tokenizer(const TokenizerOptions& options,
                                                const std::string& path);
inline std::shared_ptr<const Tokenizer> read_tokenizer(const TokenizerOptions& options) {
  return read_tokenizer(options, options.path);
}

/// The tokenizers of both sides of a translation: one object, or two.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source;
  std::shared_ptr<const Tokenizer> target;
  /// Small files of the foreign folder that they came from, by name, unchanged: an export writes
  /// them again. A checkpoint keeps them in one file, came_with.json.
  std::map<std::string, std::string> came_with = {};

  bool one() const { return source == target; }
  /// True if both sides have one vocabulary, so that a model has one table for them.
  bool shared() const { return one() || source->has_ids_of(*target); }
  /// File name -> bytes, for a checkpoint: "tokenizer.model", or "source.model" and "target.model".
  /// Those of type bpe and char are text and end in ".txt" instead; one of type huggingface is
  /// "tokenizer.json", as it came, with "tokenizer_ids.json". Marian's end in ".marian".
  std::map<std::string, std::string> files() const;
};

/// The names that TokenizerPair::files() may use.
inline const std::vector<std::string> kTokenizerFileNames = {
    "tokenizer.model",  "source.model",    "target.model",   "tokenizer.txt",
    "source.txt",       "target.txt",      "tokenizer.json", "tokenizer_ids.json",
    "source.json",      "source_ids.json", "target.json",    "target_ids.json",
    "tokenizer.marian", "source.marian",   "target.marian",  "came_with.json"};

/// Inverse of TokenizerPair::files(). Throws Error(kData) if no set of names is complete.
TokenizerPair load_tokenizers(const std::map<std::string, std::string>& files);

/// Throws Error(kData) naming both, their sizes and the first piece that differs, unless the
/// tokenizers give every text the same ids: a model of one cannot use the ids of the other.
void check_same_vocabulary(const TokenizerPair& a, const std::string& name_a,
                           const TokenizerPair& b, const std::string& name_b);

}  // namespace tapestry
