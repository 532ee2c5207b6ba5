// put_on_stream() puts kernels, products, copies and fills on the process's stream. While
// as_graph() (core/cuda/runtime.h) runs, it collects them in a list, which is launched as one CUDA
// graph. Only core's CUDA code includes this file.
//
// A graph is never assumed to be still right. The host code runs in full each time, and every piece
// of work is compared with the one that the graph was made from. If only arguments of kernels and
// copies changed, the graph gets the new arguments; after any other change a new graph is made. So
// a graph always does the work of the list.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <type_traits>
#include <vector>

#include "core/shapes_only.h"

namespace tapestry::cuda::internal {

/// A piece of work for the stream. It is never destroyed, so it must own nothing.
class Work {
 public:
  /// Puts the work on the stream. Throws Error(kRuntime).
  virtual void issue() const = 0;
  /// A hash of all but the arguments: works of the same shape can share a graph.
  virtual uint64_t shape() const = 0;
  /// True if `other`, of the same type, is the same work.
  virtual bool equals(const Work& other) const = 0;
  /// Gives these arguments to `node`, which was made from a work of the same type and shape.
  /// Returns false if that is impossible or CUDA refuses.
  virtual bool update(cudaGraphExec_t graph, cudaGraphNode_t node) const = 0;

 protected:
  ~Work() = default;
};

/// Adds `part` to a hash.
inline uint64_t mix(uint64_t hash, uint64_t part) {
  return (std::rotl(hash, 5) ^ part) * 0x9e3779b97f4a7c15u;
}

class WorkList {
 public:
  template <class W>
  void add(const W& work) {
    works_.push_back(new (memory_.allocate(sizeof(W), alignof(W))) W(work));
  }
  const std::vector<const Work*>& works() const { return works_; }
  void issue() const;
  uint64_t shape() const;
  void clear();

 private:
  std::pmr::monotonic_buffer_resource memory_{1 << 16};
  std::vector<const Work*> works_;
};

/// The list that this thread collects into; null: work goes to the stream at once.
inline thread_local WorkList* collecting = nullptr;

/// Puts the collected work on the stream now and stops collecting. Needed by calls that cannot wait
/// until as_graph() returns.
void stop_collecting();

template <class W>
void put_on_stream(const W& work) {
  static_assert(std::is_trivially_destructible_v<W>);
  if (ShapesOnly::is_on()) return;
  collecting == nullptr ? work.issue() : collecting->add(work);
}

/// Copies `bytes` of `host` to pinned memory and returns that copy, which is valid until the list
/// being collected has run. Returns null if there is no room.
const void* stage(const void* host, int64_t bytes);

/// True if `status` is a success; otherwise clears CUDA's last error.
bool accepted(int status);

class Copy final : public Work {
 public:
  Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind)
      : to_(to), from_(from), bytes_(static_cast<size_t>(bytes)), kind_(kind) {}
  void issue() const override;
  uint64_t shape() const override { return mix(bytes_, kind_); }
  bool equals(const Work& other) const override;
  bool update(cudaGraphExec_t graph, cudaGraphNode_t node) const override;

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
  cudaMemcpyKind kind_;
};

class FillZero final : public Work {
 public:
  FillZero(void* block, int64_t bytes) : block_(block), bytes_(static_cast<size_t>(bytes)) {}
  void issue() const override;
  uint64_t shape() const override { return bytes_; }
  bool equals(const Work& other) const override;
  bool update(cudaGraphExec_t, cudaGraphNode_t) const override { return false; }

 private:
  void* block_;
  size_t bytes_;
};

}  // namespace tapestry::cuda::internal
