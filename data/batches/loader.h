// Batches prepared ahead on a background thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/base/prefetcher.h"
#include "data/batches/batching.h"

namespace tapestry {

/// The batches of one process of several that share a walk: of each group of `of` batches it makes
/// `count`, from the `first`-th on, and leaves out the others.
struct Share {
  int64_t first = 0;
  int64_t count = 1;
  int64_t of = 1;
};

/// Any walk through batches (TranslationBatches, BlockBatches, ...) on a background thread: the
/// same batches, the same positions.
template <class Batches>
class Loader {
 public:
  using Batch = decltype(std::declval<Batches&>().next());
  struct Item {
    Batch batch;
    DataPosition position;  ///< after this batch, or its group; a checkpoint stores it
  };

  /// Starts at the position of `batches`. The corpus of `batches` must outlive this.
  explicit Loader(Batches batches, size_t depth = 4) : Loader(std::move(batches), Share(), depth) {}
  /// Loads a share of the batches; the walk begins with a group.
  Loader(Batches batches, const Share& share, size_t depth = 4)
      : batches_(std::move(batches)),
        share_(share),
        position_(batches_.position()),
        queue_([this] { return produce(); }, depth) {
    check(share.first >= 0 && share.count >= 1 && share.first + share.count <= share.of, "data",
          "a share must be some of its group, got ", share.count, " from ", share.first, " of ",
          share.of, '.');
  }
  /// The same from the arguments of Batches. Throws errors of the first epoch's plan.
  template <class... Args>
  requires std::constructible_from<Batches, const Args&...>
  explicit Loader(const Args&... args) : Loader(Batches(args...)) {}

  /// Blocks until the next batch is ready.
  Item next() {
    Item item = queue_.next();
    position_ = item.position;
    return item;
  }
  /// After the batch returned last: a loader that starts here continues with the next one.
  DataPosition position() const { return position_; }

 private:
  Item produce() {
    if (made_ == 0) batches_.skip(share_.first);
    Batch batch = batches_.next();
    if (++made_ == share_.count) {
      batches_.skip(share_.of - share_.first - share_.count);
      made_ = 0;
    }
    return {std::move(batch), batches_.position()};
  }

  // Used only by the queue's thread.
  Batches batches_;
  const Share share_;
  int64_t made_ = 0;  // of the group
  DataPosition position_;
  Prefetcher<Item> queue_;
};

using TranslationLoader = Loader<TranslationBatches>;

}  // namespace tapestry
