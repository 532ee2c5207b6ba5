// Corpora: reads files of sentences into token ids and counts everything that is left out.
//
// A pair is kept or dropped as a whole, so the sides stay aligned. Every drop is counted:
//
//   reason          a pair is dropped when
//   invalid_utf8    a side is not well-formed UTF-8
//   nul_byte        a side holds a NUL byte (binary data, UTF-16)
//   missing_column  a line of a TSV or CSV has fewer columns than asked for, or a record of JSONL
//                   lacks a field
//   empty           a side (a document, a label) shows nothing (is_blank()), or encodes to nothing
//   overlong        a side has more than max_length tokens (if overlong is "drop"); token streams
//                   have no such limit
//   malformed       a Ding line has no " :: " or unbalanced brackets; an answer is not what the
//                   context has at its place; a line of a CSV has more columns than the first, or
//                   quotes that are not as RFC 4180 has them; a line of JSONL is no JSON object, or
//                   has null, a list or the like in a field that is asked for; a weight is no
//                   number from 0 to CorpusSpec::kLargestPairWeight
//   unaligned       the sides of a Ding line have different numbers of "|" parts
//   too_short       a Ding phrase has fewer than two words on a side
//   duplicate       the same pair of Ding phrases came before; by data.clean: the same pair, or
//   side weight_0        its weight in the loss is 0 ratio, copy, other_script   data.clean asks
//   for it (data/corpora/cleaning.h)
//
// These are errors: files of a pair with different numbers of lines, a corpus with nothing left,
// ill-formed UTF-8 or a NUL byte in a file that is one document, a header without a column that is
// asked for, records of which the first hundred are all odd, an alignment that is not one of the
// words of its pair, and the errors of data/files/text.h.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/corpora/cleaning.h"
#include "data/corpora/filter_counts.h"
#include "data/corpora/records/record_files.h"
#include "data/corpora/text_variation.h"
#include "data/corpora/token_table.h"
#include "data/corpora/word_links.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

struct ChatFormat;

/// One corpus of a list, whose paths may be patterns of several files (data/corpora/shards.h). Set
/// exactly one of: source and target, records, ding, text, images, squad,
/// conll. The set columns decide the kind of the records (data/corpora/records/record_files.h):
///
///   prompt and answer           prompts that a causal model answers (data/examples/prompts.h)
///   messages_column             talks with an assistant (data/examples/talks.h)
///   prompt, chosen and rejected, or chosen_column and rejected_column
///                               prompts with a better and a worse answer
///                               (data/examples/preferences.h)
///   label_column                texts with a class each; so are images (data/images/images.h).
///                               With text_pair_column each has a second text
///   context_column              questions about texts (data/examples/questions.h), as are squad's
///   x_column, x_columns, y_column, class_column   points for regression (data/examples/points.h)
///   tokens_column, tags_column  words with a tag each (data/corpora/records/tagged_reader.h)
///   text_column                 texts
///   source_column, target_column  pairs of sentences or texts. With negative_column each has a
///   text
///                               that does not belong to the source, with score_column a number
///
/// A conll holds words with a tag each, too.
///
/// Without any column a tsv holds pairs, a jsonl questions and a csv points.
struct CorpusSpec {
  static constexpr const char* kDirections[] = {"de-en", "en-de"};
  static constexpr const char* kDocuments[] = {"lines", "paragraphs", "fortunes", "file"};
  static constexpr const char* kLastColumn = "last";  ///< tags_column of a conll
  static constexpr const char* kSplits[] = {"all", "train", "valid", "test"};

