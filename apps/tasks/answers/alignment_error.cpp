#include "apps/tasks/answers/alignment_error.h"

#include <map>

namespace tapestry {
namespace {

double share(int64_t part, int64_t all) {
  return all == 0 ? 1 : static_cast<double>(part) / static_cast<double>(all);
}

// The ids of a text, as many as fit, with the numbers of their words.
struct Side {
  Side(const Tokenizer& tokenizer, const std::string& text, int64_t most) {
    PlacedText placed = placed_source(tokenizer, text);
    if (std::ssize(placed.tokens) > most) placed.tokens.resize(static_cast<size_t>(most));
    ids = placed.ids();
    words = word_numbers(tokenizer, placed);
  }
  std::vector<int32_t> ids, words;
};

}  // namespace

void AlignmentError::add(const Alignment& alignment, const std::vector<WordLink>& gold) {
  std::map<std::pair<int32_t, int32_t>, bool> links;  // true: a sure one
  for (const WordLink& link : gold) links[{link.source, link.target}] |= link.sure;
  for (const auto& [pair, is_sure] : links) sure += is_sure ? 1 : 0;
  found += std::ssize(alignment);
  for (const auto& pair : alignment) {
    const auto link = links.find(pair);
    if (link == links.end()) continue;
    ++found_possible;
    found_sure += link->second ? 1 : 0;
  }
}

double AlignmentError::rate() const { return 1 - share(found_sure + found_possible, found + sure); }
double AlignmentError::precision() const { return share(found_possible, found); }
double AlignmentError::recall() const { return share(found_sure, sure); }

Evaluation evaluate_alignment(const Translator& translator, const CorpusSpec& corpus, int64_t layer,
                              int64_t batch_sentences) {
  constexpr int64_t kPairs = 1024;  // whose attention is in memory at a time
  const TokenizerPair& tokenizers = translator.tokenizers();
  const PairRows& rows = translator.rows();
  const auto reader = open_corpus(corpus);
  AlignmentError error;
  int64_t sentences = 0;
  TextPair text;
  for (bool more = true; more;) {
    std::vector<Side> sources, targets;
    std::vector<std::vector<int32_t>> source_ids, target_ids;
    std::vector<std::vector<WordLink>> gold;
    while (std::ssize(gold) < kPairs && (more = reader->next(text))) {
      sources.emplace_back(*tokenizers.source, text.source,
                           translator.longest() - rows.source.size());
      targets.emplace_back(*tokenizers.target, text.target,
                           translator.longest() - rows.target.size());
      source_ids.push_back(sources.back().ids), target_ids.push_back(targets.back().ids);
      gold.push_back(text.links);
    }
    const auto weights =
        source_attention(translator.models(), source_ids, target_ids, layer, batch_sentences, rows);
    for (size_t i = 0; i < gold.size(); ++i, ++sentences) {
      error.add(hard_alignment(weights[i], sources[i].words, targets[i].words), gold[i]);
    }
  }
  warn_of_dropped(reader->counts());
  Evaluation result;
  result.add_percent("alignment_error", 100 * error.rate());
  result.add_percent("precision", 100 * error.precision());
  result.add_percent("recall", 100 * error.recall());
  result.add_count("links", error.found);
  result.add_count("sure_links", error.sure);
  result.add_count("sentences", sentences);
  return result;
}

}  // namespace tapestry
