// Encoding of corpora: blocks of raw pairs are read, encoded on all threads, then filtered by
// length in order.
#include "core/error.h"
#include "core/parallel.h"
#include "data/corpus.h"
#include "data/encode_corpus.h"

namespace tapestry {
namespace {

constexpr int64_t kBlockPairs = 1 << 15;
constexpr int64_t kTilePairs = 64;

// The same for pairs in one row: the prompt loses its beginning, the answer stays whole.
bool fit_row(EncodedPair& pair, const LengthRule& rule, FilterCounts& counts) {
  const auto most = static_cast<size_t>(rule.max_length - rule.specials);
  const size_t tokens = pair.source.size() + pair.target.size();
  if (tokens > most) {
    if (rule.overlong == "error") {
      fail(ErrorKind::kData, "[data] ", pair.text.place, " has ",
           static_cast<int64_t>(tokens) + rule.specials,
           " tokens of prompt and answer, max_length is ", rule.max_length, '.');
    }
    if (rule.overlong == "drop" || pair.target.size() >= most) {
      counts.drop(Drop::kOverlong, pair.text.place);
      return false;
    }
    pair.source.erase(pair.source.begin(),
                      pair.source.begin() + static_cast<std::ptrdiff_t>(tokens - most));
    ++counts.truncated;
  }
  ++counts.kept;
  return true;
}

// Applies the length rule; false when the pair is dropped.
bool fit_length(EncodedPair& pair, const LengthRule& rule, FilterCounts& counts) {
  if (rule.one_row) return fit_row(pair, rule, counts);
  const auto most = static_cast<size_t>(rule.max_length - rule.specials);
  if (pair.source.size() <= most && pair.target.size() <= most) {
    ++counts.kept;
    return true;
  }
  if (rule.overlong == "error") {
    const bool source = pair.source.size() > most;
    fail(ErrorKind::kData, "[data] ", pair.text.place, " has ",
         static_cast<int64_t>((source ? pair.source : pair.target).size()) + rule.specials,
         source ? " source" : " target", " tokens, max_length is ", rule.max_length, '.');
  }
  if (rule.overlong == "drop") {
    counts.drop(Drop::kOverlong, pair.text.place);
    return false;
  }
  if (pair.source.size() > most) pair.source.resize(most);
  if (pair.target.size() > most) pair.target.resize(most);
  ++counts.truncated;
  ++counts.kept;
  return true;
}

void check_kept(const CorpusSpec& spec, const FilterCounts& counts) {
  if (counts.kept > 0) return;
  const std::string advice = spec.has_records() ? format_advice(spec.record_file()) : "";
  fail(ErrorKind::kData, "[data] ", spec.str(), " leaves no sentence: ", counts.summary(), advice,
       '.');
}

// The texts of all corpora on the given sides, as one stream.
class SideLines {
 public:
  SideLines(const std::vector<CorpusSpec>& specs, bool source, bool target)
      : specs_(specs), source_(source), target_(target) {}

  bool next(std::string& line) {
    if (pending_target_) {
      pending_target_ = false;
      line = std::move(pair_.target);
      return true;
    }
    while (true) {
      if (reader_ == nullptr) {
        if (next_spec_ == specs_.size()) return false;
        reader_ = open_corpus(specs_[next_spec_++]);
      }
      if (reader_->next(pair_)) break;
      check_kept(specs_[next_spec_ - 1], reader_->counts());
      reader_.reset();
    }
    const CorpusSpec& spec = specs_[next_spec_ - 1];
    if (spec.kind() == CorpusSpec::Kind::kPrompted) {
      line = pair_.source + pair_.target;
      return true;
    }
    const bool has_target = spec.has_target();
    pending_target_ = source_ && target_ && has_target;
    line = std::move(source_ || !has_target ? pair_.source : pair_.target);
    return true;
  }

