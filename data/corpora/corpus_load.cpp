#include <algorithm>
#include <bit>
#include <iomanip>

#include "core/base/error.h"
#include "core/base/progress.h"
#include "data/chat/chat_format.h"
#include "data/corpora/corpus.h"
#include "data/corpora/encode_corpus.h"
#include "data/files/files.h"
#include "data/tokenizers/languages.h"
#include "data/tokenizers/parts/added_tokens.h"
#include "data/tokenizers/parts/text_regex.h"
#include "data/tokenizers/tokenizer_types.h"

namespace tapestry {
namespace {

// The texts of all corpora on the given sides, as one stream.
class SideLines {
 public:
  SideLines(const std::vector<CorpusSpec>& specs, bool source, bool target)
      : specs_(specs), source_(source), target_(target), meter_(specs), first_byte_(bytes_read()) {}

  bool next(std::string& line) {
    of_target_ = pending_target_ || !source_;
    if (pending_target_) {
      pending_target_ = false;
      line = std::move(pair_.target);
      return true;
    }
    while (true) {
      if (reader_ == nullptr) {
        if (next_spec_ == specs_.size()) return false;
        reader_ = open_corpus(specs_[next_spec_], seen_);
        specials_ = {};
        if (const auto& chat = specs_[next_spec_++].chat; chat != nullptr) {
          for (const std::string& text : special_texts(*chat)) specials_.add(0, text);
        }
      }
      if (reader_->next(pair_)) {
        if (++read_ % kTelling == 0) meter_.tell(read_, bytes_read() - first_byte_);
        break;
      }
      check_kept(specs_[next_spec_ - 1], reader_->counts());
      reader_.reset();
    }
    const CorpusSpec& spec = specs_[next_spec_ - 1];
    const CorpusSpec::Kind kind = spec.kind();
    for (std::string* text : {&pair_.source, &pair_.target}) part(*text);
    if (kind == CorpusSpec::Kind::kPrompted || kind == CorpusSpec::Kind::kPreferences) {
      line = pair_.source + pair_.target;
      return true;
    }
    if (spec.has_two_texts()) pair_.source += ' ' + pair_.second;
    const bool has_target = spec.has_target();
    pending_target_ = source_ && target_ && has_target;
    line = std::move(source_ || !has_target ? pair_.source : pair_.target);
    return true;
  }
  /// True if the line is a target.
  bool of_target() const { return of_target_; }

 private:
  static constexpr int64_t kTelling = 4096;  // pairs between two looks at the clock

  // A special token that a chat template writes is no text: it parts the texts beside it.
  void part(std::string& text) const {
    if (specials_.empty()) return;
    std::string parted;
    for (const tokenizers::TextSection& section : specials_.sections(text)) {
      parted += section.id < 0 ? section.text : std::string_view("\n");
    }
    text = std::move(parted);
  }

