// Kernels, products, copies and fills go onto the process's stream through put_on_stream(): at
// once, or, while as_graph() (core/cuda/runtime.h) runs, into a list that is launched as one CUDA
// graph. Included by core's CUDA code alone.
//
// A graph is never trusted to be right: the host runs its code as ever, and every piece of work is
// compared with the one that the graph was made from. Kernels and copies whose arguments changed
// get the new ones; anything else that changed means a new graph. So a graph does what launching
// the list would have done.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <type_traits>
#include <vector>

namespace tapestry::cuda::internal {

/// A piece of work for the stream. Never destroyed: it must own nothing.
class Work {
 public:
  /// Puts it on the stream; throws Error(kRuntime).
  virtual void issue() const = 0;
  /// What one graph can serve: the same for works that differ in their arguments alone.
  virtual uint64_t shape() const = 0;
  /// `other` has the same type.
  virtual bool equals(const Work& other) const = 0;
  /// Gives `node`, made from a work of the same type and shape, these arguments. False where there
  /// is no way to, or CUDA refuses.
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

/// Puts what was collected on the stream after all, and collects no more: for what cannot wait.
void stop_collecting();

template <class W>
void put_on_stream(const W& work) {
  static_assert(std::is_trivially_destructible_v<W>);
  collecting == nullptr ? work.issue() : collecting->add(work);
}

/// A copy of `bytes` of `host` in pinned memory, until the list that is being collected has run;
/// null where there is no room.
const void* stage(const void* host, int64_t bytes);

/// Whether CUDA took it. An error is then forgotten.
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
