#include "data/tokenizers/word_cache.h"

#include <sys/mman.h>
#include <xxhash.h>

#include <atomic>
#include <cstring>
#include <new>

namespace tapestry::tokenizers {
namespace {

uint64_t load(const uint64_t& word) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_relaxed);
}
void store(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_relaxed);
}

uint64_t facts_of(size_t length, size_t ids, uint8_t tag, uint8_t note) {
  return uint64_t{1} << 32 | uint64_t{note} << 24 | uint64_t{tag} << 16 | ids << 8 | length;
}

}  // namespace

// A word as a slot has it: filled up with zeros.
struct WordCache::Key {
  explicit Key(std::string_view word, uint8_t tag) : length(word.size()) {
    std::memcpy(words.data(), word.data(), word.size());
    slot = XXH3_64bits_withSeed(word.data(), word.size(), tag) % kSlots;
  }
  size_t used() const { return (length + 7) / 8; }

  std::array<uint64_t, kKeyWords> words{};
  size_t length;
  size_t slot;
};

// Pages of zeros are free slots.
WordCache::WordCache() {
  void* const memory = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  slots_.reset(static_cast<Slot*>(memory));
}

void WordCache::Unmap::operator()(Slot* slots) const { ::munmap(slots, kSlots * sizeof(Slot)); }

void WordCache::clear() { ::madvise(slots_.get(), kSlots * sizeof(Slot), MADV_DONTNEED); }

bool WordCache::find(std::string_view word, uint8_t tag, Entry& entry) const {
  if (word.size() > kLongestWord) return false;
  const Key key(word, tag);
  Slot& slot = slots_[key.slot];
  const std::atomic_ref<uint64_t> sequence(slot.sequence);
  const uint64_t before = sequence.load(std::memory_order_acquire);
  if (before % 2 == 1) return false;
  const uint64_t facts = load(slot.facts);
  const size_t count = facts >> 8 & 0xFF;
  entry.note_ = static_cast<uint8_t>(facts >> 24);
  if (facts != facts_of(key.length, count, tag, entry.note_)) return false;
  for (size_t i = 0; i < key.used(); ++i) {
    if (load(slot.key[i]) != key.words[i]) return false;
  }
  for (size_t i = 0; 2 * i < count; ++i) {
    const uint64_t both = load(slot.ids[i]);
    std::memcpy(&entry.ids_[2 * i], &both, sizeof(both));
  }
  entry.count_ = count;
  std::atomic_thread_fence(std::memory_order_acquire);
  return sequence.load(std::memory_order_relaxed) == before;
}

void WordCache::put(std::string_view word, uint8_t tag, std::span<const int32_t> ids,
                    uint8_t note) {
  if (word.size() > kLongestWord || ids.size() > kMostIds) return;
  const Key key(word, tag);
  Slot& slot = slots_[key.slot];
  const std::atomic_ref<uint64_t> sequence(slot.sequence);
  uint64_t before = sequence.load(std::memory_order_relaxed);
  if (before % 2 == 1 ||
      !sequence.compare_exchange_strong(before, before + 1, std::memory_order_acquire)) {
    return;
  }
  std::atomic_thread_fence(std::memory_order_release);
  store(slot.facts, facts_of(key.length, ids.size(), tag, note));
  for (size_t i = 0; i < key.used(); ++i) store(slot.key[i], key.words[i]);
  for (size_t i = 0; i < ids.size(); i += 2) {
    uint64_t both = 0;
    std::memcpy(&both, &ids[i], std::min<size_t>(2, ids.size() - i) * sizeof(int32_t));
    store(slot.ids[i / 2], both);
  }
  sequence.store(before + 2, std::memory_order_release);
}

}  // namespace tapestry::tokenizers