  const std::vector<CorpusSpec>& specs_;
  const std::shared_ptr<SeenTexts> seen_ = std::make_shared<SeenTexts>();
  const bool source_;
  const bool target_;
  ProgressMeter meter_;
  const int64_t first_byte_;
  int64_t read_ = 0;
  size_t next_spec_ = 0;
  std::unique_ptr<PairReader> reader_;
  tokenizers::TokenFinder specials_;  // of the talks that reader_ reads
  TextPair pair_;
  bool pending_target_ = false;
  bool of_target_ = false;
};

bool has_targets(const std::vector<CorpusSpec>& specs) {
  for (const CorpusSpec& spec : specs) {
    if (spec.has_target()) return true;
  }
  return false;
}

}  // namespace

void check_not_empty(const std::vector<CorpusSpec>& specs) {
  if (specs.empty()) fail(ErrorKind::kConfig, "[data] expected at least one corpus, got none.");
}

void CorpusOptions::validate(const OptionReport& report) const {
  report.expect(max_length >= 2, "max_length", "must be at least 2, got ", max_length, '.');
  report.expect_one_of("overlong", overlong, kOverlong);
}

PairRows::PairRows(const TokenizerPair& tokenizers)
    : source(tokenizers.source->special().side()),
      target(tokenizers.target->special().target()),
      start(tokenizers.target->special().start.value_or(tokenizers.target->special().bos)),
      eos(tokenizers.target->special().eos),
      source_filler(tokenizers.source->special().filler()),
      target_filler(tokenizers.target->special().filler()),
      banned(tokenizers.target->special().banned()),
      more_ends(tokenizers.target->special().more_ends) {
  check_target_language(*tokenizers.target);
}

namespace {

void check_pairs(const std::vector<CorpusSpec>& specs, const CorpusOptions& options) {
  options.validate();
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    if (spec.has_target()) continue;
    fail(ErrorKind::kConfig, "[data] a translation needs two sides, got only text ", spec.str(),
         '.');
  }
}

// True if the pairs of a row's alignment are of tokens that the row has.
bool links_tokens(const TokenTable& rows, int64_t row, int64_t column) {
  const std::span<const int32_t> pairs = rows.list(row, column);
  if (pairs.size() % 2 != 0) return false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i] < 0 || pairs[i] >= rows.length(row, static_cast<int64_t>(i % 2))) return false;
  }
  return true;
}

}  // namespace

ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options, const LoadContext& context) {
  const PairRows around(tokenizers);
  return load_parallel(specs, tokenizers, options,
                       std::max(around.source.size(), around.target.size()), context);
}

ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options, int64_t specials,
                             const LoadContext& context) {
  check_pairs(specs, options);
  const bool texts = options.keep_text;
  const bool weighted = std::ranges::any_of(specs, &CorpusSpec::has_pair_weights);
  const bool aligned =
      std::ranges::any_of(specs, [](const CorpusSpec& spec) { return !spec.alignments.empty(); });
  if (texts && (weighted || aligned)) {
    fail(ErrorKind::kConfig, "[data] pairs that are measured have no weights and no alignments.");
  }
  const int64_t weights = 2, alignments = 3;  // their columns
  const auto is_weight = [](std::span<const int32_t> list) {
    const float weight = list.size() == 1 ? std::bit_cast<float>(list[0]) : 0;
    return weight > 0 && weight <= CorpusSpec::kLargestPairWeight;
  };
  const auto table =
      load_table({.kind = texts      ? "pairs-with-text"
                          : aligned  ? "pairs-with-alignments"
                          : weighted ? "pairs-with-weights"
                                     : "pairs",
                  .columns = texts || aligned ? 4
                             : weighted       ? 3
                                              : 2,
                  .specs = specs,
                  .source_tokenizer = *tokenizers.source,
                  .target_tokenizer = tokenizers.target.get(),
                  .rule = {options.max_length, options.overlong, specials},
                  .add =
                      [=](const EncodedPair& pair, TableBuilder& rows) {
                        const auto weight = std::bit_cast<int32_t>(pair.text.weight);
                        if (aligned) {
                          return rows.add({pair.source, pair.target, {&weight, 1}, pair.alignment});
                        }
                        if (weighted) return rows.add({pair.source, pair.target, {&weight, 1}});
                        if (!texts) return rows.add({pair.source, pair.target});
                        rows.add({pair.source, pair.target, ids_of_text(pair.text.source),
                                  ids_of_text(pair.text.target)});
                      },
                  .is_sound =
                      [=](const TokenTable& rows) {
                        bool sound = true;
                        const bool more = weighted || aligned;
                        for (int64_t i = 0; more && sound && i < rows.rows(); ++i) {
                          sound = is_weight(rows.list(i, weights)) &&
                                  (!aligned || links_tokens(rows, i, alignments));
                        }
                        return sound;
                      }},
                 context);
  ParallelCorpus corpus;
  corpus.source = TokenLists(table, 0);
  corpus.target = TokenLists(table, 1);
  if (texts) {
    corpus.source_text = TextLists(table, 2);
    corpus.target_text = TextLists(table, 3);
  }
  if (weighted) corpus.weights = TokenLists(table, weights);
  if (aligned) corpus.alignments = TokenLists(table, alignments);
  corpus.counts = table->facts().counts;
  corpus.parts = table->facts().parts;
  corpus.from_cache = table->from_cache();
  corpus.rows = PairRows(tokenizers);
  return corpus;
}

TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options, const LoadContext& context) {
  return load_text(specs, tokenizer, options, tokenizer.special().side().size(), context);
}

TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options, int64_t specials, const LoadContext& context) {
  options.validate();
  check_not_empty(specs);
  const bool texts = options.keep_text;
  const auto table = load_table({.kind = texts ? "texts-with-text" : "texts",
                                 .columns = texts ? 2 : 1,
                                 .specs = specs,
                                 .source_tokenizer = tokenizer,
                                 .target_tokenizer = nullptr,
                                 .rule = {options.max_length, options.overlong, specials},
                                 .add =
                                     [texts](const EncodedPair& pair, TableBuilder& rows) {
                                       if (!texts) return rows.add({pair.source});
                                       rows.add({pair.source, ids_of_text(pair.text.source)});
                                     }},
                                context);
  TextCorpus corpus;
  corpus.tokens = TokenLists(table, 0);
  if (texts) corpus.text = TextLists(table, 1);
  corpus.counts = table->facts().counts;
  corpus.parts = table->facts().parts;
  corpus.from_cache = table->from_cache();
  return corpus;
}

