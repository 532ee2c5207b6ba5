// What runs beside the threads of a block on sm_90: barriers that count bytes, copies by TMA,
// products of warpgroups. See bulk_copy.h and warpgroup_mma.h here.
//
// A copy arrives at some later turn of a thread, in an order drawn by Philox. A product is computed
// when it is issued and again when it is waited for: if the two differ, an operand was not there
// yet or was overwritten too soon. Between the two its accumulators hold a NaN of their own.
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bulk_copy.h"
#include "core/base/philox.h"
#include "fibers.h"
#include "warpgroup_mma.h"

namespace tapestry {
extern unsigned char dynamic_shared_bytes[228 * 1024];
}

namespace cuda_emulation {
namespace {

using tapestry::dynamic_shared_bytes;

[[noreturn]] void refuse(const std::string& why) { throw std::logic_error("emulated: " + why); }

// 16-byte chunks within eight rows of `width` bytes are exchanged: bits of the address itself.
uint32_t swizzled(uint32_t address, uint32_t width) {
  const uint32_t chunks = width / 16;
  return chunks <= 1 ? address : address ^ (((address >> 7) & (chunks - 1)) << 4);
}

struct Transfer {
  unsigned expected, pending, phase;
  int64_t bytes;

  void end_phase_if_complete() {
    if (pending > 0 || bytes != 0) return;
    ++phase;
    pending = expected;
    note_progress();
  }
};

struct BoxCopy {
  uint32_t to;
  CUtensorMap map;
  int place[4];
  uint32_t barrier;
};

struct Product {
  float (*c)[4];
  int pieces;
  bool add, transposed_a, transposed_b;
  uint64_t a, b;
  const uint32_t* registers;  // a, if not null
  uint32_t words[4];          // what was in them
  float rows[2][16];          // what that makes, with the other lanes'
  int64_t group;
  std::vector<float> result;
};

struct Thread {
  std::deque<Product> running;
  std::map<float (*)[4], std::vector<float>> values;  // of accumulators that are in use
  int64_t groups = 0;
  bool begun = false;
};

constexpr uint64_t kMark = 0x6d62617272696572;  // what a barrier's memory holds
// What accumulators hold: a signalling NaN, which any arithmetic changes.
constexpr uint32_t kInUse = 0x7f80dead;

std::map<uint32_t, Transfer> transfers;
std::vector<BoxCopy> copies;
Thread threads[1024];
bool threads_are_used = false;
uint64_t draws = 0;

uint64_t draw_below(uint64_t bound) { return tapestry::philox_below({2026, 1, 7}, draws++, bound); }

uint32_t offset_of(const void* shared) {
  const auto* const byte = static_cast<const unsigned char*>(shared);
  if (byte < dynamic_shared_bytes || byte >= dynamic_shared_bytes + sizeof(dynamic_shared_bytes)) {
    refuse("an address that is not in dynamic shared memory");
  }
  return static_cast<uint32_t>(byte - dynamic_shared_bytes);
}

Transfer& transfer_at(uint32_t address) {
  const auto found = transfers.find(address);
  if (found == transfers.end()) refuse("a barrier that was not initialised");
  uint64_t mark;
  std::memcpy(&mark, dynamic_shared_bytes + address, sizeof(mark));
  if (mark != kMark) refuse("a barrier that was overwritten");
  return found->second;
}

void deliver(const BoxCopy& copy) {
  const CUtensorMap& map = copy.map;
  const uint32_t width = map.box[0] * 2;
  for (uint32_t row = 0; row < map.box[1]; ++row) {
    for (uint32_t column = 0; column < map.box[0]; ++column) {
      const int64_t place[4] = {int64_t{copy.place[0]} + column, int64_t{copy.place[1]} + row,
                                copy.place[2], copy.place[3]};
      bool inside = true;
      uint64_t from = 0;
      for (int i = 0; i < 4; ++i) {
        inside = inside && place[i] >= 0 && place[i] < static_cast<int64_t>(map.sizes[i]);
        from += static_cast<uint64_t>(place[i]) * map.strides[i];
      }
      uint16_t element = 0;
      if (inside) std::memcpy(&element, map.data + from, sizeof(element));
      const uint32_t to = swizzled(copy.to + row * width + 2 * column, width);
      std::memcpy(dynamic_shared_bytes + to, &element, sizeof(element));
    }
  }
  Transfer& transfer = transfer_at(copy.barrier);
  transfer.bytes -= map.box[0] * map.box[1] * 2;
  note_progress();
  transfer.end_phase_if_complete();
}

// An operand in shared memory, by the canonical layouts of the PTX ISA.
class Operand {
 public:
  Operand(uint64_t descriptor, bool transposed) : transposed_(transposed) {
    const auto field = [&](int bit) {
      return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
    };
    constexpr uint32_t kWidths[] = {16, 128, 64, 32};
    start_ = field(0), leading_ = field(16), stride_ = field(32);
    width_ = kWidths[descriptor >> 62];
  }