  std::string source;  ///< file of one sentence per line
  std::string target;  ///< file with the translation of each line
  RecordFile records;  ///< a tsv, csv or jsonl
  // Its fields, by number from 1 or by name (RecordField::name). Empty: not asked for, or
  // settle_columns() sets it.
  std::string source_column, target_column;
  /// Of pairs of texts: a text that does not belong to the source, or a number that says how alike
  /// both are; or "".
  std::string negative_column, score_column;
  std::string text_column;
  std::string label_column;      ///< the class of the text
  bool label_lists = false;      ///< it may be a list of classes, in a jsonl or parquet a JSON list
  bool label_numbers = false;    ///< it is a number, whatever label_lists says
  std::string text_pair_column;  ///< beside a label: a second text in the same row; or ""
  std::string context_column, question_column, answer_column;
  std::string answer_start_column;  ///< the character of the context where the answer begins
  /// The words of a sentence and their tags; of a conll column numbers, or "last".
  std::string tokens_column, tags_column;
  std::string x_column, y_column;
  std::vector<std::string> x_columns;  ///< of points: several, instead of x_column
  std::string class_column;            ///< of points: the class of each, instead of y_column
  std::string prompt;  ///< the Template (data/corpora/records/records.h) of what is read ...
  std::string answer;  ///< ... and of what is answered
  std::string messages_column;   ///< of talks (data/corpora/records/chat_reader.h): their messages
  std::string chosen, rejected;  ///< of preferences: the Templates of both answers
  /// Of preferences in talks: messages that both talks begin with, or ""; the messages of both.
  std::string prompt_column, chosen_column, rejected_column;
  std::shared_ptr<const ChatFormat> chat;  ///< how talks become text; null: as usual
  std::string ding;                        ///< Ding dictionary file, see data/corpora/ding.h
  std::string direction = "de-en";         ///< of ding: one of kDirections
  int64_t min_words = 2;  ///< of ding: a pair whose sides have fewer words is left out
  std::string text;       ///< file of text without translation
  /// The documents of `text`: lines (each line), paragraphs (lines up to a blank one), fortunes
  /// (lines up to one that is exactly "%") or file (all of it). Line ends inside a document are
  /// kept, each as LF.
  std::string documents = "lines";
  std::string images;  ///< IDX file of images, or TSV of labels and paths of images
  std::string labels;  ///< IDX file of their labels; empty: images is a TSV
  std::string squad;   ///< file of questions in SQuAD's format
  std::string conll;   ///< file of words with a tag each
  /// With documents "file": the Unicode characters floor(n * begin) to floor(n * end) of all n. The
  /// same for images.
  double range_begin = 0;
  double range_end = 1;
  /// all, or one part of every source text: 98 % train, 1 % valid, 1 % test. A hash of only the
  /// source text decides the part, so the same text is always in the same part.
  std::string split = "all";
  int64_t limit = 0;  ///< stop after this many usable pairs; 0: read all
  double weight =
      0;  ///< its share in an epoch of several corpora (data/corpora/mixture.h); 0: none
  /// The weight of each pair in the loss: a file with a number in each line, beside source and
  /// target, or a column beside those of pairs, rounded to multiples of 2^-20. Both empty: each is
  /// 1.
  std::string pair_weights, pair_weight_column;
  static constexpr double kLargestPairWeight = 1e6;
  /// A file with the alignment of each pair (parse_word_links()), beside source and target.
  std::string alignments;
  CleaningOptions clean;  ///< of pairs that are learnt

  enum class Kind {
    kParallel,
    kPairs,
    kDing,
    kText,
    kLabelled,
    kImages,
    kPrompted,
    kTalks,
    kPreferences,
    kQuestions,
    kTagged,
    kPoints
  };
  /// Throws Error(kConfig) if the members contradict each other.
  Kind kind() const;
  /// True if its pairs are translations: for kParallel, kPairs and kDing.
  bool has_target() const;
  bool has_records() const { return !records.path.empty(); }
  /// True for preferences between talks.
  bool compares_talks() const {
    return !prompt_column.empty() || !chosen_column.empty() || !rejected_column.empty();
  }
  bool has_two_texts() const { return !text_pair_column.empty(); }
  bool has_pair_weights() const { return !pair_weights.empty() || !pair_weight_column.empty(); }
  /// The columns of x.
  std::vector<std::string> features() const {
    return x_columns.empty() ? std::vector<std::string>{x_column} : x_columns;
  }
  /// Fills in the empty columns that records of this kind need: their numbers (in a tsv, or a csv
  /// of points) or their names without "_column".
  void settle_columns(Kind kind);
  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
  /// The keys of a config that name the files of a corpus; those of records are their formats.
  static std::vector<std::string> file_keys();
  /// The path with this key; "" if the corpus has none.
  const std::string& file(std::string_view key) const;
  /// Gives this key another path; the corpus must have one there.
  void set_file(std::string_view key, const std::string& path);
  void forget_files();
  /// The file names, for messages.
  std::string str() const;
};

