#include "apps/tasks/answers/scorers.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <utility>

#include "apps/tasks/answers/answered_text.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/text_models.h"
#include "data/corpora/filter_counts.h"
#include "data/files/utf8.h"
#include "data/scores/draws/expected_scores.h"
#include "data/scores/words.h"

namespace tapestry {
namespace {

constexpr const char* kWho = "rescore";

using Values = std::vector<double>;

template <class F>
Values of_each(const CandidateList& list, F&& value) {
  Values values;
  for (const CandidateList::Candidate& one : list.candidates) values.push_back(value(one));
  return values;
}

Values log_probabilities(const CandidateList& list) {
  return of_each(list, [](const auto& one) { return one.log_probability; });
}

Values scores(const CandidateList& list) {
  return of_each(list, [](const auto& one) { return one.score; });
}

// Words as BLEU's brevity penalty counts them: lists of any program have them, whatever its tokens.
Values lengths(const CandidateList& list) {
  static const WordRule::Split split = word_rule("13a", "").make("");
  return of_each(list, [](const auto& one) {
    const std::string words = words_of_line(split, one.text);
    return static_cast<double>(words.empty() ? 0 : 1 + std::ranges::count(words, ' '));
  });
}

// For texts without spaces between words.
Values characters(const CandidateList& list) {
  return of_each(list,
                 [](const auto& one) { return static_cast<double>(count_code_points(one.text)); });
}

// As least_risk() has it of draws: texts that differ count once.
Values consensus(const CandidateList& list) {
  DrawnTexts drawn;
  std::map<std::string, size_t> places;
  for (const CandidateList::Candidate& one : list.candidates) {
    if (places.emplace(one.text, drawn.texts.size()).second) drawn.texts.push_back(one.text);
  }
  drawn.times.assign(drawn.texts.size(), 1);
  const Values found = expected_chrf(drawn);
  return of_each(list, [&](const auto& one) { return found[places.at(one.text)]; });
}

class Feature : public Scorer {
 public:
  using Function = Values (*)(const CandidateList& list);
  explicit Feature(Function function) : function_(function) {}
  Values values(const CandidateList& list) override { return function_(list); }

 private:
  Function function_;
};

template <Feature::Function kFunction>
std::unique_ptr<Scorer> make_feature(const ScorerSpec&, const ScorerUse&) {
  return std::make_unique<Feature>(kFunction);
}

// Counts the tokens of texts that the vocabulary of a scorer's model does not know.
class UnknownTexts {
 public:
  UnknownTexts(const ScorerSpec& spec, std::optional<int32_t> unk)
      : name_(spec.model_as_written), unk_(unk) {}
  void count(const std::vector<int32_t>& ids, int64_t line) {
    unknown_.count(ids, unk_, place_of_line(line));
  }
  void tell() const {
    if (unknown_.share() < kManyUnknown) return;
    std::cerr << concat("warning: ", name_, ": ", unknown_.summary("the tokens that it scores"),
                        unknown_.unknown == 1 ? " is" : " are",
                        " unknown to its vocabulary, so that other texts look equal to it.\n");
  }

 private:
  std::string name_;
  std::optional<int32_t> unk_;
  UnknownTokens unknown_;
};

// log P(translation | source), or with `kBackward` log P(source | translation), by a translation
// model with a tokenizer of its own. The rows of a batch are of one line, so that no bit depends on
// other lines.
template <bool kBackward>
class PairScorer : public Scorer {
 public:
  PairScorer(const ScorerSpec& spec, const ScorerUse& use)
      : models_({.paths = {spec.model}, .format = use.weights}, use.device, kWho, kScoresPairs,
                spec.languages),
        unknown_(spec, models_.tokenizers().target->special().unk) {}

  Values values(const CandidateList& list) override {
    constexpr int64_t kRows = 16;  // keeps the logits small
    const std::vector<int32_t> of_source =
        kBackward ? target_ids(list.source, list.line) : source_ids(list.source, list.line);
    ParallelCorpus pairs;
    pairs.rows = models_.rows();
    for (const CandidateList::Candidate& one : list.candidates) {
      const std::vector<int32_t> of_text =
          kBackward ? source_ids(one.text, list.line) : target_ids(one.text, list.line);
      pairs.source.push_back(kBackward ? of_text : of_source);
      pairs.target.push_back(kBackward ? of_source : of_text);
    }
    Values values;
    for (const Score& one : score(models_.models(), pairs, kRows)) {
      values.push_back(one.log_probability);
    }
    return values;
  }

  void finish() const override { unknown_.tell(); }

 private:
  std::vector<int32_t> source_ids(const std::string& text, int64_t line) const {
    return models_.encode_source(text, line);
  }
  std::vector<int32_t> target_ids(const std::string& text, int64_t line) {
    std::vector<int32_t> ids = models_.tokenizers().target->encode(text);
    unknown_.count(ids, line);
    cut_long_line(ids, models_.longest() - models_.rows().target.size(), place_of_line(line));
    return ids;
  }