  // Its 16 numbers of row (or column) `line`.
  void read(uint32_t line, float (&numbers)[16]) const {
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t address = swizzled(address_of(line, k), width_);
      if (address + 2 > sizeof(dynamic_shared_bytes)) refuse("an operand beyond shared memory");
      uint16_t bits;
      std::memcpy(&bits, dynamic_shared_bytes + address, sizeof(bits));
      numbers[k] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
  }

 private:
  uint32_t address_of(uint32_t line, uint32_t k) const {
    if (width_ == 16) {  // 8 x 8 matrices
      const uint32_t matrix = start_ + line / 8 * stride_ + k / 8 * leading_;
      return matrix + (transposed_ ? k % 8 * 16 + line % 8 * 2 : line % 8 * 16 + k % 8 * 2);
    }
    if (!transposed_) return start_ + line / 8 * stride_ + line % 8 * width_ + k * 2;
    const uint32_t columns = width_ / 2;
    return start_ + line / columns * leading_ + k / 8 * stride_ + k % 8 * width_ +
           line % columns * 2;
  }

  uint32_t start_, leading_, stride_, width_;
  bool transposed_;
};

std::vector<float> compute(const Product& p) {
  const int lane = thread() % 32, warp = thread() / 32 % 4;
  float left[2][16];
  std::memcpy(left, p.rows, sizeof(left));
  if (p.registers == nullptr) {
    const Operand a(p.a, p.transposed_a);
    for (uint32_t half = 0; half < 2; ++half) {
      a.read(static_cast<uint32_t>(16 * warp + lane / 4) + 8 * half, left[half]);
    }
  }
  const Operand b(p.b, p.transposed_b);
  std::vector<float> result(static_cast<size_t>(p.pieces) * 4);
  for (int piece = 0; piece < p.pieces; ++piece) {
    for (int odd = 0; odd < 2; ++odd) {
      const auto column = static_cast<uint32_t>(8 * piece + 2 * (lane % 4) + odd);
      float right[16];
      b.read(column, right);
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += left[half][k] * right[k];
        result[static_cast<size_t>(4 * piece + 2 * half + odd)] = sum;
      }
    }
  }
  return result;
}

bool all_in_use(const Product& p) {
  for (int i = 0; i < 4 * p.pieces; ++i) {
    if (std::bit_cast<uint32_t>(p.c[i / 4][i % 4]) != kInUse) return false;
  }
  return true;
}

void check_descriptor(uint64_t descriptor) {
  constexpr uint64_t kUnused = ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62);
  if ((descriptor & kUnused) != 0) refuse("a descriptor with bits that mean nothing here");
}

void issue(Product p) {
  Thread& thread = threads[cuda_emulation::thread()];
  threads_are_used = true;
  if (!thread.begun) refuse("a product before begin_products()");
  check_descriptor(p.b);
  if (p.registers == nullptr) check_descriptor(p.a);
  auto& values = thread.values[p.c];
  if (values.empty()) {
    for (int i = 0; i < 4 * p.pieces; ++i) values.push_back(p.c[i / 4][i % 4]);
  } else if (!all_in_use(p)) {
    refuse("accumulators that were changed before the wait");
  }
  for (int i = 0; i < 4 * p.pieces; ++i) p.c[i / 4][i % 4] = std::bit_cast<float>(kInUse);
  p.group = thread.groups;
  p.result = compute(p);
  thread.running.push_back(std::move(p));
}

void retire(Thread& thread) {
  const Product p = std::move(thread.running.front());
  thread.running.pop_front();
  if (!all_in_use(p)) refuse("accumulators that were changed before the wait");
  if (p.registers != nullptr && std::memcmp(p.registers, p.words, sizeof(p.words)) != 0) {
    refuse("a left operand in registers that was changed before the wait");
  }
  const std::vector<float> again = compute(p);
  if (std::memcmp(again.data(), p.result.data(), again.size() * sizeof(float)) != 0) {
    refuse("an operand in shared memory that changed between a product and its wait");
  }
  std::vector<float>& values = thread.values[p.c];
  for (size_t i = 0; i < values.size(); ++i) values[i] = (p.add ? values[i] : 0) + again[i];
  for (const Product& other : thread.running) {
    if (other.c == p.c) return;
  }
  for (int i = 0; i < 4 * p.pieces; ++i) p.c[i / 4][i % 4] = values[static_cast<size_t>(i)];
  thread.values.erase(p.c);
}

}  // namespace

void start_async() {
  transfers.clear();
  copies.clear();
  if (!threads_are_used) return;
  for (Thread& thread : threads) thread = Thread();
  threads_are_used = false;
}

void finish_async() {
  if (!copies.empty()) refuse("a block ended before its copies arrived");
}

void end_of_thread() {
  if (!threads[thread()].running.empty()) refuse("a thread ended before its products");
}