/// The files that the specs name, those of a pattern one by one; a pattern that matches none stands
/// for itself.
std::vector<std::string> files_of(const std::vector<CorpusSpec>& specs);

/// The keys of a corpus with their values: all that decides what is read from its files, but for
/// the files' names and bytes. "files" has the keys of the files that it names.
std::vector<std::pair<std::string, std::string>> reading_of(const CorpusSpec& spec);

/// Sentences before tokenisation.
struct TextPair {
  std::string source;
  std::string target;  ///< empty for kText, the label for kLabelled, the answer for kPrompted
  std::string rejected = {};  ///< of kPreferences: the worse answer; the target is the better one.
                              ///< Of kPairs with negative_column: the text there
  std::string second = {};    ///< of kLabelled with text_pair_column: the second text
  /// Of kTalks: the bytes of the source that are learnt; the target is empty.
  std::vector<std::pair<int64_t, int64_t>> answers = {};
  std::string place;                 ///< "file:line" of its first line, for messages
  float weight = 1;                  ///< in the loss; positive
  float score = 0;                   ///< of kPairs with score_column: its number
  std::vector<WordLink> links = {};  ///< of its words, where the corpus has alignments
};

/// Streams the usable pairs of one corpus; it applies every filter except the length limit.
class PairReader {
 public:
  virtual ~PairReader() = default;
  /// False at the end. Throws Error(kData) as described above.
  virtual bool next(TextPair& pair) = 0;
  /// Counts so far; `kept` counts the pairs returned.
  virtual FilterCounts counts() const { return counts_; }

 protected:
  FilterCounts counts_;
};
/// `seen` is for several corpora in which clean.deduplicate lets nothing come twice; null: it looks
/// at this one.
std::unique_ptr<PairReader> open_corpus(const CorpusSpec& spec,
                                        std::shared_ptr<SeenTexts> seen = nullptr);

/// Lists of ids: a column of a table, or lists that are added one by one.
class TokenLists {
 public:
  TokenLists() = default;
  TokenLists(std::shared_ptr<const TokenTable> table, int64_t column)
      : table_(std::move(table)), column_(column) {}

  int64_t size() const { return table_ ? table_->rows() : std::ssize(offsets_) - 1; }
  std::span<const int32_t> operator[](int64_t i) const {
    if (table_) return table_->list(i, column_);
    const auto row = static_cast<size_t>(i);
    return std::span(ids_).subspan(static_cast<size_t>(offsets_[row]),
                                   static_cast<size_t>(offsets_[row + 1] - offsets_[row]));
  }
  int64_t length(int64_t i) const {
    if (table_) return table_->length(i, column_);
    return offsets_[static_cast<size_t>(i) + 1] - offsets_[static_cast<size_t>(i)];
  }
  /// Adds a list. Not for a column of a table.
  template <class Range>
  void push_back(const Range& ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    offsets_.push_back(std::ssize(ids_));
  }

 private:
  std::shared_ptr<const TokenTable> table_;
  int64_t column_ = 0;
  std::vector<int32_t> ids_;
  std::vector<int64_t> offsets_ = {0};
};

/// A column of texts (ids_of_text()).
class TextLists {
 public:
  TextLists() = default;
  TextLists(std::shared_ptr<const TokenTable> table, int64_t column)
      : lists_(std::move(table), column) {}

