// Ranks that measure together: each measures some of the batches, and all receive all results.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "core/distributed/communicator.h"

namespace tapestry {

/// Packs several texts into one, and unpacks them.
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(const std::string& packed);

/// Batch i belongs to rank i % size. The results are put in the order of the batches, so that they
/// do not depend on the number of ranks.
class RankGroup {
 public:
  RankGroup() = default;  ///< a single rank
  /// `communicator` must outlive this.
  explicit RankGroup(Communicator& communicator) : communicator_(&communicator) {}

  bool owns(int64_t batch) const { return batch % size() == rank(); }

  /// The results of all batches, from this rank's own results in their order. All ranks call it.
  std::vector<std::string> in_order(const std::vector<std::string>& own, int64_t batches) const;
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> in_order(const std::vector<T>& own,
                                                                   int64_t batches)
  const {
    std::vector<std::string> texts;
    for (const T& value : own) texts.emplace_back(reinterpret_cast<const char*>(&value), sizeof(T));
    std::vector<T> all;
    for (const std::string& text : in_order(texts, batches)) {
      std::memcpy(&all.emplace_back(), text.data(), sizeof(T));
    }
    return all;
  }
  /// The same for lists of any lengths.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<std::vector<T>> in_order(
      std::vector<std::vector<T>> own, int64_t batches)
  const {
    if (size() == 1) return own;
    std::vector<std::string> texts;
    for (const std::vector<T>& list : own) {
      texts.emplace_back(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
    }
    std::vector<std::vector<T>> all;
    for (const std::string& text : in_order(texts, batches)) {
      all.emplace_back(text.size() / sizeof(T));
      std::memcpy(all.back().data(), text.data(), text.size());
    }
    return all;
  }

 private:
  int rank() const { return communicator_ == nullptr ? 0 : communicator_->rank(); }
  int size() const { return communicator_ == nullptr ? 1 : communicator_->size(); }

  Communicator* communicator_ = nullptr;
};

}  // namespace tapestry