unsigned late_warpgroups() {
  static int turns_to_miss[8];
  if (transfers.empty()) return 0;
  unsigned late = 0;
  for (int i = 0; i < 8; ++i) {
    int& turns = turns_to_miss[i];
    turns = turns > 0 ? turns - 1 : draw_below(16) == 0 ? static_cast<int>(draw_below(50)) : 0;
    if (turns > 0) late |= 1u << i;
  }
  return late;
}

bool deliver_one() {
  if (copies.empty()) return false;
  const auto which = copies.begin() + static_cast<std::ptrdiff_t>(draw_below(copies.size()));
  const BoxCopy copy = *which;
  copies.erase(which);
  deliver(copy);
  return true;
}

void deliver_perhaps() {
  constexpr uint64_t kTurns = 40;
  if (!copies.empty() && draw_below(kTurns) == 0) deliver_one();
}

void issue_product(float (*c)[4], int pieces, uint64_t a, uint64_t b, bool transposed_a,
                   bool transposed_b, bool add) {
  issue({c, pieces, add, transposed_a, transposed_b, a, b, nullptr, {}, {}, 0, {}});
}

void issue_product(float (*c)[4], int pieces, const uint32_t (&a)[4], uint64_t b, bool transposed_b,
                   bool add) {
  Product p{c, pieces, add, false, transposed_b, 0, b, a, {a[0], a[1], a[2], a[3]}, {}, 0, {}};
  using namespace tapestry::warp_emulation;
  const unsigned char* const slots = gather(a);
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 16; ++k) {
      const int word = half + 2 * (k / 8), owner = lane() / 4 * 4 + k % 8 / 2;
      p.rows[half][k] = half_of(of_lane<uint32_t>(slots, owner, sizeof(uint32_t) * word), k % 2);
    }
  }
  issue(std::move(p));
}

void begin_group_of_products() {
  threads_are_used = true;
  threads[thread()].begun = true;
}

void end_group_of_products() {
  ++threads[thread()].groups;
  threads[thread()].begun = false;
}

void wait_for_groups(int left) {
  Thread& thread = threads[cuda_emulation::thread()];
  while (!thread.running.empty() && thread.running.front().group < thread.groups - left) {
    retire(thread);
  }
}

}  // namespace cuda_emulation

namespace tapestry {

using namespace cuda_emulation;

unsigned char* tile_memory() { return dynamic_shared_bytes; }
uint32_t shared_address(const void* shared) { return offset_of(shared); }

void init_barrier(TransferBarrier* barrier, unsigned arrivals) {
  *barrier = kMark;
  transfers[offset_of(barrier)] = {arrivals, arrivals, 0, 0};
}
void arrive(TransferBarrier* barrier) { arrive_expecting(barrier, 0); }
void arrive_expecting(TransferBarrier* barrier, unsigned bytes) {
  Transfer& transfer = transfer_at(offset_of(barrier));
  if (transfer.pending == 0) refuse("more arrivals than a barrier has in a phase");
  transfer.bytes += bytes;
  --transfer.pending;
  note_progress();
  transfer.end_phase_if_complete();
}
void wait_for(TransferBarrier* barrier, unsigned parity) {
  if (parity > 1) refuse("a parity that is neither 0 nor 1");
  const Transfer& transfer = transfer_at(offset_of(barrier));
  if (transfer.phase % 2 != parity) return;
  while (transfer.phase % 2 == parity) give_way();
  note_progress();
}

void copy_box_async(void* shared, const CUtensorMap& map, int c0, int c1, int c2, int c3,
                    TransferBarrier* barrier) {
  if (map.is_map != 1) refuse("a copy without a tensor map");
  const uint32_t to = offset_of(shared);
  // Aligned to the swizzle's pattern, as a descriptor without a base offset has to be, too.
  if (to % (8 * 2 * map.box[0]) != 0) refuse("a copy to an address that is not aligned");
  transfer_at(offset_of(barrier));
  copies.push_back({to, map, {c0, c1, c2, c3}, offset_of(barrier)});
}

void sync_group(int barrier, int threads) { group_barrier(barrier, threads, true); }
void arrive_at_group(int barrier, int threads) { group_barrier(barrier, threads, false); }

}  // namespace tapestry

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  bool fits = rank == 4 && reinterpret_cast<uintptr_t>(bytes) % 16 == 0 &&
              box[0] * 2 == 16u << static_cast<unsigned>(swizzle);
  *map = {bytes, {}, {2}, {}, static_cast<uint32_t>(swizzle), 1, {}};
  for (int i = 0; i < 4; ++i) {
    map->sizes[i] = sizes[i];
    map->box[i] = box[i];
    fits = fits && steps[i] == 1 && sizes[i] > 0 && sizes[i] <= uint64_t{1} << 32 && box[i] > 0 &&
           box[i] <= 256;
    if (i == 0) continue;
    map->strides[i] = strides[i - 1];
    fits = fits && strides[i - 1] % 16 == 0 && strides[i - 1] > 0 &&
           strides[i - 1] < uint64_t{1} << 40;
  }
  return fits && box[2] == 1 && box[3] == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* answer) {
  const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *answer = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
