// Buckets in the memory of GPUs travel without the host: over NCCL, from GPU to GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/distributed/operations.h"

namespace tapestry {

/// How gradients of several GPUs are added up.
enum class DeviceSums {
  kTree,  ///< kernels::tree_add: the bits of any number of ranks
  kNccl,  ///< NCCL, in an order of its own, which another number of ranks changes
};

/// The GPUs of all ranks. Operations begin in the order of their making, on a stream beside that
/// of the process.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  /// Call from the training thread; its earlier work on the stream comes first. The operation needs
  /// no transport; is_on_its_way() is true when all of it is on the stream.
  virtual std::unique_ptr<Operation> operation(Exchange exchange, const Bucket& bucket) = 0;
  /// Call from the training thread; its later work on the stream comes after all started
  /// operations. The host does not wait.
  virtual void join() = 0;
  /// Closes the link together with the other ranks, after the last operation.
  virtual void finish() = 0;
  /// Aborts all unfinished work on the GPU.
  virtual void cancel() noexcept = 0;
};

struct DeviceLinkOptions {
  int rank = 0, ranks = 1;
  std::string id;  ///< new_device_link_id() of rank 0
  std::vector<Stage> stages;
  DeviceSums sums = DeviceSums::kTree;
  double timeout_seconds = 60;  ///< for all ranks to come
};

/// True if this build was made with nccl.h.
bool has_device_link();
/// Opens libnccl.so.2. Throws Error(kConfig) if it is missing.
std::string new_device_link_id();
/// Waits for all ranks. Throws Error when one does not come, or when two have the same GPU.
std::unique_ptr<DeviceLink> open_device_link(const DeviceLinkOptions& options);

}  // namespace tapestry