 private:
  const std::vector<CorpusSpec>& specs_;
  const bool source_;
  const bool target_;
  size_t next_spec_ = 0;
  std::unique_ptr<PairReader> reader_;
  TextPair pair_;
  bool pending_target_ = false;
};

bool has_targets(const std::vector<CorpusSpec>& specs) {
  for (const CorpusSpec& spec : specs) {
    if (spec.has_target()) return true;
  }
  return false;
}

}  // namespace

FilterCounts encode_corpus(const CorpusSpec& spec, const Tokenizer& source_tokenizer,
                           const Tokenizer* target_tokenizer, const LengthRule& rule,
                           const std::function<void(const EncodedPair&)>& accept) {
  const auto reader = open_corpus(spec);
  FilterCounts lengths;
  std::vector<EncodedPair> block;
  for (bool more = true; more;) {
    block.clear();
    TextPair text;
    while (static_cast<int64_t>(block.size()) < kBlockPairs && (more = reader->next(text))) {
      block.push_back({std::move(text), {}, {}});
    }
    const auto pairs = static_cast<int64_t>(block.size());
    parallel_ranges(pairs, kTilePairs, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        EncodedPair& pair = block[static_cast<size_t>(i)];
        pair.source = source_tokenizer.encode(pair.text.source);
        if (target_tokenizer == nullptr) continue;
        pair.target = rule.one_row ? target_tokenizer->encode_continuation(pair.text.target)
                                   : target_tokenizer->encode(pair.text.target);
      }
    });
    for (EncodedPair& pair : block) {
      if (fit_length(pair, rule, lengths)) accept(pair);
    }
  }
  FilterCounts counts = reader->counts();
  counts.kept = 0;
  counts.add(lengths);
  check_kept(spec, counts);
  return counts;
}

void check_not_empty(const std::vector<CorpusSpec>& specs) {
  if (specs.empty()) fail(ErrorKind::kConfig, "[data] expected at least one corpus, got none.");
}

void CorpusOptions::validate(const OptionReport& report) const {
  report.expect(max_length >= 2, "max_length", "must be at least 2, got ", max_length, '.');
  report.expect_one_of("overlong", overlong, kOverlong);
}

ParallelCorpus load_parallel(const std::vector<CorpusSpec>& specs, const TokenizerPair& tokenizers,
                             const CorpusOptions& options) {
  options.validate();
  check_not_empty(specs);
  const LengthRule rule{options.max_length, options.overlong};
  ParallelCorpus corpus;
  for (const CorpusSpec& spec : specs) {
    if (!spec.has_target()) {
      fail(ErrorKind::kConfig, "[data] a translation needs two sides, got only text ", spec.str(),
           '.');
    }
    corpus.counts.add(encode_corpus(spec, *tokenizers.source, tokenizers.target.get(), rule,
                                    [&](const EncodedPair& pair) {
                                      corpus.source.push_back(pair.source);
                                      corpus.target.push_back(pair.target);
                                      if (!options.keep_text) return;
                                      corpus.source_text.push_back(pair.text.source);
                                      corpus.target_text.push_back(pair.text.target);
                                    }));
  }
  return corpus;
}

TextCorpus load_text(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                     const CorpusOptions& options) {
  options.validate();
  check_not_empty(specs);
  const LengthRule rule{options.max_length, options.overlong};
  TextCorpus corpus;
  for (const CorpusSpec& spec : specs) {
    corpus.counts.add(encode_corpus(spec, tokenizer, nullptr, rule, [&](const EncodedPair& pair) {
      corpus.tokens.push_back(pair.source);
      if (options.keep_text) corpus.text.push_back(pair.text.source);
    }));
  }
  return corpus;
}

TokenizerPair train_tokenizers(const TokenizerOptions& options,
                               const std::vector<CorpusSpec>& specs, uint64_t seed) {
  options.validate();
  if (!options.path.empty()) {
    const auto joint = read_tokenizer(options);
    return {joint, joint};
  }
  check_not_empty(specs);
  const auto train = [&](bool source, bool target) {
    SideLines lines(specs, source, target);
    return train_tokenizer(
        options, [&](std::string& line) { return lines.next(line); }, seed);
  };
  if (options.share || !has_targets(specs)) {
    const auto joint = train(true, true);
    return {joint, joint};
  }
  return {train(true, false), train(false, true)};
}

}  // namespace tapestry
