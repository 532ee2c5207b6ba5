#include "data/lexicon/lexicon.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/base/error.h"
#include "core/base/progress.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

// Pairs of tokens that are sorted at a time, so that memory does not grow with the corpus.
constexpr int64_t kMostLinks = int64_t{1} << 24;
constexpr double kOne = 4294967296.0;  // of the counts

using Translation = Lexicon::Translation;

bool before(const Translation& a, const Translation& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.target < b.target;
}

// For each source token the target tokens that share a sentence with it, ascending, with their
// probabilities.
class Table {
 public:
  Table(const TokenLists& sources, const TokenLists& targets, int64_t source_tokens)
      : sources_(sources), targets_(targets), firsts_(static_cast<size_t>(source_tokens) + 1) {
    std::vector<std::vector<int32_t>> lists(static_cast<size_t>(source_tokens));
    const std::vector<int32_t> ends = ranges_of_tokens();
    parallel_for(std::ssize(ends) - 1, [&](int64_t range) {
      const auto i = static_cast<size_t>(range);
      collect(ends[i], ends[i + 1], lists);
    });
    for (size_t x = 0; x < lists.size(); ++x) {
      firsts_[x + 1] = firsts_[x] + std::ssize(lists[x]);
      targets_of_.insert(targets_of_.end(), lists[x].begin(), lists[x].end());
      lists[x] = {};
    }
    probabilities_.assign(targets_of_.size(), 1.0F);
    counts_ = std::vector<std::atomic<uint64_t>>(targets_of_.size());
  }

  // An iteration.
  void improve() {
    constexpr int64_t kGrain = 64;
    parallel_ranges(sources_.size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) count_pair(sources_[i], targets_[i]);
    });
    parallel_ranges(std::ssize(firsts_) - 1, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t x = begin; x < end; ++x) normalise(x);
    });
  }

  std::vector<Translation> best(int64_t x, const LexiconOptions& options) const {
    std::vector<Translation> found;
    for (int64_t k = first(x); k < first(x + 1); ++k) {
      const auto at = static_cast<size_t>(k);
      if (probabilities_[at] < options.least_probability) continue;
      found.push_back({targets_of_[at], probabilities_[at]});
    }
    const int64_t kept = std::min(options.most, std::ssize(found));
    std::partial_sort(found.begin(), found.begin() + kept, found.end(), before);
    found.resize(static_cast<size_t>(kept));
    found.shrink_to_fit();
    return found;
  }

 private:
  int64_t first(int64_t x) const { return firsts_[static_cast<size_t>(x)]; }

  // Ends of ranges of source tokens that have about kMostLinks pairs with target tokens each.
  std::vector<int32_t> ranges_of_tokens() const {
    std::vector<int64_t> links(firsts_.size() - 1);
    for (int64_t i = 0; i < sources_.size(); ++i) {
      for (const int32_t x : sources_[i]) links.at(static_cast<size_t>(x)) += targets_.length(i);
    }
    std::vector<int32_t> ends = {0};
    int64_t sum = 0;
    for (size_t x = 0; x < links.size(); ++x) {
      if (sum > 0 && sum + links[x] > kMostLinks) {
        ends.push_back(static_cast<int32_t>(x));
        sum = 0;
      }
      sum += links[x];
    }
    ends.push_back(static_cast<int32_t>(links.size()));
    return ends;
  }

  // Fills in the lists of the source tokens [begin, end).
  void collect(int32_t begin, int32_t end, std::vector<std::vector<int32_t>>& lists) const {
    std::vector<uint64_t> links;
    const auto keep_distinct = [&] {
      std::ranges::sort(links);
      links.erase(std::ranges::unique(links).begin(), links.end());
    };
    size_t limit = static_cast<size_t>(kMostLinks);
    for (int64_t i = 0; i < sources_.size(); ++i) {
      for (const int32_t x : sources_[i]) {
        if (x < begin || x >= end) continue;
        for (const int32_t y : targets_[i]) {
          links.push_back(static_cast<uint64_t>(x) << 32 | static_cast<uint32_t>(y));
        }
      }
      // A single token may have more pairs than that.
      if (links.size() < limit) continue;
      keep_distinct();
      limit = std::max(limit, 2 * links.size());
    }
    keep_distinct();
    for (const uint64_t link : links) {
      lists[static_cast<size_t>(link >> 32)].push_back(static_cast<int32_t>(link & 0xffffffffU));
    }
  }

  // Adds what the pair tells to the counts.
  void count_pair(std::span<const int32_t> source, std::span<const int32_t> target) {
    std::vector<size_t> places(source.size());
    for (const int32_t y : target) {
      double sum = 0;
      for (size_t s = 0; s < source.size(); ++s) {
        const auto begin = targets_of_.begin() + first(source[s]);
        const auto end = targets_of_.begin() + first(source[s] + 1);
        places[s] = static_cast<size_t>(std::lower_bound(begin, end, y) - targets_of_.begin());
        sum += probabilities_[places[s]];
      }
      if (!(sum > 0)) continue;
      for (const size_t place : places) {
        const auto count = static_cast<uint64_t>(std::llround(kOne * probabilities_[place] / sum));
        counts_[place].fetch_add(count, std::memory_order_relaxed);
      }
    }
  }

  // The counts of source token x become probabilities.
  void normalise(int64_t x) {
    uint64_t total = 0;
    for (int64_t k = first(x); k < first(x + 1); ++k) total += counts_[static_cast<size_t>(k)];
    for (int64_t k = first(x); k < first(x + 1); ++k) {
      std::atomic<uint64_t>& count = counts_[static_cast<size_t>(k)];
      const double share =
          total > 0 ? static_cast<double>(count) / static_cast<double>(total) : 0.0;
      probabilities_[static_cast<size_t>(k)] = static_cast<float>(share);
      count = 0;
    }
  }

  const TokenLists& sources_;
  const TokenLists& targets_;
  std::vector<int64_t> firsts_;  // of each source token's entries in the three lists
  std::vector<int32_t> targets_of_;
  std::vector<float> probabilities_;
  std::vector<std::atomic<uint64_t>> counts_;
};

