#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/tokenizers/normalization.h"
#include "data/tokenizers/piece_lattice.h"
#include "data/tokenizers/sampling/sentencepiece_sampler.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer_types.h"
#include "data/tokenizers/training_lines.h"
#include "data/tokenizers/word_cache.h"

namespace tapestry::tokenizers {
namespace {

// A level for SentencePiece's own log; 0.1.97 has no constant for "nothing".
constexpr const char* kSilent = "1000";

// A unigram model adds the scores of a path in float, from the beginning of the text. Two paths
// through a word whose scores differ by less than the rounding of that may change places with what
// stands before the word. Below this sum an addition rounds by at most 2^-14.
constexpr double kLargestSum = 2048;
constexpr double kRounding = 0x1p-14;

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& bytes, const std::string& name) : bytes_(bytes) {
    const auto status = processor_.LoadFromSerializedProto(bytes_);
    if (!status.ok()) {
      fail(ErrorKind::kData, "[tokenizer] ", name,
           " is not a SentencePiece model: ", status.message(), '.');
    }
    read_ids(name);
    mask_id_ = find_control(kMaskPiece);
    for (int64_t i = 0;; ++i) {
      const auto id = find_control(sentinel_piece(i));
      if (!id) break;
      sentinel_ids_.push_back(*id);
    }
    const SentencePieceModel model = SentencePieceModel::parse(bytes_, name);
    one_of_two_ = model.one_of_two;
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      if (model.pieces[id].type == SentencePieceModel::kUser) {
        symbol_ids_.push_back(static_cast<int32_t>(id));
      }
    }
    if (!model.encodes_word_by_word()) return;
    words_ = std::make_unique<WordCache>();
    if (model.algorithm == SentencePieceModel::kUnigram) {
      lattice_ = std::make_unique<const PieceLattice>(model);
      longest_ = static_cast<size_t>(kLargestSum / std::max(1.0, lattice_->largest_score()));
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3 + 1);
    if (words_ && append_words(text, ids)) return ids;
    return encode_whole(text);
  }

  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    const std::string_view head = text.substr(0, text.find(' '));
    if (!words_ || head.find(kSpacePiece) != std::string_view::npos) return continue_whole(text);
    std::vector<int32_t> ids;
    if (!head.empty()) ids = continue_whole(head);
    return append_words(text.substr(head.size()), ids) ? ids : continue_whole(text);
  }

  std::vector<PlacedToken> encode_with_places(std::string_view text) const override {
    std::vector<PlacedToken> tokens;
    const auto encoded = processor_.EncodeAsImmutableProto(text);
    tokens.reserve(encoded.pieces_size());
    for (const auto& piece : encoded.pieces()) {
      tokens.push_back({static_cast<int32_t>(piece.id()), piece.begin(), piece.end()});
    }
    return tokens;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    for (const int32_t id : ids) check_id(id);
    // All special pieces except unk are control pieces of the model, which have no text.
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    check(status.ok(), "tokenizer", "SentencePiece cannot decode: ", status.message(), '.');
    return text;
  }

  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  void forget_words() const override {
    if (words_) words_->clear();
  }

  std::string piece(int32_t id) const override {
    check_id(id);
    return processor_.IdToPiece(id);
  }

  const std::string& serialized() const override { return bytes_; }

  bool starts_word(int32_t id) const override { return piece(id).starts_with(kSpacePiece); }

  std::shared_ptr<const SubwordSampler> sampler(const SubwordSampling& how) const override {
    const SentencePieceModel model = SentencePieceModel::parse(bytes_, "the tokenizer");
    switch (model.algorithm) {
      case SentencePieceModel::kBpe:
        return sampler_of_merges(model, how);
      case SentencePieceModel::kUnigram:
        return sampler_of_lattice(model, how);
      default:
        return Tokenizer::sampler(how);
    }
  }

  bool has_ids_of(const Tokenizer& other) const override {
    const auto* const side = dynamic_cast<const SentencePieceTokenizer*>(&other);
    if (this == &other) return true;
    if (side == nullptr || !one_of_two_ || !side->one_of_two_) return false;
    const int size = processor_.GetPieceSize();
    if (size != side->processor_.GetPieceSize()) return false;
    for (int id = 0; id < size; ++id) {
      if (processor_.IdToPiece(id) != side->processor_.IdToPiece(id)) return false;
    }
    return true;
  }

 private:
  // Models of other systems have ids of their own, and often no pad. Their texts get Llama's frame:
  // bos in front.
  void read_ids(const std::string& name) {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsUnused(id)) special_.unused.push_back(id);
    }
    const int pad = processor_.pad_id(), unk = processor_.unk_id();
    const int bos = processor_.bos_id(), eos = processor_.eos_id();
    if (pad == kPadId && unk == kUnkId && bos == kBosId && eos == kEosId) return;
    if (eos < 0 || unk < 0) {
      fail(ErrorKind::kData, "[tokenizer] ", name, " must have pieces for unk and eos, got ", unk,
           " and ", eos, '.');
    }
    special_.pad = pad < 0 ? std::nullopt : std::optional<int32_t>(pad);
    special_.unk = unk;
    special_.eos = eos;
    // Marian's vocab.spm has no bos: texts end with eos, and eos comes before a target.
    special_.bos = bos < 0 ? eos : bos;
    special_.one_text = bos < 0 ? TextFrame{{}, {eos}} : TextFrame{{bos}, {}};
  }

  enum Note : uint8_t { kEasy, kHard };

  std::vector<int32_t> encode_whole(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    check(status.ok(), "tokenizer", "SentencePiece cannot encode: ", status.message(), '.');
    return {ids.begin(), ids.end()};
  }

  // SentencePiece puts a space before every text. After a character without a piece (from the
  // private use area) the text is inside a word instead.
  std::vector<int32_t> continue_whole(std::string_view text) const {
    static constexpr std::string_view kStranger = "\xEE\x80\x80";  // U+E000
    const std::vector<int32_t> before = encode_whole(kStranger);
    std::vector<int32_t> ids = encode_whole(std::string(kStranger) + std::string(text));
    const bool apart =
        ids.size() >= before.size() && std::equal(before.begin(), before.end(), ids.begin());
    if (!apart) return encode_whole(text);
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before.size()));
    return ids;
  }

  // Appends the tokens of a text, word by word. Returns false if only encoding the whole text is
  // right.
  bool append_words(std::string_view text, std::vector<int32_t>& ids) const {
    WordCache::Entry entry;
    for (size_t begin = 0; begin < text.size();) {
      if (text[begin] == ' ') {
        ++begin;
        continue;
      }
      const size_t end = std::min(text.find(' ', begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      begin = end;
      if (words_->find(word, 0, entry)) {
        if (entry.note() == kHard) return false;
        append(entry.ids(), ids);
      } else {
        std::vector<int32_t> found;
        const bool easy = encode_word(word, found);
        words_->put(word, 0, found, easy ? kEasy : kHard);
        if (!easy) return false;
        append(found, ids);
      }
      if (lattice_ != nullptr && ids.size() > longest_) return false;
    }
    return true;
  }

  // A run of unknown characters is one unk, also where no U+2581 of the vocabulary ends it.
  void append(std::span<const int32_t> word, std::vector<int32_t>& ids) const {
    const bool joins =
        !ids.empty() && !word.empty() && ids.back() == special_.unk && word[0] == special_.unk;
    ids.insert(ids.end(), word.begin() + (joins ? 1 : 0), word.end());
  }

  // False if the tokens of the word may depend on the text before it.
  bool encode_word(std::string_view word, std::vector<int32_t>& ids) const {
    // A U+2581 at the end of a text is dropped like a space.
    if (word.find(kSpacePiece) != std::string_view::npos) return false;
    if (lattice_ == nullptr) {
      ids = encode_whole(word);
      return true;
    }
    if (word.size() > WordCache::kLongestWord) return false;  // not worth the work
    const auto encoded = processor_.EncodeAsImmutableProto(word);
    std::string normalized;
    for (const auto& piece : encoded.pieces()) {
      const auto id = static_cast<int32_t>(piece.id());
      if (processor_.IsUnknown(id) || processor_.IsByte(id)) return false;
      normalized += piece.piece();
      ids.push_back(id);
    }
    // Each of the two paths adds a score for each character at most.
    const double sums = 2.0 * static_cast<double>(count_code_points(normalized) + 1);
    return lattice_->margin(normalized) > sums * kRounding;
  }

  // A piece of the same name that text can produce is not a special piece.
  std::optional<int32_t> find_control(const std::string& name) const {
    const int id = processor_.PieceToId(name);
    if (!processor_.IsControl(id)) return std::nullopt;
    return id;
  }

  void check_id(int32_t id) const {
    check(id >= 0 && id < processor_.GetPieceSize(), "tokenizer", "ids must be in [0, ",
          processor_.GetPieceSize(), "), got ", id, '.');
  }

  std::string bytes_;
  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<WordCache> words_;             // null: only whole texts have tokens
  std::unique_ptr<const PieceLattice> lattice_;  // of a unigram model
  size_t longest_ = 0;                           // longest text, in tokens, whose scores stay small
  bool one_of_two_ = false;
};

// Each line's memory is given back when the trainer has it.
class ConsumedLines : public sentencepiece::SentenceIterator {
 public:
  explicit ConsumedLines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { std::string().swap(lines_[next_++]); }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

// Replaces lines by their different words, each with a tab and its count: the trainer of BPE cuts
// lines at white space and counts words itself, but keeps all lines until then. The same words give
// the same pieces. Returns false, and does nothing, if the trainer would see other lines than these
// words: the rules of nmt_ make tabs and "\u2581" spaces, others leave them in words; and a line
// with "\u2585", its sign for an unknown character, is skipped whole.
bool count_words(std::vector<std::string>& lines, const std::string& normalization) {
  const bool all_is_space = normalization.starts_with("nmt_");
  const auto has = [&](const char* what) {
    return std::ranges::any_of(
        lines, [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  if (has("\u2585") || (!all_is_space && (has("\t") || has("\u2581")))) return false;
  std::unordered_map<std::string, int64_t> counts;
  for (std::string& line : lines) {
    for (size_t begin = 0, end = 0; begin < line.size(); begin = end + 1) {
      end = std::min(line.find_first_of(" \t", begin), line.size());
      if (end > begin) ++counts[line.substr(begin, end - begin)];
    }
    std::string().swap(line);
  }
  std::vector<std::string>().swap(lines);
  lines.reserve(counts.size());
  while (!counts.empty()) {
    auto word = counts.extract(counts.begin());
    lines.push_back(std::move(word.key()) + '\t' + std::to_string(word.mapped()));
  }
  if (lines.empty()) fail(ErrorKind::kData, "[tokenizer] expected words to learn from, got none.");
  return true;
}

std::unordered_map<std::string, std::string> trainer_arguments(const TokenizerOptions& options) {
  // Each in quotes, as it may have a comma.
  const auto list_of = [](const std::vector<std::string>& pieces) {
    std::string list;
    for (const std::string& piece : pieces) {
      list += list.empty() ? "\"" : ",\"";
      for (const char c : piece) list += c == '"' ? "\"\"" : std::string(1, c);
      list += '"';
    }
    return list;
  };
  std::unordered_map<std::string, std::string> arguments = {
      {"control_symbols", list_of(special_pieces(options))},
      {"model_type", options.algorithm},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", concat(options.character_coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"normalization_rule_name", options.normalization},
      {"pad_id", std::to_string(kPadId)},
      {"unk_id", std::to_string(kUnkId)},
      {"bos_id", std::to_string(kBosId)},
      {"eos_id", std::to_string(kEosId)},
      // The unigram trainer sums per thread: a fixed number of threads gives the same sums
      // everywhere.
      {"num_threads", "4"},
      {"minloglevel", kSilent},
  };
  if (!options.user_symbols.empty()) {
    arguments.emplace("user_defined_symbols", list_of(options.user_symbols));
  }
  return arguments;
}

// Throws SentencePiece's reason in our words. Its message ends with the largest vocabulary.
[[noreturn]] void fail_training(const TokenizerOptions& options, const std::string& message) {
  const auto first_number_after = [&](const char* phrase) -> std::string {
    const size_t at = message.find(phrase);
    if (at == std::string::npos) return "";
    const size_t begin = message.find_first_of("0123456789", at + std::string(phrase).size());
    if (begin == std::string::npos) return "";
    return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
  };
  const std::string largest = first_number_after("set it to a value <=");
  if (!largest.empty()) fail_too_large(options, largest);
  const std::string needed = first_number_after("vs ");
  if (message.find("smaller than required_chars") != std::string::npos) {
    fail_too_small(options, needed.empty() ? "more" : needed);
  }
  fail_option(concat("SentencePiece cannot train on this text: ", message, '.'));
}

}  // namespace

std::shared_ptr<const Tokenizer> train_sentencepiece(const TokenizerOptions& options,
                                                     const LineSource& lines, uint64_t seed) {
  std::vector<std::string> sample = training_lines(options, lines, seed);
  std::unordered_map<std::string, std::string> arguments = trainer_arguments(options);
  if (options.algorithm == "bpe" && count_words(sample, options.normalization)) {
    arguments.emplace("input_format", "tsv");
  }
  std::string model;
  {
    // The trainer uses process-wide state (its log level).
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    ConsumedLines iterator(std::move(sample));
    const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
    if (!status.ok()) fail_training(options, status.message());
  }
  return load_sentencepiece(model, "the trained model");
}

std::shared_ptr<const Tokenizer> load_sentencepiece(const std::string& bytes,
                                                    const std::string& name) {
  return std::make_shared<SentencePieceTokenizer>(bytes, name);
}

std::shared_ptr<const Tokenizer> sentencepiece_side(const std::string& bytes,
                                                    const std::string& normalization) {
  // SentencePiece puts the rules of a normalisation into each of its models.
  TokenizerOptions options;
  options.algorithm = "char";
  options.vocab_size = 16;
  options.normalization = normalization;
  bool given = false;
  const LineSource one_line = [&](std::string& line) {
    line = "a b c d";
    return !std::exchange(given, true);
  };
  const std::string rules = train_sentencepiece(options, one_line, 1)->serialized();
  return load_sentencepiece(with_normalization_of(bytes, rules), "the side of a translation");
}

}  // namespace tapestry::tokenizers
