// Streams and events. A stream without a priority is the calling thread; one with a priority is a
// queue, in which a piece of work may have to wait for others. Whoever asks for an event works on
// the queue.
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "cuda_runtime_api.h"

struct CUstream_st {
  std::mutex mutex;
  std::deque<std::function<bool()>> queue;

  void push(std::function<bool()> work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
  }
  void advance() {
    const std::lock_guard lock(mutex);
    while (!queue.empty() && queue.front()()) queue.pop_front();
  }
};

// A place in a stream.
struct Place {
  std::atomic<bool> reached = false;
  std::chrono::steady_clock::time_point time;

  bool reach() {
    time = std::chrono::steady_clock::now();
    return reached = true;
  }
};

struct CUevent_st {
  // Of the last record, with the stream that has to come to it.
  std::shared_ptr<Place> place;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

void put_on(cudaStream_t stream, std::function<bool()> work) {
  if (stream != nullptr) return stream->push(std::move(work));
  while (!work()) std::this_thread::yield();
}

}  // namespace cuda_emulation

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = new CUstream_st, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->advance();
  return delete stream, cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->place = std::make_shared<Place>();
  if (stream == nullptr) return event->place->reach(), cudaSuccess;
  stream->push([place = event->place] { return place->reach(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->place == nullptr) return cudaSuccess;  // never recorded
  if (event->stream != nullptr && !event->place->reached) event->stream->advance();
  return event->place->reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  while (cudaEventQuery(event) == cudaErrorNotReady) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream == nullptr) return cudaEventSynchronize(event);
  if (event->place == nullptr) return cudaSuccess;
  stream->push([place = event->place] { return place->reached.load(); });
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->place == nullptr || end->place == nullptr) return cudaErrorInvalidValue;
  if (!begin->place->reached || !end->place->reached) return cudaErrorNotReady;
  const std::chrono::duration<float, std::milli> between = end->place->time - begin->place->time;
  return *milliseconds = between.count(), cudaSuccess;
}
