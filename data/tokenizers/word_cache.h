// The ids of words that came before, for tokenizers that encode a text word by word; private to
// data/tokenizers/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tapestry::tokenizers {

/// A table of a fixed size: each word has one slot, which it takes from the word before. Safe to
/// use from several threads at once, and none waits for another: a reader that meets a writer finds
/// nothing, a writer that meets another one gives up.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 56;  ///< bytes
  static constexpr size_t kMostIds = 14;

  /// A word's entry.
  class Entry {
   public:
    std::span<const int32_t> ids() const { return {ids_.data(), count_}; }
    /// The note that was stored with the ids.
    uint8_t note() const { return note_; }

   private:
    friend class WordCache;
    std::array<int32_t, kMostIds> ids_;
    size_t count_ = 0;
    uint8_t note_ = 0;
  };

  WordCache();

  /// False if the word is not known with this tag, which distinguishes equal words.
  bool find(std::string_view word, uint8_t tag, Entry& entry) const;
  /// Forgets all words and frees their memory. No thread may read or write meanwhile.
  void clear();
  /// Stores the ids; does nothing if they do not fit into a slot.
  void put(std::string_view word, uint8_t tag, std::span<const int32_t> ids, uint8_t note = 0);

  /// Calls use(ids) with the ids of a word; they come from make(ids) if it is new.
  template <class Make, class Use>
  void with(std::string_view word, uint8_t tag, Make make, Use use) {
    Entry entry;
    if (find(word, tag, entry)) return use(entry.ids());
    std::vector<int32_t> ids;
    make(ids);
    put(word, tag, ids);
    use(std::span<const int32_t>(ids));
  }

 private:
  // 16 MB, of which the system provides the used pages.
  static constexpr size_t kSlots = size_t{1} << 17;
  static constexpr size_t kKeyWords = kLongestWord / 8;
  static constexpr size_t kIdWords = kMostIds / 2;

  // All but the sequence is read and written in atomic words between two looks at it: it is odd
  // while a slot is written (a seqlock; Boehm 2012, "Can seqlocks get along with programming
  // language memory models?").
  struct Slot {
    uint64_t sequence;
    uint64_t facts;  // length, number of ids, tag, note, 1; 0: the slot is free
    std::array<uint64_t, kKeyWords> key;
    std::array<uint64_t, kIdWords> ids;
  };
  static_assert(sizeof(Slot) == 128);
  struct Unmap {
    void operator()(Slot* slots) const;
  };

  struct Key;

  std::unique_ptr<Slot[], Unmap> slots_;
};

}  // namespace tapestry::tokenizers