  Translator models_;
  UnknownTexts unknown_;
};

// log P(translation) by a causal model.
class TextScorer : public Scorer {
 public:
  TextScorer(const ScorerSpec& spec, const ScorerUse& use)
      : models_({.paths = {spec.model}, .format = use.weights}, use.device, kWho, kContinuesText),
        unknown_(spec, models_.tokenizer().special().unk) {
    if (begins_with_eos(models_.first().config)) return;
    fail(ErrorKind::kConfig, '[', kWho, "] ", spec.model,
         " has learnt from one long document: it knows neither beginnings nor ends of texts, so it "
         "has no probability of a whole one.");
  }

  Values values(const CandidateList& list) override {
    return of_each(list, [&](const auto& one) {
      const std::vector<int32_t> ids = ids_to_score(models_, one.text, list.line);
      unknown_.count(ids, list.line);
      return score_texts(models_, {ids}).at(0).log_probability;
    });
  }

  void finish() const override { unknown_.tell(); }

 private:
  TextModels models_;
  UnknownTexts unknown_;
};

template <class T>
std::unique_ptr<Scorer> make(const ScorerSpec& spec, const ScorerUse& use) {
  return std::make_unique<T>(spec, use);
}

constexpr ScorerKind kKinds[] = {
    {"log_probability", "the search's log-probability", make_feature<log_probabilities>},
    {"score", "what the search chose by; of --mbr the utility", make_feature<scores>},
    {"length", "words as BLEU counts them", make_feature<lengths>},
    {"characters", "the same for texts without spaces", make_feature<characters>},
    {"consensus", "chrF against all hypotheses of the line", make_feature<consensus>},
    {"forward", "log P(translation | source) of a model", make<PairScorer<false>>, kScoresPairs},
    {"backward", "log P(source | translation) of a model", make<PairScorer<true>>, kScoresPairs},
    {"text", "log P(translation) of a causal model", make<TextScorer>, kContinuesText},
};

}  // namespace

std::span<const ScorerKind> scorer_kinds() { return kKinds; }

const ScorerKind& text_scorer_kind() {
  return *std::ranges::find(kKinds, unsigned{kContinuesText}, &ScorerKind::needs);
}

std::string feature_help() {
  std::string text;
  for (const ScorerKind& kind : kKinds) {
    if (kind.needs != 0) continue;
    text += concat(text.empty() ? "" : ", ", kind.name, " (", kind.meaning, ')');
  }
  return text;
}

std::unique_ptr<Scorer> make_scorer(const ScorerSpec& spec, const ScorerUse& use) {
  return spec.kind->make(spec, use);
}

std::vector<double> checked_values(Scorer& scorer, const ScorerSpec& spec,
                                   const CandidateList& list) {
  Values values = scorer.values(list);
  for (size_t i = 0; i < values.size(); ++i) {
    check(std::isfinite(values[i]), kWho, spec.name(), " must give finite values, got ", values[i],
          " for line ", list.line, ": '", list.candidates[i].text, "'.");
  }
  return values;
}

Rescorer::Rescorer(const std::string& path, const ScorerUse& use) : file_(read_scorers(path)) {
  std::erase_if(file_.scorers, [](const ScorerSpec& spec) { return spec.weight == 0; });
  for (const ScorerSpec& spec : file_.scorers) scorers_.push_back(make_scorer(spec, use));
}

std::vector<Hypothesis> Rescorer::best(const std::string& source, int64_t line,
                                       std::vector<Hypothesis> found, int64_t n,
                                       const Tokenizer& tokenizer) {
  CandidateList list{.source = source, .line = line};
  for (const Hypothesis& one : found) {
    list.candidates.push_back({translated_text(tokenizer, one), one.log_probability, one.score});
  }
  Values sums(found.size(), 0);
  for (size_t k = 0; k < scorers_.size(); ++k) {
    const ScorerSpec& spec = file_.scorers[k];
    const Values values = checked_values(*scorers_[k], spec, list);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += spec.weight * values[i];
  }
  for (size_t i = 0; i < found.size(); ++i) found[i].score = sums[i];
  std::ranges::stable_sort(found, std::greater(), &Hypothesis::score);
  return best_texts(std::move(found), n,
                    [&](const Hypothesis& one) { return translated_text(tokenizer, one); });
}

void Rescorer::finish() const {
  for (const auto& scorer : scorers_) scorer->finish();
}

void widen_for_rescoring(SearchOptions& options) { options.n_best = candidates_of(options); }

int64_t candidates_of(const SearchOptions& options) {
  if (options.mbr_samples > 0) return options.mbr_samples;
  return options.do_sample ? options.n_best : std::max(options.n_best, options.num_beams);
}

}  // namespace tapestry
