// Corpora: reads files of sentences into token ids and counts everything that is left out.
//
// A pair is kept or dropped as a whole, so the sides stay aligned. Every drop is counted:
//
//   reason          a pair is dropped when
//   invalid_utf8    a side is not well-formed UTF-8
//   nul_byte        a side holds a NUL byte (binary data, UTF-16)
//   missing_column  a line of a TSV or CSV has fewer columns than asked for
//   empty           a side (a document, a label) has no character but white space
//   overlong        a side has more than max_length tokens (if overlong is "drop"); token streams
//                   have no such limit
//   malformed       a Ding line has no " :: " or unbalanced brackets; an answer is not what the
//                   context has at its place; a line of a CSV has more columns than the first
//   unaligned       the sides of a Ding line have different numbers of "|" parts
//   too_short       a Ding phrase has fewer than two words on a side
//   duplicate       the same pair of Ding phrases came before
//
// These are errors: files of a pair with different numbers of lines, a corpus with nothing left,
// ill-formed UTF-8 or a NUL byte in a file that is one document, a line of JSONL that is no JSON
// object or lacks a field that is asked for, a header without such a column, quotes that are not as
// RFC 4180 has them, and the errors of data/text.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/record_files.h"
#include "data/tokenizer.h"

namespace tapestry {

/// One corpus of a list. Set exactly one of: source and target, tsv, csv, jsonl, ding, text,
/// images, squad. What the records of a tsv, csv or jsonl (data/record_files.h) are is told by the
/// columns that are set:
///
///   prompt and answer           prompts that a causal model answers (data/prompts.h)
///   label_column                texts with a class each; so are images (data/images.h)
///   context_column              questions about texts (data/questions.h), as are squad's
///   x_column, y_column          points for regression (data/points.h)
///   text_column                 texts
///   source_column, target_column  pairs of sentences
///
/// With none of them a tsv holds pairs, a jsonl questions and a csv points.
struct CorpusSpec {
  static constexpr const char* kDirections[] = {"de-en", "en-de"};
  static constexpr const char* kDocuments[] = {"lines", "paragraphs", "fortunes", "file"};
  static constexpr const char* kSplits[] = {"all", "train", "valid", "test"};

  std::string source;           ///< file of one sentence per line
  std::string target;           ///< file with the translation of each line
  std::string tsv;              ///< file of columns between tabs
  std::string csv;              ///< file of columns between commas (RFC 4180)
  std::string jsonl;            ///< file with one JSON object a line
  std::string header = "auto";  ///< of tsv or csv: RecordFile::header
  // Columns of these, by number from 1 or by name (RecordField::name). Empty: not asked for, or
  // settle_columns() sets it.
  std::string source_column, target_column;
  std::string text_column;
  std::string label_column;  ///< the class of the text
  std::string context_column, question_column, answer_column;
  std::string answer_start_column;  ///< the character of the context where the answer begins
  std::string x_column, y_column;
  std::string prompt;               ///< the Template (data/records.h) of what is read ...
  std::string answer;               ///< ... and of what is answered
  std::string ding;                 ///< Ding dictionary file, see data/ding.h
  std::string direction = "de-en";  ///< of ding: one of kDirections
  std::string text;                 ///< file of text without translation
  /// The documents of `text`: lines (each line), paragraphs (lines up to a blank one), fortunes
  /// (lines up to one that is exactly "%") or file (all of it). Line ends inside a document are
  /// kept, each as LF.
  std::string documents = "lines";
  std::string images;  ///< IDX file of images, or TSV of labels and paths of images
  std::string labels;  ///< IDX file of their labels; empty: images is a TSV
  std::string squad;   ///< file of questions in SQuAD's format
  /// With documents "file": the Unicode characters floor(n * begin) to floor(n * end) of all n. The
  /// same for images.
  double range_begin = 0;
  double range_end = 1;
  /// all, or one part of every source text: 98 % train, 1 % valid, 1 % test. A hash of only the
  /// source text decides the part, so the same text is always in the same part.
  std::string split = "all";
  int64_t limit = 0;  ///< stop after this many usable pairs; 0: read all

  enum class Kind {
    kParallel,
    kPairs,
    kDing,
    kText,
    kLabelled,
    kImages,
    kPrompted,
    kQuestions,
    kPoints
  };
  /// Throws Error(kConfig) if the members contradict each other.
  Kind kind() const;
  /// Whether its pairs are translations: true for kParallel, kPairs and kDing.
  bool has_target() const;
  /// Whether it is a tsv, csv or jsonl.
  bool has_records() const { return !tsv.empty() || !csv.empty() || !jsonl.empty(); }
  /// That file; only where has_records().
  RecordFile record_file() const;
  /// Sets the columns that records of this kind need where they are empty: their numbers (of a tsv,
  /// and of a csv of points) or their names without "_column".
  void settle_columns(Kind kind);
  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
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
  int64_t read = 0;  ///< all pairs found
  int64_t kept = 0;
  int64_t truncated = 0;    ///< kept, cut to max_length
  int64_t other_split = 0;  ///< left out because they belong to another split
  std::array<int64_t, kDropReasons> dropped{};
  /// "file:line" of the first pair dropped for each reason.
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
  std::string target;  ///< empty for kText, the label for kLabelled, the answer for kPrompted
  std::string place;   ///< "file:line" of its first line, for messages
};

/// Streams the usable pairs of one corpus; it applies every filter except the length limit.
class PairReader {
 public:
  virtual ~PairReader() = default;
  /// False at the end. Throws Error(kData) as described above.
  virtual bool next(TextPair& pair) = 0;
  /// Counts so far; `kept` counts the pairs returned.
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
  /// All texts, in the form that the metrics take.
  std::vector<std::string> to_strings() const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < size(); ++i) texts.emplace_back((*this)[i]);
    return texts;
  }
};

struct CorpusOptions {
  static constexpr const char* kOverlong[] = {"drop", "truncate", "error"};

  /// The limit of tokens of a side, including eos of the source or the bos or eos of the target
  /// (bos and eos for classification). So no row of a batch is longer than max_length.
  int64_t max_length = 128;
  std::string overlong = "drop";  ///< drop | truncate (keep the first pieces) | error
  bool keep_text = false;         ///< also keep the raw text (references of a validation set)

  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
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
/// depend on the number of threads). Throws Error(kData) if nothing is left of a corpus,
/// Error(kConfig) for bad options or a spec without a target side.
ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options);

/// The same for text without translations; takes the source side of other kinds.
struct TextCorpus {
  TokenLists tokens;
  TextLists text;
  FilterCounts counts;

  int64_t size() const { return tokens.size(); }
};
TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options);

/// Reads the tokenizer of options.path, or trains on the corpora: one for both sides, or one per
/// side. Corpora without targets give one shared tokenizer. A vocabulary of characters knows only
/// those in `specs`: list validation text too if it must know all of its characters.
TokenizerPair train_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed);

}  // namespace tapestry
