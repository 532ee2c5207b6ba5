#include "data/tokenizers/bpe.h"

#include <algorithm>
#include <queue>
#include <unordered_set>

namespace tapestry::bpe {
namespace {

class Learner {
 public:
  Learner(std::vector<Word> words, Alphabet& alphabet)
      : words_(std::move(words)), alphabet_(alphabet), queue_(After{&alphabet}) {
    for (size_t i = 0; i < words_.size(); ++i) add_pairs(static_cast<int32_t>(i), 1);
    commit_changes();
  }

  std::vector<Merge> run() {
    std::vector<Merge> merges;
    while (const auto pair = most_frequent()) {
      const auto result = alphabet_.merge(*pair);
      if (!result) break;
      const Merge merge{*pair, *result};
      replace(merge);
      // A symbol that two pairs make can bring a pair back that was merged before.
      if (merged_.insert(*pair).second) merges.push_back(merge);
    }
    return merges;
  }

 private:
  struct Facts {
    int64_t count = 0;           // of the pair in the text
    int64_t change = 0;          // of the count, by the merge in progress
    std::vector<int32_t> words;  // all that hold the pair; some that did hold it, some twice
  };
  struct Entry {
    int64_t count;
    Pair pair;
  };
  struct After {  // the queue's top goes before all others
    const Alphabet* alphabet;
    bool operator()(const Entry& a, const Entry& b) const {
      return a.count != b.count ? a.count < b.count : alphabet->goes_before(b.pair, a.pair);
    }
  };

  void add_pairs(int32_t index, int64_t sign) {
    const Word& word = words_[static_cast<size_t>(index)];
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair{word.symbols[i], word.symbols[i + 1]};
      Facts& facts = pairs_[pair];
      if (facts.change == 0) changed_.push_back(pair);
      facts.change += sign * word.count;
      if (sign > 0 && (facts.words.empty() || facts.words.back() != index)) {
        facts.words.push_back(index);
      }
    }
  }

  // An entry of the queue is never below its pair's count: a count that grew is queued again, one
  // that fell is corrected when it comes up.
  void commit_changes() {
    for (const Pair& pair : changed_) {
      const auto found = pairs_.find(pair);
      if (found == pairs_.end()) continue;  // it changed back and forth, and is here twice
      Facts& facts = found->second;
      const int64_t change = facts.change;
      facts.change = 0;
      facts.count += change;
      if (change > 0) queue_.push({facts.count, pair});
      if (facts.count == 0) pairs_.erase(found);
    }
    changed_.clear();
  }

  std::optional<Pair> most_frequent() {
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count) return top.pair;
      if (count > 0 && count < top.count) queue_.push({count, top.pair});
    }
    return std::nullopt;
  }

  static bool has(const Word& word, const Pair& pair) {
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      if (word.symbols[i] == pair.left && word.symbols[i + 1] == pair.right) return true;
    }
    return false;
  }

  void replace(const Merge& merge) {
    std::vector<int32_t> holders = std::move(pairs_[merge.pair].words);
    for (const int32_t index : holders) {
      Word& word = words_[static_cast<size_t>(index)];
      if (!has(word, merge.pair)) continue;
      add_pairs(index, -1);
      size_t kept = 0;
      for (size_t i = 0; i < word.symbols.size(); ++kept) {
        const bool here = i + 1 < word.symbols.size() && word.symbols[i] == merge.pair.left &&
                          word.symbols[i + 1] == merge.pair.right;
        word.symbols[kept] = here ? merge.result : word.symbols[i];
        i += here ? 2 : 1;
      }
      word.symbols.resize(kept);
      add_pairs(index, 1);
    }
    commit_changes();
  }

  std::vector<Word> words_;
  Alphabet& alphabet_;
  std::unordered_map<Pair, Facts, PairHash> pairs_;
  std::unordered_set<Pair, PairHash> merged_;
  std::vector<Pair> changed_;
  std::priority_queue<Entry, std::vector<Entry>, After> queue_;
};

}  // namespace

std::vector<Merge> learn(std::vector<Word> words, Alphabet& alphabet) {
  return Learner(std::move(words), alphabet).run();
}

Merger::Merger(const std::vector<Merge>& merges) {
  rules_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    rules_.try_emplace(merges[i].pair, Rule{static_cast<int32_t>(i), merges[i].result});
  }
}

void Merger::apply(std::vector<Symbol>& word) const {
  struct Candidate {
    int32_t rank;
    int32_t at;  // of the left symbol
    Pair pair;
    Symbol result;
    bool operator<(const Candidate& other) const {  // of a queue: the top is the largest
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr int32_t kNone = -1;
  const auto size = static_cast<int32_t>(word.size());
  // A doubly linked list of the symbols that are left; a merge keeps the place of its left one.
  std::vector<int32_t> before(word.size()), after(word.size());
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    const int32_t right = after[static_cast<size_t>(left)];
    if (right == kNone) return;
    const Pair pair{word[static_cast<size_t>(left)], word[static_cast<size_t>(right)]};
    const auto found = rules_.find(pair);
    if (found == rules_.end()) return;
    queue.push({found->second.rank, left, pair, found->second.result});
  };
  for (int32_t i = 0; i < size; ++i) {
    before[static_cast<size_t>(i)] = i - 1;
    after[static_cast<size_t>(i)] = i + 1 < size ? i + 1 : kNone;
  }
  for (int32_t i = 0; i < size; ++i) consider(i);
  constexpr Symbol kGone = -2;  // merged into the symbol before it
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const auto left = static_cast<size_t>(best.at);
    if (word[left] != best.pair.left || after[left] == kNone) continue;
    const auto right = static_cast<size_t>(after[left]);
    if (word[right] != best.pair.right) continue;
    word[left] = best.result;
    word[right] = kGone;
    after[left] = after[right];
    if (after[left] != kNone) before[static_cast<size_t>(after[left])] = best.at;
    if (before[left] != kNone) consider(before[left]);
    consider(best.at);
  }
  std::erase(word, kGone);
}

void Merger::apply_with_dropout(std::vector<Symbol>& word, float p, RowDraws& draws) const {
  if (word.size() < 2) return;
  // The rule of each symbol and the one after it; null: they do not merge.
  std::vector<const Rule*> rules(word.size() - 1);
  for (size_t i = 0; i < rules.size(); ++i) rules[i] = find(word[i], word[i + 1]);
  while (true) {
    const Rule* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i] == nullptr || draws.short_uniform() < p) continue;
      if (best != nullptr && best->rank <= rules[i]->rank) continue;
      best = rules[i];
      at = i;
    }
    if (best == nullptr) return;
    word[at] = best->result;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    rules.erase(rules.begin() + static_cast<std::ptrdiff_t>(at));
    if (at > 0) rules[at - 1] = find(word[at - 1], word[at]);
    if (at < rules.size()) rules[at] = find(word[at], word[at + 1]);
  }
}

}  // namespace tapestry::bpe
