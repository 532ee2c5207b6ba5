#include "data/scores/entity_scores.h"

#include <algorithm>
#include <string_view>

#include "core/base/error.h"

namespace tapestry {
namespace {

struct Tag {
  char kind = 'O';
  std::string_view type = "_";
};

Tag parsed(std::string_view tag) {
  if (tag.empty()) return {};
  const std::string_view rest = tag.substr(1);
  const size_t hyphen = rest.find('-');
  const std::string_view type = hyphen == rest.npos ? rest : rest.substr(hyphen + 1);
  return {tag[0], type.empty() ? "_" : type};
}

bool is_outside(char kind) { return kind == 'O' || kind == '.'; }

// Whether an entity ends behind the tag `before`, and whether one begins with `tag`.
bool ends_between(const Tag& before, const Tag& tag) {
  const bool closed = before.kind == 'E' || before.kind == 'S';
  const bool open = before.kind == 'B' || before.kind == 'I';
  const bool cut = tag.kind == 'B' || tag.kind == 'S' || tag.kind == 'O';
  return closed || (open && cut) || (!is_outside(before.kind) && before.type != tag.type);
}

bool begins_between(const Tag& before, const Tag& tag) {
  const bool alone = before.kind == 'O' || before.kind == 'E' || before.kind == 'S';
  const bool goes_on = tag.kind == 'I' || tag.kind == 'E';
  return tag.kind == 'B' || tag.kind == 'S' || (goes_on && alone) ||
         (!is_outside(tag.kind) && before.type != tag.type);
}

}  // namespace

std::vector<Entity> entities_of(const std::vector<std::string_view>& tags) {
  std::vector<Entity> entities;
  Tag before;
  before.type = "";  // of no tag
  int64_t begin = 0;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const Tag tag = i < tags.size() ? parsed(tags[i]) : Tag{};
    const auto at = static_cast<int64_t>(i);
    if (ends_between(before, tag)) entities.push_back({std::string(before.type), begin, at - 1});
    if (begins_between(before, tag)) begin = at;
    before = tag;
  }
  return entities;
}

void EntityCounts::add(const std::vector<std::string_view>& truth,
                       const std::vector<std::string_view>& given) {
  check(truth.size() == given.size(), "entities", "expected a tag for each of ", truth.size(),
        " words, got ", given.size(), '.');
  words_ += std::ssize(truth);
  for (size_t i = 0; i < truth.size(); ++i) right_words_ += truth[i] == given[i];
  const std::vector<Entity> own = entities_of(truth), found = entities_of(given);
  for (const Entity& entity : own) ++types_[entity.type].truth;
  for (const Entity& entity : found) {
    Counts& counts = types_[entity.type];
    ++counts.given;
    counts.right += std::ranges::find(own, entity) != own.end();
  }
}

std::map<std::string, double> EntityCounts::metrics() const {
  Counts all;
  for (const auto& [type, counts] : types_) {
    all.right += counts.right;
    all.given += counts.given;
    all.truth += counts.truth;
  }
  return {{"precision", percent(all.right, all.given)},
          {"recall", percent(all.right, all.truth)},
          {"f1", percent(2 * all.right, all.given + all.truth)},
          {"accuracy", percent(right_words_, words_)}};
}

ClassScores EntityCounts::scores() const {
  ClassScores scores;
  for (const auto& [type, counts] : types_) {
    scores.classes.push_back({.name = type,
                              .precision = percent(counts.right, counts.given),
                              .recall = percent(counts.right, counts.truth),
                              .f1 = percent(2 * counts.right, counts.given + counts.truth),
                              .examples = counts.truth});
  }
  return scores;
}

int64_t EntityCounts::entities() const {
  int64_t count = 0;
  for (const auto& [type, counts] : types_) count += counts.truth;
  return count;
}

}  // namespace tapestry
