// One launch over many tensors, as tensor_list.h does on the CPU. Only .cu files include this.
//
// The table of tensors is a parameter of the kernel: nothing is uploaded, so the host never waits,
// and a captured graph keeps the table. Tensors that do not fit go into another launch.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// Elements of one tensor for one block. Every tensor is cut from its own beginning, so that chunks
/// are aligned like their tensor.
inline constexpr int64_t kTensorChunk = 4096;

/// `Entry` has a member n, its number of elements.
template <class Entry>
struct TensorTable {
  // A kernel's parameters are at most 4 KB; the table shares them with others.
  static constexpr int kCapacity =
      static_cast<int>((4096 - 256) / (sizeof(Entry) + sizeof(int64_t)));

  int count = 0;
  int64_t first_chunk[kCapacity + 1] = {0};  ///< of each entry, and the number of all chunks
  Entry entries[kCapacity];

  int64_t chunks() const { return first_chunk[count]; }
  void push(const Entry& entry) {
    entries[count] = entry;
    first_chunk[count + 1] = first_chunk[count] + (entry.n + kTensorChunk - 1) / kTensorChunk;
    ++count;
  }
};

/// The block's chunk: elements [begin, end) of one entry.
struct TensorChunk {
  int entry;
  int64_t begin, end;

  template <class Entry>
  __device__ explicit TensorChunk(const TensorTable<Entry>& table) {
    const int64_t chunk = blockIdx.x;
    int low = 0, high = table.count;  // finds the last entry that begins at this chunk or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (table.first_chunk[middle] <= chunk ? low : high) = middle;
    }
    entry = low;
    begin = (chunk - table.first_chunk[low]) * kTensorChunk;
    const int64_t n = table.entries[low].n;
    end = begin + kTensorChunk < n ? begin + kTensorChunk : n;
  }

  /// Calls f(begin of the pack) for the thread's packs of N elements.
  template <int N, class F>
  __device__ void each_pack(F f) const {
    for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * N; i + N <= end;
         i += static_cast<int64_t>(blockDim.x) * N) {
      f(i);
    }
  }
  /// Calls f(index) for the thread's part of the last elements, which fill no pack of N.
  template <int N, class F>
  __device__ void each_left(F f) const {
    const int64_t i = begin + (end - begin) / N * N + threadIdx.x;
    if (i < end) f(i);
  }
};

/// Fills tables with make_entry(item) for the items that have elements, and calls run(table) for
/// each.
template <class Entry, class Items, class MakeEntry, class Run>
void for_each_table(const Items& items, MakeEntry make_entry, Run run) {
  TensorTable<Entry> table;
  for (const auto& item : items) {
    if (item.n == 0) continue;
    table.push(make_entry(item));
    if (table.count < TensorTable<Entry>::kCapacity) continue;
    run(table);
    table.count = 0;
  }
  if (table.count > 0) run(table);
}

}  // namespace tapestry