std::vector<Translation> most_frequent(const TokenLists& targets, int64_t tokens, int64_t most) {
  std::vector<int64_t> counts(static_cast<size_t>(tokens));
  int64_t all = 0;
  for (int64_t i = 0; i < targets.size(); ++i) {
    for (const int32_t y : targets[i]) ++counts.at(static_cast<size_t>(y)), ++all;
  }
  std::vector<int32_t> order;
  for (int32_t y = 0; y < tokens; ++y) {
    if (counts[static_cast<size_t>(y)] > 0) order.push_back(y);
  }
  std::ranges::stable_sort(order, std::greater(),
                           [&](int32_t y) { return counts[static_cast<size_t>(y)]; });
  if (std::ssize(order) > most) order.resize(static_cast<size_t>(most));
  std::vector<Translation> frequent;
  for (const int32_t y : order) {
    const auto count = static_cast<double>(counts[static_cast<size_t>(y)]);
    frequent.push_back({y, static_cast<float>(count / static_cast<double>(all))});
  }
  return frequent;
}

}  // namespace

void Lexicon::sort() {
  for (auto& list : translations) std::ranges::sort(list, before);
  std::ranges::sort(frequent, before);
}

Lexicon learn_lexicon(const TokenLists& sources, const TokenLists& targets, int64_t source_tokens,
                      int64_t target_tokens, const LexiconOptions& options) {
  check(sources.size() == targets.size(), "lexicon", "expected as many targets as sources, got ",
        targets.size(), " and ", sources.size(), '.');
  Table table(sources, targets, source_tokens);
  Progress progress("learning translations", options.iterations, "iterations");
  for (int64_t i = 0; i < options.iterations; ++i, progress.add()) table.improve();
  Lexicon lexicon;
  lexicon.translations.resize(static_cast<size_t>(source_tokens));
  parallel_ranges(source_tokens, 64, [&](int64_t begin, int64_t end) {
    for (int64_t x = begin; x < end; ++x) {
      lexicon.translations[static_cast<size_t>(x)] = table.best(x, options);
    }
  });
  lexicon.frequent = most_frequent(targets, target_tokens, options.frequent);
  // Equal shares in float32 may come of unequal counts.
  lexicon.sort();
  return lexicon;
}

}  // namespace tapestry
