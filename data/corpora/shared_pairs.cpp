#include "data/corpora/shared_pairs.h"

#include <xxhash.h>

#include <atomic>
#include <unordered_map>

#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

uint64_t hash_of(const ParallelCorpus& pairs, int64_t i) {
  const auto source = pairs.source[i], target = pairs.target[i];
  const uint64_t hash = XXH3_64bits(source.data(), source.size_bytes());
  return XXH3_64bits_withSeed(target.data(), target.size_bytes(), hash);
}

}  // namespace

SharedPairs shared_pairs(const ParallelCorpus& held_out, const ParallelCorpus& train) {
  constexpr int64_t kGrain = 1 << 12;
  std::unordered_map<uint64_t, size_t> places;
  for (int64_t i = 0; i < held_out.size(); ++i) places.emplace(hash_of(held_out, i), places.size());
  std::vector<std::atomic<bool>> met(places.size());
  parallel_ranges(train.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto found = places.find(hash_of(train, i));
      if (found != places.end()) met[found->second].store(true, std::memory_order_relaxed);
    }
  });
  SharedPairs shared;
  for (int64_t i = held_out.size() - 1; i >= 0; --i) {
    if (!met[places.at(hash_of(held_out, i))]) continue;
    ++shared.count;
    shared.first = i;
  }
  return shared;
}

}  // namespace tapestry