namespace {

// Adds the symbols that the pattern finds to the others.
TokenizerOptions with_found_symbols(TokenizerOptions options, SideLines lines) {
  if (options.user_symbol_pattern.empty()) return options;
  const tokenizers::TextRegex pattern(options.user_symbol_pattern, "tokenizer.user_symbol_pattern");
  std::set<std::string> found;
  for (std::string line; lines.next(line);) {
    tokenizers::find_symbols(pattern, line, found);
    if (std::ssize(found) > TokenizerOptions::kMostSymbols) break;  // validate() reports it
  }
  for (const std::string& symbol : options.user_symbols) found.erase(symbol);
  options.user_symbols.insert(options.user_symbols.end(), found.begin(), found.end());
  try {
    options.validate();
  } catch (const Error& error) {
    fail(error.kind(), "[tokenizer] user_symbol_pattern '", options.user_symbol_pattern,
         "' finds what cannot be a symbol: ", error.what());
  }
  return options;
}

TokenizerPair learn_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed) {
  const Progress progress("training the tokenizer");  // shows instead of the reading
  const auto train = [&](const std::string& normalization, bool source, bool target) {
    TokenizerOptions side = with_found_symbols(options, SideLines(specs, source, target));
    side.normalization = normalization;
    SideLines lines(specs, source, target);
    return train_tokenizer(
        side, [&](std::string& line) { return lines.next(line); }, seed);
  };
  const std::string &of_source = options.normalization,
                    &of_target = options.normalization_of_target();
  if (!has_targets(specs) ||
      (options.share && (of_source == of_target || options.type == "char"))) {
    const auto joint = train(of_source, true, true);
    return {joint, joint};
  }
  if (!options.share) return {train(of_source, true, false), train(of_target, false, true)};
  // For one vocabulary, texts are normalised for their side before it sees them.
  TokenizerOptions joint = with_found_symbols(options, SideLines(specs, true, true));
  joint.normalization = "identity";
  const SideNormalizer source(of_source, joint.user_symbols);
  const SideNormalizer target(of_target, joint.user_symbols);
  SideLines lines(specs, true, true);
  const auto next = [&](std::string& line) {
    if (!lines.next(line)) return false;
    line = lines.of_target() ? target(line) : source(line);
    return true;
  };
  const auto pieces = train_tokenizer(joint, next, seed);
  return {as_side(*pieces, of_source), as_side(*pieces, of_target)};
}

}  // namespace

TokenizerPair train_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed,
                               const LoadContext& context) {
  options.validate();
  if (!options.path.empty()) {
    const auto joint = read_tokenizer(options);
    return {joint, joint};
  }
  if (!options.source_path.empty()) {
    const auto source = read_tokenizer(options, options.source_path);
    const auto target = read_tokenizer(options, options.target_path);
    if (options.share && source->serialized() == target->serialized()) return {source, source};
    return {source, target};
  }
  check_not_empty(specs);
  CorpusKey key;
  if (!context.cache.empty()) {
    // Binds all members, as reading_of() does.
    const auto& [type, path, source_path, target_path, algorithm, vocab_size, share,
                 character_coverage, byte_fallback, normalization, target_normalization,
                 user_symbols, user_symbol_pattern, max_sentences, mask_piece, sentinels] = options;
    key.add(concat("tokenizer ", type, ' ', path, ' ', source_path, ' ', target_path, ' ',
                   algorithm, ' ', vocab_size, ' ', share, ' ', std::setprecision(17),
                   character_coverage, ' ', byte_fallback, ' ', normalization, ' ',
                   target_normalization, ' ', max_sentences, ' ', mask_piece, ' ', sentinels, ' ',
                   seed));
    for (const std::string& symbol : user_symbols) key.add(symbol);
    key.add(user_symbol_pattern);
    key.add(specs);
  }
  // A table without rows, with the models among its facts.
  TokenizerPair made, kept;
  const auto make = [&](TableBuilder&) {
    if (!made.source) made = learn_tokenizers(options, specs, seed);
    CorpusFacts facts;
    facts.texts.push_back(made.source->serialized());
    if (!made.one()) facts.texts.push_back(made.target->serialized());
    return facts;
  };
  const auto is_sound = [&](const TokenTable& table) {
    const std::vector<std::string>& models = table.facts().texts;
    if (models.empty() || models.size() > 2) return false;
    try {
      kept.source = load_tokenizer(models.front(), "the tokenizer of the cache");
      kept.target = models.size() == 1
                        ? kept.source
                        : load_tokenizer(models.back(), "the tokenizer of the cache");
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  cached_table("tokenizer", 1, key, context, make, is_sound);
  return made.source ? made : kept;
}

}  // namespace tapestry
