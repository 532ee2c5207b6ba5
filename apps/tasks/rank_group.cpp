#include "apps/tasks/rank_group.h"

#include "core/base/error.h"

namespace tapestry {

std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += concat(text.size(), ' ', text);
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < packed.size();) {
    const size_t space = packed.find(' ', at);
    const size_t size = std::stoull(packed.substr(at, space - at));
    texts.push_back(packed.substr(space + 1, size));
    at = space + 1 + size;
  }
  return texts;
}

std::vector<std::string> RankGroup::in_order(const std::vector<std::string>& own,
                                             int64_t batches) const {
  if (size() == 1) return own;
  std::vector<std::vector<std::string>> each;
  for (const std::string& packed : communicator_->all_gather(pack(own))) {
    each.push_back(unpack(packed));
  }
  std::vector<std::string> all;
  for (int64_t i = 0; i < batches; ++i) {
    all.push_back(
        std::move(each.at(static_cast<size_t>(i % size())).at(static_cast<size_t>(i / size()))));
  }
  return all;
}

}  // namespace tapestry
