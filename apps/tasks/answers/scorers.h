// Values of the hypotheses of a line, by which an n-best list gets another order: the search's own,
// of the texts alone, and of further models. A kind of scorer is a row of scorer_kinds().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/checkpoint/model_choice.h"
#include "apps/config/task.h"
#include "apps/tasks/answers/scorer_file.h"
#include "data/tokenizers/tokenizer.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// A line and its translations, the search's best first.
struct CandidateList {
  struct Candidate {
    std::string text;
    double log_probability = 0;  ///< the search's
    double score = 0;            ///< by which the search chose
  };

  std::string source;
  int64_t line = 0;  ///< its number, from 1
  std::vector<Candidate> candidates = {};
};

class Scorer {
 public:
  virtual ~Scorer() = default;
  /// One for each candidate: a function of this list only, whatever is scored before.
  virtual std::vector<double> values(const CandidateList& list) = 0;
  /// Says on stderr what was odd about all lists.
  virtual void finish() const {}
};

/// What the models of scorers are loaded with.
struct ScorerUse {
  std::string device = "auto";
  WeightChoice weights = {};
};

struct ScorerKind {
  const char* name;     ///< a choice of `feature` or of `direction`
  const char* meaning;  ///< one phrase
  /// Throws as Translator and TextModels.
  std::unique_ptr<Scorer> (*make)(const ScorerSpec& spec, const ScorerUse& use);
  unsigned needs = 0;  ///< Ability of its model; 0: it needs none
};
std::span<const ScorerKind> scorer_kinds();
/// That of causal models, which have no direction.
const ScorerKind& text_scorer_kind();
/// "log_probability (...), ...": the kinds without a model, for help.
std::string feature_help();

std::unique_ptr<Scorer> make_scorer(const ScorerSpec& spec, const ScorerUse& use);
/// Scorer::values(). Throws Error(kRuntime), naming the scorer and the line, for a value that is
/// not finite.
std::vector<double> checked_values(Scorer& scorer, const ScorerSpec& spec,
                                   const CandidateList& list);

/// All scorers of a file, for translations as they come.
class Rescorer {
 public:
  /// Throws as read_scorers() and make_scorer().
  Rescorer(const std::string& path, const ScorerUse& use);

  /// The n translations with the largest weighted sum of values, which becomes their score; equal
  /// ones in the search's order.
  std::vector<Hypothesis> best(const std::string& source, int64_t line,
                               std::vector<Hypothesis> found, int64_t n,
                               const Tokenizer& tokenizer);
  void finish() const;

 private:
  ScorerFile file_;
  std::vector<std::unique_ptr<Scorer>> scorers_;
};

/// What a search must find for a Rescorer: every beam, not only the n best.
void widen_for_rescoring(SearchOptions& options);
/// So many translations of a search with these options are rescored.
int64_t candidates_of(const SearchOptions& options);

}  // namespace tapestry
