// Text for language models: documents as one long sequence of token ids, kept in a cache file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/corpora/corpus.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The origin of a token stream.
struct StreamFacts {
  int64_t characters = 0;  ///< Unicode characters of the text: the divisor for bits per character
  int64_t bytes = 0;       ///< of the text in UTF-8
  int64_t documents = 0;
  FilterCounts counts;
  int32_t filler = kPadId;  ///< of rows that the stream does not fill
  /// What stands between documents whose beginning is not the end of the one before: this end, and
  /// this beginning. No beginning: the first token of a document is that end.
  int32_t end = kEosId;
  std::vector<int32_t> beginning = {};
};

/// Token ids of documents, end to end, read-only; copies share them. eos separates documents: every
/// document except the last ends with it.
class TokenStream {
 public:
  TokenStream() = default;
  /// A stream of ids in memory.
  explicit TokenStream(const std::vector<int32_t>& ids, StreamFacts facts = {});
  /// A stream of a table of one column, a document a row, which begins with the eos of the one
  /// before.
  TokenStream(std::shared_ptr<const TokenTable> table, StreamFacts facts);

  int64_t size() const { return std::ssize(tokens()); }
  std::span<const int32_t> tokens() const {
    return table_ ? table_->ids() : std::span<const int32_t>();
  }
  int64_t characters() const { return facts_.characters; }
  int64_t bytes() const { return facts_.bytes; }
  int64_t documents() const { return facts_.documents; }
  const FilterCounts& counts() const { return facts_.counts; }
  /// Tokens of each corpus of the list; the eos between two counts to the second.
  std::vector<int64_t> parts() const;
  int32_t filler() const { return facts_.filler; }
  /// The first token of a document, counted from 0: the end of the one before, which stands for its
  /// beginning, or its own beginning. size() for the number behind the last one.
  int64_t start_of(int64_t document) const;
  int64_t whole_documents() const { return table_ ? table_->rows() : 0; }
  /// The lengths of the documents that lie in tokens [begin, begin + count), parts of them
  /// included.
  std::vector<int32_t> documents_in(int64_t begin, int64_t count) const;
  /// True if the ids come from a cache file, so that nothing was encoded.
  bool from_cache() const { return table_ && table_->from_cache(); }

 private:
  std::shared_ptr<const TokenTable> table_;
  StreamFacts facts_;
};

/// Reads and encodes the corpora one after the other; of translations only the source side.
/// Documents of any length are kept whole.
///
/// Throws Error(kData) if nothing is left of a corpus, Error(kConfig) for bad specs.
TokenStream load_token_stream(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                              const LoadContext& context = {});

}  // namespace tapestry