  int64_t size() const { return lists_.size(); }
  std::string_view operator[](int64_t i) const { return text_of_ids(lists_[i]); }
  /// All texts, in the form that the metrics take.
  std::vector<std::string> to_strings() const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < size(); ++i) texts.emplace_back((*this)[i]);
    return texts;
  }

 private:
  TokenLists lists_;
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

/// Storage and callbacks of a load, besides its result. The functions may be empty; the loading
/// thread calls them.
struct LoadContext {
  /// The file of the encoded corpus; empty: none. It is used again if its key matches: specs,
  /// options, tokenizers, and of each file path, size and content (a sample and the time of the
  /// last change if it has more than 64 MiB). Otherwise, or if it is damaged, it is written again:
  /// to a temporary file, which is then renamed. If it cannot be written, there is a warning, and
  /// the corpus stays in memory.
  std::string cache = {};
  /// `cache` is a folder, and the key names the file: corpora of any runs share it.
  bool cache_is_shared = false;
  std::function<void(const std::string&)> warn = {};
  /// Gets the checksum of the rows, whether they were encoded now or before.
  std::function<void(int64_t)> loaded = {};
};

/// The tokens around a pair's texts, and the ids that a search over them needs. The decoder reads
/// `start` and then the target, its frame included.
struct PairRows {
  PairRows() = default;  ///< of tokenizers of this project
  explicit PairRows(const TokenizerPair& tokenizers);

  TextFrame source = SpecialIds().side();
  TextFrame target = SpecialIds().side();
  int32_t start = kBosId;
  int32_t eos = kEosId;  ///< of the target
  int32_t source_filler = kPadId;
  int32_t target_filler = kPadId;
  std::vector<int32_t> banned = SpecialIds().banned();
  std::vector<int32_t> more_ends = {};  ///< of the target, as in SpecialIds
};

/// Token ids without bos and eos. Pair i is source[i], target[i].
struct ParallelCorpus {
  TokenLists source;
  TokenLists target;
  TextLists source_text;  ///< filled with keep_text only; never truncated
  TextLists target_text;
  TokenLists weights;  ///< of each pair, as bits; without rows: each is 1
  /// Of each pair the tokens that belong together, as token_links(); without rows: not known.
  TokenLists alignments;
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< pairs of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  PairRows rows = {};
  /// What batches make of the rows in each epoch; null: rows stay as they are. Never of held-out
  /// pairs.
  std::shared_ptr<const TextVariation> variation = nullptr;

  int64_t size() const { return source.size(); }
  bool has_weights() const { return weights.size() > 0; }
  bool has_alignments() const { return alignments.size() > 0; }
  float weight(int64_t i) const { return has_weights() ? std::bit_cast<float>(weights[i][0]) : 1; }
};

/// Reads and encodes the corpora one after the other (on all threads; the result does not depend
/// on their number). Throws Error(kData) if nothing is left of a corpus, Error(kConfig) for bad
/// options or a spec without a target side.
ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options, const LoadContext& context = {});
/// The same; `specials` special tokens count for the length of a side.
ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options, int64_t specials,
                             const LoadContext& context = {});

/// Loads text without translations; takes the source side of other kinds.
struct TextCorpus {
  TokenLists tokens;
  TextLists text;
  FilterCounts counts;
  std::vector<int64_t> parts;
  bool from_cache = false;

  int64_t size() const { return tokens.size(); }
};
TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options, const LoadContext& context = {});
/// The same; `specials` special tokens count for the length of a text.
TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options, int64_t specials,
                     const LoadContext& context = {});

/// Reads the tokenizer of options.path, or trains on the corpora: one for both sides, or one per
/// side. Corpora without targets give one shared tokenizer. A vocabulary of characters knows only
/// those in `specs`: list validation text too if it must know all of its characters. Trained ones
/// are kept in context.cache like corpora.
TokenizerPair train_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed,
                               const LoadContext& context = {});

}  // namespace tapestry
