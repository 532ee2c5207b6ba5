#include "core/base/error.h"
#include "core/distributed/device_link.h"

namespace tapestry {
namespace {
[[noreturn]] void absent() {
  fail(ErrorKind::kConfig,
       "[nccl] ranks on GPUs need NCCL, and this build was made without its header nccl.h.");
}
}  // namespace

bool has_device_link() { return false; }
std::string new_device_link_id() { absent(); }
std::unique_ptr<DeviceLink> open_device_link(const DeviceLinkOptions&) { absent(); }

}  // namespace tapestry
