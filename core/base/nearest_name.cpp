#include "core/base/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace tapestry {
namespace {

/// Edits (insert, delete, replace, swap neighbours) that turn a into b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t replace = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string normalized(std::string name) {
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::set<std::string> words_of(const std::string& name) {
  std::set<std::string> words;
  std::string word;
  for (const char c : name + "_") {
    if (c != '_') {
      word += c;
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

/// "lr" of "learning_rate".
std::string initials_of(const std::string& name) {
  std::string initials;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '_') initials += name[i];
  }
  return initials;
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string wanted = normalized(word);
  std::string best;
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t lengths[] = {wanted.size(), candidate.size()};
    if (std::max(lengths[0], lengths[1]) - std::min(lengths[0], lengths[1]) >= best_distance) {
      continue;  // the lengths differ by more than that
    }
    const size_t distance = edit_distance(wanted, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : candidates) {
    if (initials_of(candidate) == wanted) return candidate;
  }
  const std::set<std::string> words = words_of(wanted);
  if (words.empty()) return "";
  for (const std::string& candidate : candidates) {
    const std::set<std::string> others = words_of(candidate);
    const bool inside = std::includes(others.begin(), others.end(), words.begin(), words.end());
    const bool around = std::includes(words.begin(), words.end(), others.begin(), others.end());
    if (inside || around) return candidate;
  }
  return "";
}

}  // namespace tapestry
