#include "data/files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

namespace tapestry {
namespace {

// A table of a fixed size, which a signal handler may read. A file beyond it is only not named.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<const char*> begin = nullptr;  // null: not filled in yet
  std::atomic<size_t> bytes = 0;
  std::atomic<const char*> path = nullptr;
};
std::array<Slot, 64> slots;
static_assert(std::atomic<const char*>::is_always_lock_free);

int take_slot(const char* begin, size_t bytes, const char* path) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].taken.exchange(true)) continue;
    slots[i].bytes = bytes;
    slots[i].path = path;
    slots[i].begin = begin;
    return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

MappedFile::MappedFile(int descriptor, int64_t bytes, std::string path)
    : path_(std::move(path)), bytes_(static_cast<size_t>(bytes)) {
  void* const data = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return;
  data_ = static_cast<const char*>(data);
  slot_ = take_slot(data_, bytes_, path_.c_str());
}

MappedFile::~MappedFile() {
  if (slot_ >= 0) {
    Slot& slot = slots[static_cast<size_t>(slot_)];
    slot.begin = nullptr;
    slot.taken = false;
  }
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), bytes_);
}

void MappedFile::release(const void* begin, const void* end) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = static_cast<size_t>(static_cast<const char*>(begin) - data_) / page * page;
  const size_t last = static_cast<size_t>(static_cast<const char*>(end) - data_);
  if (last > first) ::madvise(const_cast<char*>(data_) + first, last - first, MADV_DONTNEED);
}

const char* mapped_file_of(const void* address) noexcept {
  for (const Slot& slot : slots) {
    const char* const begin = slot.begin;
    if (begin != nullptr && address >= begin && address < begin + slot.bytes) return slot.path;
  }
  return nullptr;
}

}  // namespace tapestry
