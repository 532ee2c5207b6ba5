// Corpora: files of sentences to token ids, with a count for everything that is left out.
//
// A pair is kept or dropped as a whole, so sides never shift apart. Nothing is dropped without a
// count:
//
//   reason          a pair is dropped when
//   invalid_utf8    a side is not well-formed UTF-8
//   nul_byte        a side holds a NUL byte (binary data, UTF-16)
//   missing_column  a TSV line has fewer columns than asked for
//   empty           a side (a document, a label) has no character but white space
//   overlong        a side has more than max_length tokens (and overlong is "drop"); token streams
//                   have no such limit
//   malformed       a Ding line has no " :: " or unbalanced brackets
//   unaligned       a Ding line has other numbers of "|" parts on its sides
//   too_short       a Ding phrase has fewer than two words on a side
//   duplicate       the same Ding phrase pair came before
//
// Errors instead: files of a pair with different numbers of lines, a corpus of which nothing is
// left, ill-formed UTF-8 or a NUL byte in a file that is one document, and everything in
// data/text.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace tapestry {

/// One corpus of a list. Set exactly one of: source and target, tsv, ding, text, images. A tsv with
/// a label_column is a corpus for classification, and so are images (data/images.h).
struct CorpusSpec {
  std::string source;         ///< file with one sentence per line
  std::string target;         ///< file with the translation of each line
  std::string tsv;            ///< one file with tab-separated columns
  int64_t source_column = 1;  ///< of tsv, from 1 as cut(1) counts
  int64_t target_column = 2;
  std::string ding;                 ///< Ding dictionary file, see data/ding.h
  std::string direction = "de-en";  ///< of ding: de-en | en-de
  int64_t label_column = 0;         ///< of tsv: the class of the text; 0: a translation corpus
  int64_t text_column = 0;          ///< of tsv, with label_column
  std::string text;                 ///< file of text without translation
  /// What one document of text is: lines (each line), paragraphs (lines up to a blank one),
  /// fortunes (lines up to one that is exactly "%") or file (all of it). Line ends inside a
  /// document are kept, each as LF.
  std::string documents = "lines";
  std::string images;  ///< IDX file of images, or TSV of labels and paths of images
  std::string labels;  ///< IDX file of their labels; empty: images is a TSV
  /// With documents "file": the Unicode characters floor(n * begin) to floor(n * end) of all n. Of
  /// images likewise.
  double range_begin = 0;
  double range_end = 1;
  /// all, or one part of every source text: 98 % train, 1 % valid, 1 % test. The part is a hash of
  /// the source text alone, so the same text is always in the same part, whatever else the file
  /// holds.
  std::string split = "all";
  int64_t limit = 0;  ///< read no further than this many usable pairs; 0: all

  enum class Kind { kParallel, kTsv, kDing, kText, kLabelled, kImages };
  /// Throws Error(kConfig) when the members contradict each other.
  Kind kind() const;
  /// Whether its pairs are translations: so for kParallel, kTsv and kDing.
  bool has_target() const;
  void validate() const;
  /// The file names, for messages.
  std::string str() const;
};

enum class Drop : int {
  kInvalidUtf8,
  kNulByte,
  kMissingColumn,
  kEmpty,
  kOverlong,
  kMalformed,
  kUnaligned,
  kTooShort,
  kDuplicate,
};
constexpr int kDropReasons = 9;
/// "invalid_utf8", as in the table above.
const char* name_of(Drop reason);

struct FilterCounts {
  int64_t read = 0;  ///< pairs found, whatever became of them
  int64_t kept = 0;
  int64_t truncated = 0;    ///< kept, cut to max_length
  int64_t other_split = 0;  ///< left out since they belong to another split
  std::array<int64_t, kDropReasons> dropped{};
  /// "file:line" of the first one dropped for a reason.
  std::array<std::string, kDropReasons> first{};

  int64_t of(Drop reason) const { return dropped[static_cast<size_t>(reason)]; }
  int64_t total_dropped() const;
  void drop(Drop reason, const std::string& place);
  void add(const FilterCounts& other);
  /// "29000 read, 28990 kept; dropped: 7 empty (first train.de:12), 3 overlong (first ...)"
  std::string summary() const;
};

/// Sentences before tokenisation.
struct TextPair {
  std::string source;
  std::string target;  ///< empty for kText, the label for kLabelled
  std::string place;   ///< "file:line" of its first line, for messages
};

/// Streams the usable pairs of one corpus; every filter but the length one is behind it.
class PairReader {
 public:
  virtual ~PairReader() = default;
  /// False at the end. Throws Error(kData) as the table above tells.
  virtual bool next(TextPair& pair) = 0;
  /// What was read so far; `kept` counts the pairs returned.
  const FilterCounts& counts() const { return counts_; }

 protected:
  FilterCounts counts_;
};
std::unique_ptr<PairReader> open_corpus(const CorpusSpec& spec);

/// Lists of ids or bytes, end to end in one block.
template <class T>
class Ragged {
 public:
  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  std::span<const T> operator[](int64_t i) const {
    const auto begin = static_cast<size_t>(offsets_[static_cast<size_t>(i)]);
    const auto end = static_cast<size_t>(offsets_[static_cast<size_t>(i) + 1]);
    return {values_.data() + begin, end - begin};
  }
  int64_t length(int64_t i) const {
    return offsets_[static_cast<size_t>(i) + 1] - offsets_[static_cast<size_t>(i)];
  }
  int64_t total() const { return offsets_.back(); }
  template <class Range>
  void push_back(const Range& values) {
    values_.insert(values_.end(), values.begin(), values.end());
    offsets_.push_back(static_cast<int64_t>(values_.size()));
  }

 private:
  std::vector<T> values_;
  std::vector<int64_t> offsets_ = {0};
};

using TokenLists = Ragged<int32_t>;

class TextLists : public Ragged<char> {
 public:
  std::string_view operator[](int64_t i) const {
    const auto bytes = Ragged<char>::operator[](i);
    return {bytes.data(), bytes.size()};
  }
  /// All of them, as the metrics take references.
  std::vector<std::string> to_strings() const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < size(); ++i) texts.emplace_back((*this)[i]);
    return texts;
  }
};

struct CorpusOptions {
  /// Most tokens of a side: its pieces and one more, the eos of the source or the bos or eos of the
  /// target (bos and eos for classification). So no row of a batch is longer than max_length.
  int64_t max_length = 128;
  std::string overlong = "drop";  ///< drop | truncate (keep the first pieces) | error
  bool keep_text = false;         ///< also keep the raw text (references of a validation set)

  void validate() const;
};

/// Token ids without bos and eos. Pair i is source[i], target[i].
struct ParallelCorpus {
  TokenLists source;
  TokenLists target;
  TextLists source_text;  ///< filled with keep_text only; never truncated
  TextLists target_text;
  FilterCounts counts;

  int64_t size() const { return source.size(); }
};

/// Reads and encodes the corpora one after the other (in parallel, in blocks; the result does not
/// depend on the number of threads). Throws Error(kData) when a corpus leaves nothing,
/// Error(kConfig) for bad options or a spec without a target side.
ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options);

/// The same for text without translations; of the other kinds the source side is taken.
struct TextCorpus {
  TokenLists tokens;
  TextLists text;
  FilterCounts counts;

  int64_t size() const { return tokens.size(); }
};
TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options);

/// What `options` ask for: the file at options.path, or trained on the corpora, one on both sides
/// together or one per side. Corpora without targets give one shared tokenizer. A vocabulary of
/// characters knows those of `specs` only: list validation text too where it must lack none.
TokenizerPair train_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed);

}  // namespace tapestry
