#include "nn/decoding/constraints.h"

#include <algorithm>

namespace tapestry {

bool ConstraintTracker::begins_unmet(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < phrases_->size(); ++i) {
    const std::vector<int32_t>& phrase = (*phrases_)[i];
    if (met_[i] || phrase.size() < tokens.size()) continue;
    if (std::equal(tokens.begin(), tokens.end(), phrase.begin())) return true;
  }
  return false;
}

// The window is no beginning any more: a whole phrase in front of it is met unless the word goes
// on, else another phrase may begin behind its first token.
void ConstraintTracker::drop_front() {
  size_t dropped = 1;
  if (complete_ >= 0) {
    const size_t size = (*phrases_)[static_cast<size_t>(complete_)].size();
    if (!edges_->glues(window_[size - 1], window_[size])) {
      met_[static_cast<size_t>(complete_)] = true;
      dropped = size;
    }
    complete_ = -1;
  }
  before_ = window_[dropped - 1];
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(dropped));
}

void ConstraintTracker::add(int32_t token) {
  window_.push_back(token);
  while (!window_.empty() && (!begins_unmet(window_) || edges_->glues(before_, window_.front()))) {
    drop_front();
  }
  if (window_.empty()) return;
  for (size_t i = 0; i < phrases_->size(); ++i) {
    if (!met_[i] && (*phrases_)[i] == window_) {
      complete_ = static_cast<int64_t>(i);
      return;
    }
  }
}

std::vector<bool> ConstraintTracker::met_at_end() const {
  std::vector<bool> met = met_;
  if (complete_ >= 0) {
    const size_t size = (*phrases_)[static_cast<size_t>(complete_)].size();
    const bool goes_on = size < window_.size() && edges_->glues(window_[size - 1], window_[size]);
    if (!goes_on) met[static_cast<size_t>(complete_)] = true;
  }
  return met;
}

bool ConstraintTracker::all_met() const {
  return std::ranges::all_of(met_at_end(), [](bool met) { return met; });
}

std::vector<size_t> ConstraintTracker::unmet() const {
  const std::vector<bool> met = met_at_end();
  std::vector<size_t> missing;
  for (size_t i = 0; i < met.size(); ++i) {
    if (!met[i]) missing.push_back(i);
  }
  return missing;
}

int64_t ConstraintTracker::tokens() const {
  int64_t count = std::ssize(window_);
  for (size_t i = 0; i < met_.size(); ++i) {
    if (met_[i]) count += std::ssize((*phrases_)[i]);
  }
  return count;
}

std::vector<int32_t> ConstraintTracker::next() const {
  std::vector<int32_t> tokens;
  const bool whole =
      complete_ >= 0 && (*phrases_)[static_cast<size_t>(complete_)].size() == window_.size();
  const int32_t last = window_.empty() ? before_ : window_.back();
  for (size_t i = 0; i < phrases_->size(); ++i) {
    const std::vector<int32_t>& phrase = (*phrases_)[i];
    if (met_[i]) continue;
    if (window_.size() < phrase.size() && !window_.empty() &&
        std::equal(window_.begin(), window_.end(), phrase.begin())) {
      tokens.push_back(phrase[window_.size()]);
    }
    const bool may_begin = (window_.empty() || whole) && static_cast<int64_t>(i) != complete_;
    if (may_begin && !edges_->glues(last, phrase.front())) tokens.push_back(phrase.front());
  }
  std::ranges::sort(tokens);
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

int64_t constraint_tokens(const Phrases& phrases) {
  int64_t count = 0;
  for (const auto& phrase : phrases) count += std::ssize(phrase);
  return count;
}

}  // namespace tapestry
