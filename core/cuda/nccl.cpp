// core/distributed/device_link.h over NCCL. The library is opened when it is needed, with the types
// of the header that the build found.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/cuda/stream.h"
#include "core/distributed/device_link.h"
#include "core/kernels/tree_add.h"

namespace tapestry {
namespace {

// Every function of NCCL's that is used.
#define TAPESTRY_NCCL(f)                                                                    \
  f(ncclGetUniqueId) f(ncclCommInitRankConfig) f(ncclCommGetAsyncError) f(ncclCommFinalize) \
      f(ncclCommDestroy) f(ncclCommAbort) f(ncclGroupStart) f(ncclGroupEnd) f(ncclSend)     \
          f(ncclRecv) f(ncclAllGather) f(ncclReduceScatter) f(ncclGetErrorString)           \
              f(ncclGetLastError)

struct Nccl {
#define TAPESTRY_MEMBER(name) decltype(&::name) name = nullptr;
  TAPESTRY_NCCL(TAPESTRY_MEMBER)
#undef TAPESTRY_MEMBER
};

#ifdef TAPESTRY_NCCL_LINKED  // the tests' emulation
const Nccl& nccl() {
  static const Nccl functions = [] {
    Nccl linked;
#define TAPESTRY_LINK(name) linked.name = &::name;
    TAPESTRY_NCCL(TAPESTRY_LINK)
#undef TAPESTRY_LINK
    return linked;
  }();
  return functions;
}
#else
const Nccl& nccl() {
  static const Nccl functions = [] {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = dlerror();
      fail(ErrorKind::kConfig, "[nccl] ranks on GPUs need NCCL's library, which does not open: ",
           reason == nullptr ? "" : reason);
    }
    Nccl found;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)> >(dlsym(library, name));
      if (function == nullptr) {
        fail(ErrorKind::kConfig, "[nccl] libnccl.so.2 has no ", name, "; it is too old.");
      }
    };
#define TAPESTRY_FIND(name) find(found.name, #name);
    TAPESTRY_NCCL(TAPESTRY_FIND)
#undef TAPESTRY_FIND
    return found;
  }();
  return functions;
}
#endif

void check_nccl(ncclResult_t result, ncclComm_t comm, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const more = comm == nullptr ? nullptr : nccl().ncclGetLastError(comm);
  fail(ErrorKind::kRuntime, "[nccl] ", what, ": ", nccl().ncclGetErrorString(result),
       more == nullptr || *more == 0 ? "" : "; ", more == nullptr ? "" : more, '.');
}

class NcclLink;

// A GPU's part of an exchange. NCCL puts work on the stream when it likes (blocking = 0), so one
// operation after the other asks until its own is there.
class NcclOperation final : public Operation {
 public:
  NcclOperation(NcclLink& link, Exchange exchange, const Bucket& bucket);

  void begin(Transport&, int) override {}
  bool advance(Transport&) override;
  bool is_reached() const override { return ready_.reached(); }
  bool is_on_its_way() const override { return on_its_way_; }

 private:
  void put_step();
  void add_up();
  // Receive buffer of another rank's piece.
  char* received(const ExchangeStep& step, int place) const {
    const int index = place - (place > step.stage->place ? 1 : 0);
    return static_cast<char*>(scratch_.raw()) + index * step.bytes;
  }

  NcclLink& link_;
  DType dtype_;
  Tensor memory_, scratch_;
  std::vector<ExchangeStep> steps_;
  size_t at_ = 0;
  bool put_ = false, on_its_way_ = false;
  cuda::Event ready_, ended_;
};

