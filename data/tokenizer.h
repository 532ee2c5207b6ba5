// Text to token ids and back. Tokenizers are trained in process and travel as bytes inside a
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tapestry {

/// Ids that every tokenizer of this project reserves.
constexpr int32_t kPadId = 0;
constexpr int32_t kUnkId = 1;
constexpr int32_t kBosId = 2;
constexpr int32_t kEosId = 3;

struct TokenizerOptions {
  std::string type = "sentencepiece";      ///< the only type so far
  std::string algorithm = "bpe";           ///< bpe | unigram | char
  int64_t vocab_size = 8000;               ///< ids 0 to 3 included; for char: at most this many
  bool share = true;                       ///< one model for both sides, else one per side
  double character_coverage = 1.0;         ///< share of the characters of the text that get a piece
  bool byte_fallback = false;              ///< unknown characters become bytes (256 more pieces)
  std::string normalization = "nmt_nfkc";  ///< nmt_nfkc | nmt_nfkc_cf | nfkc | nfkc_cf | identity
  int64_t max_sentences = 1000000;         ///< lines a model is trained on, drawn evenly; 0: all

  /// Throws Error(kConfig) naming the first bad member.
  void validate() const;
};

/// Immutable and safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, without bos and eos.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Text of `ids`; pad, bos and eos are left out. Throws on an id outside the vocabulary.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  virtual int64_t vocab_size() const = 0;
  /// How id is written in the vocabulary ("▁the", "</s>"). Throws on an id outside it.
  virtual std::string piece(int32_t id) const = 0;
  /// Everything that is needed to build this tokenizer again.
  virtual const std::string& serialized() const = 0;

  int32_t pad_id() const { return kPadId; }
  int32_t unk_id() const { return kUnkId; }
  int32_t bos_id() const { return kBosId; }
  int32_t eos_id() const { return kEosId; }
};

/// Sets `line` to the next line to learn from; false at the end.
using LineSource = std::function<bool(std::string& line)>;

/// Trains a SentencePiece model. The result depends on the options, the lines and `seed` only,
/// which draws the max_sentences lines. Lines over 4192 bytes are not learned from. Throws
/// Error(kConfig) for a vocab_size that does not fit the text, telling the limit.
std::shared_ptr<const Tokenizer> train_sentencepiece(const TokenizerOptions& options,
                                                     const LineSource& lines, uint64_t seed);

/// From the bytes of a SentencePiece model. Throws Error(kData) when they are none, or when its ids
/// of pad, unk, bos and eos are not 0, 1, 2 and 3; `name` is for the message.
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::string& bytes,
                                                    const std::string& name);

/// The tokenizers of both sides of a translation; one and the same when shared.
struct TokenizerPair {
  std::shared_ptr<const Tokenizer> source;
  std::shared_ptr<const Tokenizer> target;

  bool shared() const { return source == target; }
  /// File name -> bytes, for a checkpoint: "tokenizer.model", or "source.model" and "target.model".
  std::map<std::string, std::string> files() const;
};

/// The names that TokenizerPair::files() may use.
inline const std::vector<std::string> kTokenizerFileNames = {"tokenizer.model", "source.model",
                                                             "target.model"};

/// Inverse of TokenizerPair::files(). Throws Error(kData) when neither set of names is complete.
TokenizerPair load_tokenizers(const std::map<std::string, std::string>& files);

}  // namespace tapestry
