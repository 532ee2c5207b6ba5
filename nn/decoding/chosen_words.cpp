#include "nn/decoding/chosen_words.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/cpu/parallel.h"
#include "core/dispatch.h"

namespace tapestry {

void ChosenWords::add(const std::vector<int64_t>& sentences) {
  rows_.insert(rows_.end(), sentences.begin(), sentences.end());
  gather();
}

void ChosenWords::select(const std::vector<int32_t>& rows) {
  std::vector<int64_t> selected;
  selected.reserve(rows.size());
  for (const int32_t row : rows) selected.push_back(rows_[static_cast<size_t>(row)]);
  rows_ = std::move(selected);
}

void ChosenWords::gather() {
  std::vector<int64_t> sentences = rows_;
  std::ranges::sort(sentences);
  sentences.erase(std::ranges::unique(sentences).begin(), sentences.end());
  const int64_t vocab = classifier_.weight.size();
  std::vector<int32_t> place(static_cast<size_t>(vocab), -1);
  for (const int64_t sentence : sentences) {
    const std::vector<int32_t>& list = lists_.at(static_cast<size_t>(sentence));
    check(!list.empty() && list.front() >= 0 && list.back() < vocab, "shortlist",
          "expected tokens in [0, ", vocab, ") for sentence ", sentence, '.');
    for (const int32_t token : list) place[static_cast<size_t>(token)] = 0;
  }
  std::vector<int32_t> tokens;
  for (int64_t token = 0; token < vocab; ++token) {
    int32_t& at = place[static_cast<size_t>(token)];
    if (at < 0) continue;
    at = static_cast<int32_t>(tokens.size());
    tokens.push_back(static_cast<int32_t>(token));
  }
  places_.clear();
  for (const int64_t sentence : sentences) {
    std::vector<int32_t>& places = places_[sentence];
    for (const int32_t token : lists_[static_cast<size_t>(sentence)]) {
      places.push_back(place[static_cast<size_t>(token)]);
    }
  }
  if (!part_.empty() && tokens == tokens_) return;
  tokens_ = std::move(tokens);
  part_.assign(1, classifier_.rows(tokens_));
}

std::vector<std::span<const int32_t>> ChosenWords::places_of_rows() const {
  std::vector<std::span<const int32_t>> places;
  places.reserve(rows_.size());
  for (const int64_t sentence : rows_) places.emplace_back(places_.at(sentence));
  return places;
}

std::vector<int32_t> ChosenWords::places_of(const std::vector<int32_t>& tokens) const {
  std::vector<int32_t> places;
  for (const int32_t token : tokens) {
    const auto found = std::ranges::lower_bound(tokens_, token);
    if (found == tokens_.end() || *found != token) continue;
    places.push_back(static_cast<int32_t>(found - tokens_.begin()));
  }
  return places;
}

Tensor ChosenWords::logits(const Var& hidden) const {
  const Tensor some = part_.at(0)(hidden).value().to(Device{});
  const Tensor found = some.to(wider(some.dtype()));
  const int64_t rows = std::ssize(rows_), width = gathered(), vocab = classifier_.weight.size();
  const auto places = places_of_rows();
  Tensor all = Tensor::empty({rows, vocab}, found.dtype());
  parallel_for(rows, [&](int64_t r) {
    dispatch_wide(found.dtype(), [&](auto type) {
      using T = decltype(type);
      const T* const from = found.data<T>() + r * width;
      T* const to = all.data<T>() + r * vocab;
      std::fill_n(to, vocab, -std::numeric_limits<T>::infinity());
      for (const int32_t place : places[static_cast<size_t>(r)]) {
        to[tokens_[static_cast<size_t>(place)]] = from[place];
      }
    });
  });
  return all;
}

Tensor ChosenWords::best(const Var& hidden, int64_t count,
                         const std::vector<int32_t>& banned) const {
  const auto places = places_of_rows();
  Tensor top = part_.at(0).best(hidden, count, places_of(banned), places);
  double* pairs = top.data<double>();
  for (size_t r = 0; r < rows_.size(); ++r, pairs += 1 + 2 * count) {
    for (int64_t k = 0; k < count; ++k) {
      double& token = pairs[1 + 2 * k];
      if (token >= 0) token = tokens_[static_cast<size_t>(token)];
    }
  }
  return top;
}

Tensor ChosenWords::largest(const Var& hidden, const std::vector<int32_t>& banned) const {
  const auto places = places_of_rows();
  Tensor largest = part_.at(0).largest(hidden, places_of(banned), places);
  for (size_t r = 0; r < rows_.size(); ++r) {
    int32_t& token = largest.data<int32_t>()[r];
    if (token >= 0) token = tokens_[static_cast<size_t>(token)];
  }
  return largest;
}

}  // namespace tapestry