class NcclLink final : public DeviceLink {
 public:
  explicit NcclLink(const DeviceLinkOptions& options) : stages_(options.stages) {
    own_sums_ = options.sums == DeviceSums::kNccl;
    check(!own_sums_ || stages_.size() == 1, "nccl", "expected one stage, got ", stages_.size(),
          '.');
    ncclUniqueId id{};
    check(options.id.size() == sizeof id, "nccl", "expected an id of ", sizeof id, " bytes, got ",
          options.id.size(), '.');
    std::memcpy(&id, options.id.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // NCCL would take device 0 if this rank's device were not initialised first.
    cuda::free(cuda::allocate(cuda::current_device(), 1), 1);
    const cuda::OnStream here(side_.get());
    check_nccl(nccl().ncclCommInitRankConfig(&comm_, options.ranks, id, options.rank, &config),
               nullptr, "GPUs do not find each other");
    wait_until_settled(options.timeout_seconds, "GPUs do not find each other");
  }
  ~NcclLink() override { cancel(); }

  std::unique_ptr<Operation> operation(Exchange exchange, const Bucket& bucket) override {
    return std::make_unique<NcclOperation>(*this, exchange, bucket);
  }

  void join() override {
    joined_.record(side_.get());
    joined_.hold(cuda::internal::stream());
  }

  void finish() override {
    if (comm_ == nullptr) return;
    check_nccl(nccl().ncclCommFinalize(comm_), comm_, "GPUs cannot take leave");
    wait_until_settled(kLongestGoodBye, "GPUs cannot take leave");
    check_nccl(nccl().ncclCommDestroy(std::exchange(comm_, nullptr)), nullptr,
               "GPUs cannot take leave");
  }

  void cancel() noexcept override {
    if (comm_ != nullptr) nccl().ncclCommAbort(std::exchange(comm_, nullptr));
  }

  // True if everything given to NCCL is on the stream. Throws Error if something failed.
  bool settled(const char* what) {
    ncclResult_t state = ncclSuccess;
    check(comm_ != nullptr, "nccl", "the GPUs' exchange was ended.");
    check_nccl(nccl().ncclCommGetAsyncError(comm_, &state), comm_, what);
    check_nccl(state, comm_, what);
    return state != ncclInProgress;
  }

  // Operations put their work on the stream one at a time: returns true if it is this one's turn.
  bool take_turn(const Operation* operation) {
    if (turn_ == nullptr) turn_ = operation;
    return turn_ == operation;
  }
  void give_turn() { turn_ = nullptr; }

  ncclComm_t comm() const { return comm_; }
  void* side() const { return side_.get(); }
  const std::vector<Stage>& stages() const { return stages_; }
  bool own_sums() const { return own_sums_; }

 private:
  static constexpr double kLongestGoodBye = 10;  // seconds

  void wait_until_settled(double seconds, const char* what) {
    for (const double start = steady_seconds(); !settled(what);) {
      check(steady_seconds() - start < seconds, "nccl", what, ": nothing came for ", seconds,
            " s.");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::vector<Stage> stages_;
  bool own_sums_ = false;
  cuda::SideStream side_;
  cuda::Event joined_;
  ncclComm_t comm_ = nullptr;
  const Operation* turn_ = nullptr;
};

constexpr const char* kExchange = "the exchange between GPUs failed";

NcclOperation::NcclOperation(NcclLink& link, Exchange exchange, const Bucket& bucket)
    : link_(link),
      dtype_(bucket.dtype),
      memory_(bucket.memory),
      steps_(exchange_steps(exchange, bucket, link.stages())) {
  if (!steps_.front().gathers && !link.own_sums()) {
    const int64_t bytes = steps_.front().others() * steps_.front().bytes;
    // The first stage has the largest pieces. They are allocated here, in the order of the
    // process's stream, and freed when the event behind the last kernel is reached.
    for (const ExchangeStep& step : steps_) {
      check(step.gathers || step.others() * step.bytes <= bytes, "nccl",
            "the pieces of a later stage are larger.");
    }
    scratch_ = Tensor::empty({bytes / size_of(dtype_)}, dtype_, bucket.device);
  }
  ready_.record(cuda::internal::stream());
}

bool NcclOperation::advance(Transport&) {
  while (!on_its_way_) {
    if (!link_.take_turn(this)) return false;
    if (!put_) put_step();
    if (!link_.settled(kExchange)) return false;
    const cuda::OnStream here(link_.side());
    if (!steps_[at_].gathers && !link_.own_sums()) add_up();
    put_ = false;
    if (++at_ < steps_.size()) continue;
    ended_.record(link_.side());
    on_its_way_ = true;
    link_.give_turn();
  }
  link_.settled(kExchange);
  return ended_.reached();
}

void NcclOperation::put_step() {
  const cuda::OnStream here(link_.side());
  const auto stream = static_cast<cudaStream_t>(link_.side());
  const ExchangeStep& step = steps_[at_];
  const auto bytes = static_cast<size_t>(step.bytes);
  if (at_ == 0) ready_.hold(stream);
  put_ = true;
  ncclComm_t comm = link_.comm();
  if (!step.gathers && link_.own_sums()) {
    const ncclDataType_t type = dtype_ == DType::kFloat64 ? ncclFloat64 : ncclFloat32;
    check_nccl(nccl().ncclReduceScatter(step.block, step.own(),
                                        bytes / static_cast<size_t>(size_of(dtype_)), type, ncclSum,
                                        comm, stream),
               comm, kExchange);
    return;
  }
  if (step.gathers && link_.stages().size() == 1) {
    check_nccl(nccl().ncclAllGather(step.own(), step.block, bytes, ncclUint8, comm, stream), comm,
               kExchange);
    return;
  }
  check_nccl(nccl().ncclGroupStart(), comm, kExchange);
  for (int place = 0; place <= step.others(); ++place) {
    if (place == step.stage->place) continue;
    const int rank = step.stage->ranks[static_cast<size_t>(place)];
    check_nccl(nccl().ncclRecv(step.gathers ? step.piece(place) : received(step, place), bytes,
                               ncclUint8, rank, comm, stream),
               comm, kExchange);
    check_nccl(nccl().ncclSend(step.gathers ? step.own() : step.piece(place), bytes, ncclUint8,
                               rank, comm, stream),
               comm, kExchange);
  }
  check_nccl(nccl().ncclGroupEnd(), comm, kExchange);
}

void NcclOperation::add_up() {
  const ExchangeStep& step = steps_[at_];
  dispatch_wide(dtype_, [&](auto type) {
    using T = decltype(type);
    std::vector<const T*> pieces;
    for (int place = 0; place <= step.others(); ++place) {
      char* const piece = place == step.stage->place ? step.own() : received(step, place);
      pieces.push_back(reinterpret_cast<const T*>(piece));
    }
    kernels::tree_add<T>(Cuda{}, pieces, reinterpret_cast<T*>(step.own()),
                         step.bytes / size_of(dtype_));
  });
}

}  // namespace

bool has_device_link() { return true; }

std::string new_device_link_id() {
  ncclUniqueId id{};
  check_nccl(nccl().ncclGetUniqueId(&id), nullptr, "there is no id for the GPUs");
  return {reinterpret_cast<const char*>(&id), sizeof id};
}

std::unique_ptr<DeviceLink> open_device_link(const DeviceLinkOptions& options) {
  return std::make_unique<NcclLink>(options);
}

}  // namespace tapestry
