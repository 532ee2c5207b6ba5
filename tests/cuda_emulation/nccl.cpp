#include "nccl.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/distributed/transport_local.h"

using tapestry::LocalJob;
using tapestry::Transport;

// Ranks that came with one id.
struct World {
  explicit World(int ranks)
      : job({.hosts = std::vector<std::string>(static_cast<size_t>(ranks), "gpu"),
             .longest_delay_seconds = 0.001,
             .seed = 9}),
        missing(ranks) {}
  LocalJob job;
  std::atomic<int> missing;
};

struct ncclComm {
  std::shared_ptr<World> world;
  std::unique_ptr<Transport> transport;
  cuda_emulation::NcclFaults faults;
  int exchanges = 0;
  int in_progress = 0;  // so often it will still be
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);

  int rank() const { return transport->rank(); }
  int ranks() const { return transport->size(); }
};

namespace {

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
std::atomic<int> ids{0}, aborts{0};

struct Call {
  bool sends;
  void* data;
  size_t bytes;
  int other;
};
thread_local int depth = 0;
thread_local std::vector<Call> group;
thread_local ncclComm_t group_comm = nullptr;
thread_local cudaStream_t group_stream = nullptr;

size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8; }

// Messages of a group that are under way once the stream has come to it.
struct Messages {
  std::vector<Transport::RequestPtr> requests;
  bool begun = false;

  bool advance(Transport& transport, const std::vector<Call>& calls) {
    if (!begun) {
      for (const Call& call : calls) {
        const auto bytes = static_cast<int64_t>(call.bytes);
        requests.push_back(call.sends ? transport.send(call.other, 0, call.data, bytes)
                                      : transport.receive(call.other, 0, call.data, bytes));
      }
      begun = true;
    }
    std::erase_if(requests, [&](const auto& request) { return transport.done(*request); });
    return requests.empty();
  }
};

// Puts the calls on the stream, and then `after`.
ncclResult_t put(ncclComm_t comm, cudaStream_t stream, std::vector<Call> calls,
                 std::function<void()> after = nullptr) {
  if (comm->faults.broken_rank == comm->rank() && comm->exchanges > 0) return ncclSystemError;
  ++comm->exchanges;
  comm->in_progress = 2;
  cuda_emulation::put_on(stream, [comm, aborted = comm->aborted, calls = std::move(calls), after,
                                  messages = std::make_shared<Messages>()] {
    if (*aborted) return true;
    if (!messages->advance(*comm->transport, calls)) return false;
    if (after) after();
    return true;
  });
  return ncclInProgress;
}

template <class T>
void add_in_turn(const T* all, const T* others, T* own, size_t count, int rank, int ranks) {
  // From the next rank on, as a ring does: another order for each owner.
  std::vector<T> sum(others, others + count);
  for (int k = 1; k < ranks - 1; ++k) {
    for (size_t i = 0; i < count; ++i) sum[i] += others[static_cast<size_t>(k) * count + i];
  }
  for (size_t i = 0; i < count; ++i) own[i] = sum[i] + all[static_cast<size_t>(rank) * count + i];
}

}  // namespace

namespace cuda_emulation {
NcclFaults nccl_faults;
int nccl_aborts() { return aborts; }
}  // namespace cuda_emulation

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::string text = std::to_string(++ids);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;  // ranks of one process would hang
  const std::lock_guard lock(worlds_mutex);
  std::shared_ptr<World>& world = worlds[id.internal];
  if (!world) world = std::make_shared<World>(ranks);
  *comm = new ncclComm{world, world->job.open(rank), cuda_emulation::nccl_faults};
  if ((*comm)->faults.cut_off_rank == rank) world->job.cut_off(rank);
  --world->missing;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclSuccess;
  if (comm->world->missing > 0 || --comm->in_progress > 0) *error = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ++aborts;
  *comm->aborted = true;  // and left, for the queue that still knows it
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || group.empty()) return ncclSuccess;
  return put(group_comm, group_stream, std::exchange(group, {}));
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  if (depth == 0) return ncclInvalidUsage;
  group.push_back({true, const_cast<void*>(data), count * size_of(type), to});
  group_comm = comm, group_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  if (depth == 0) return ncclInvalidUsage;
  group.push_back({false, data, count * size_of(type), from});
  group_comm = comm, group_stream = stream;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* own, void* all, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  auto* const to = static_cast<char*>(all);
  std::vector<Call> calls;
  for (int r = 0; r < comm->ranks(); ++r) {
    if (r == comm->rank()) continue;
    calls.push_back({false, to + static_cast<size_t>(r) * bytes, bytes, r});
    calls.push_back({true, const_cast<void*>(own), bytes, r});
  }
  return put(comm, stream, std::move(calls));
}

ncclResult_t ncclReduceScatter(const void* all, void* own, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * size_of(type);
  const int rank = comm->rank(), ranks = comm->ranks();
  const auto others = std::make_shared<std::vector<char>>(bytes * static_cast<size_t>(ranks - 1));
  std::vector<Call> calls;
  for (int k = 1; k < ranks; ++k) {
    const int from = (rank + k) % ranks;
    calls.push_back({false, others->data() + static_cast<size_t>(k - 1) * bytes, bytes, from});
    auto* const piece = static_cast<const char*>(all) + static_cast<size_t>(from) * bytes;
    calls.push_back({true, const_cast<char*>(piece), bytes, from});
  }
  return put(comm, stream, std::move(calls), [=] {
    if (type == ncclFloat32) {
      add_in_turn(static_cast<const float*>(all), reinterpret_cast<float*>(others->data()),
                  static_cast<float*>(own), count, rank, ranks);
    } else {
      add_in_turn(static_cast<const double*>(all), reinterpret_cast<double*>(others->data()),
                  static_cast<double*>(own), count, rank, ranks);
    }
  });
}

const char* ncclGetErrorString(ncclResult_t) { return "an emulated error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
