// Encodes corpora for all loaders; private to data/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/progress.h"
#include "data/corpora/corpus.h"
#include "data/corpora/corpus_key.h"

namespace tapestry {

struct EncodedPair {
  TextPair text;
  std::vector<int32_t> source;
  std::vector<int32_t> target;
  std::vector<int32_t> rejected = {};   ///< of text.rejected
  std::vector<int32_t> second = {};     ///< of text.second, in the row of the source
  std::vector<int32_t> alignment = {};  ///< token_links() of text.links, as far as both sides go
};

/// The limit of a row: `max_length` tokens, of which `specials` are bos and eos.
struct LengthRule {
  int64_t max_length;
  std::string overlong;
  int64_t specials = 1;
  /// The target follows the source in one row, and so does a rejected one in another. A long source
  /// is cut at its beginning; a target that does not fit is dropped.
  bool one_row = false;
};

/// A table to make of corpora.
struct TableRequest {
  const char* kind;  ///< the kind of rows; a part of the key and of the name of a shared file
  int64_t columns;
  const std::vector<CorpusSpec>& specs;
  const Tokenizer& source_tokenizer;
  const Tokenizer* target_tokenizer;  ///< may be null
  LengthRule rule;
  /// Adds the row of a pair; called in order, by the thread that loads.
  std::function<void(const EncodedPair& pair, TableBuilder& table)> add;
  /// Called before the first pair, and again if the table is made anew.
  std::function<void()> begin = [] {};
  /// True if a table from a file makes sense beyond the ids of texts, which are always checked: a
  /// checksum finds damage, but cannot tell who wrote the file.
  std::function<bool(const TokenTable& table)> is_sound = [](const TokenTable&) { return true; };
  /// Adds further facts after the last pair.
  std::function<void(CorpusFacts& facts)> end = [](CorpusFacts&) {};
  /// Encodes a pair, called by all threads; empty: each side by its tokenizer.
  std::function<void(EncodedPair& pair)> encode = {};
  /// With rule.one_row and without a target: how many tokens at the end of the row must not be cut;
  /// unset where the row has nothing to learn.
  std::function<std::optional<int64_t>(const EncodedPair& pair)> whole_tokens = {};
};

/// The rows of all corpora: from the cache, or from the files, which are then read on one thread
/// and encoded on all. With rule.one_row the target is encoded as the continuation of another text.
/// Throws Error(kData) if nothing is left of a corpus.
std::shared_ptr<const TokenTable> load_table(const TableRequest& request,
                                             const LoadContext& context);

/// The table with the key: from the cache if it is sound, or filled now by make(builder).
std::shared_ptr<const TokenTable> cached_table(
    const char* kind, int64_t columns, const CorpusKey& key, const LoadContext& context,
    const std::function<CorpusFacts(TableBuilder& table)>& make,
    const std::function<bool(const TokenTable& table)>& is_sound);

/// Work that shows (core/base/progress.h): how far the reading of these corpora is.
class ProgressMeter {
 public:
  explicit ProgressMeter(const std::vector<CorpusSpec>& specs);

  /// `read` examples so far; of the files `bytes`, as bytes_read() (data/files/files.h) counts
  /// them.
  void tell(int64_t read, int64_t bytes);

 private:
  double all_bytes_ = 0;
  double most_ = 0;  // examples that the limits let through; infinity without a limit
  std::optional<Progress> progress_;
};

/// Throws Error(kConfig) for an empty list.
void check_not_empty(const std::vector<CorpusSpec>& specs);
/// Throws Error(kData) if nothing is left of a corpus.
void check_kept(const CorpusSpec& spec, const FilterCounts& counts);

}  // namespace tapestry
