#include "core/cuda/stream.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda/graph.h"

namespace tapestry::cuda {

using internal::check_status;

Event::Event() {
  cudaEvent_t event = nullptr;
  check_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "stream");
  event_ = event;
}
Event::~Event() { cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }

void Event::record(void* stream) {
  internal::stop_collecting();
  check_status(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)),
               "stream");
}

bool Event::reached() const {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (status == cudaErrorNotReady) return false;
  check_status(status, "stream");
  return true;
}

void Event::hold(void* stream) const {
  internal::stop_collecting();
  check_status(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event_), 0),
      "stream");
}

SideStream::SideStream() {
  int least = 0, most = 0;
  check_status(cudaDeviceGetStreamPriorityRange(&least, &most), "stream");
  cudaStream_t stream = nullptr;
  check_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most), "stream");
  stream_ = stream;
}
SideStream::~SideStream() { cudaStreamDestroy(static_cast<cudaStream_t>(stream_)); }

OnStream::OnStream(void* stream) : before_(std::exchange(internal::other_stream, stream)) {
  check_status(cudaSetDevice(current_device()), "stream");  // CUDA's current device is per thread
}
OnStream::~OnStream() { internal::other_stream = before_; }

}  // namespace tapestry::cuda
