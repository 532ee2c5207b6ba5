// Our tokenizers as tokenizer.json, the file of Hugging Face's tokenizers library.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The bytes of tokenizer.json. `frame` stands around a text; of a pair of texts, its end stands
/// behind each. Its ids are ours on any text that Unicode calls well-formed, with
/// these exceptions: a combining mark out of place, decomposed Hangul and a literal U+2581, which
/// that library normalises otherwise; and with our own byte-pair encoding runs of unknown
/// characters of different kinds, which are several unknown tokens there. With `cuts_at_symbols`
/// its ids are those of with_marks() (data/tokenizers/special_words.h) for special tokens and
/// symbols; without it, throws Error(kData) if there are symbols.
std::string tokenizer_json(const Tokenizer& tokenizer, const TextFrame& frame,
                           bool cuts_at_symbols = false);

/// A unigram model whose pieces have ids of their own, as the classes of transformers read it: a
/// text is split at white space, and each word begins with U+2581.
struct UnigramFile {
  std::vector<SentencePieceModel::Piece> pieces =
      {};                     ///< by id; unknown and control pieces are special
  std::string charsmap = {};  ///< as in SentencePieceModel
  int32_t unk = 0;
  /// Ids around a text, and between two.
  std::vector<int32_t> before = {}, between = {}, after = {};
};
/// Its bytes of tokenizer.json.
std::string unigram_json(const UnigramFile& file);

/// The bytes of tokenizer.json that T5's class makes of the spiece.model `bytes`, which has pad,
/// eos and unk as its first pieces: `sentinels` "<extra_id_i>" stand behind its pieces, the first
/// one last. Throws Error(kData) naming the file if it is no such model.
std::string t5_tokenizer_json(const std::string& bytes, int64_t sentinels, const std::string& name);

}  // namespace tapestry
