#include "core/distributed/transport_mpi.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/base/error.h"
#include "core/distributed/mpi_module.h"

namespace tapestry {
namespace {

const TapestryMpi* mpi = nullptr;

// A number in the environment; 0 without one.
int64_t number_of(const char* variable) {
  const char* const text = getenv(variable);
  return text == nullptr ? 0 : std::atoll(text);
}

std::string text_of(void (*function)(char*, int)) {
  std::array<char, 512> text{};
  function(text.data(), static_cast<int>(text.size()));
  return text.data();
}

void check_mpi(int error, const char* what) {
  if (error == 0) return;
  std::array<char, 512> text{};
  mpi->message(error, text.data(), static_cast<int>(text.size()));
  fail(ErrorKind::kRuntime, "[mpi] ", what, ": ", text.data(), '.');
}

// "Open MPI v4.1.4, package: ..." and "MPICH Version: 4.0.2 ..." in a few words.
std::string short_name(const std::string& version) {
  const std::string first = version.substr(0, version.find_first_of(",\n"));
  std::string name;
  for (const char c : first) {
    if (c == 'v' && !name.empty() && name.back() == ' ') continue;
    name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return name;
}

struct MpiRequest final : Transport::Request {
  void* handle = nullptr;
  int64_t expected = -1;  // bytes of a receive
  int from = 0;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    check_mpi(mpi->start(&rank_, &size_), "MPI does not start");
    host_ = text_of(mpi->host);
    const int64_t started = std::max(number_of("SLURM_STEP_NUM_TASKS"), number_of("PMI_SIZE"));
    if (size_ == 1 && started > 1) {
      fail(ErrorKind::kConfig, "[mpi] the launcher started ", started,
           " processes, which do not find each other: MPI sees one. With Slurm: srun --mpi=pmix.");
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }
  std::string library() const override { return short_name(text_of(mpi->library)); }

  RequestPtr send(int to, int tag, const void* data, int64_t bytes) override {
    auto request = std::make_unique<MpiRequest>();
    check_mpi(mpi->send(to, tag, data, bytes, &request->handle), "a message cannot be sent");
    return request;
  }
  RequestPtr receive(int from, int tag, void* data, int64_t bytes) override {
    auto request = std::make_unique<MpiRequest>();
    request->expected = bytes;
    request->from = from;
    check_mpi(mpi->receive(from, tag, data, bytes, &request->handle),
              "a message cannot be received");
    return request;
  }
  bool done(Request& any) override {
    auto& request = static_cast<MpiRequest&>(any);
    int done = 0;
    int64_t got = 0;
    check_mpi(mpi->test(request.handle, &done, &got), "a message failed");
    if (done == 0) return false;
    check(request.expected < 0 || got == request.expected, "mpi", "expected ", request.expected,
          " bytes from rank ", request.from, ", got ", got, '.');
    return true;
  }

  void finish() override { check_mpi(mpi->finish(), "MPI does not finish"); }
  void end_job(int code) noexcept override { mpi->end_job(code); }

 private:
  int rank_ = 0, size_ = 1;
  std::string host_;
};

std::filesystem::path folder_of_executable() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace

bool launched_with_others() {
  if (const int64_t ranks = number_of("OMPI_COMM_WORLD_SIZE"); ranks > 0) return ranks > 1;
  if (number_of("SLURM_STEP_NUM_TASKS") == 1) return false;  // whatever else srun sets
  return getenv("PMIX_RANK") != nullptr || number_of("PMI_SIZE") > 1 ||
         number_of("SLURM_STEP_NUM_TASKS") > 1;
}

void load_mpi() {
  if (mpi != nullptr) return;
  // Two large messages that cross on one connection would go one after the other: with the default
  // flags bulk data delays the other message's control messages. And MPI must not bind to a core.
  setenv("OMPI_MCA_btl_tcp_flags", "1", /*overwrite=*/0);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", /*overwrite=*/0);
  const std::filesystem::path beside = folder_of_executable();
  std::string reasons;
  for (const std::filesystem::path& folder : {beside, beside / TAPESTRY_MODULES}) {
    const std::string path = folder / "libtapestry_mpi.so";
    // Global: MPI opens parts of itself that look for its symbols.
    void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
      const char* const reason = dlerror();
      reasons += concat("\n  ", reason == nullptr ? "" : reason);
      continue;
    }
    const auto* const table = static_cast<const TapestryMpi*>(dlsym(module, TAPESTRY_MPI_TABLE));
    if (table != nullptr && table->version == TAPESTRY_MPI_VERSION) {
      mpi = table;
      return;
    }
    reasons += concat("\n  ", path, " is of another build");
  }
  fail(ErrorKind::kConfig,
       "[mpi] a launcher started this process as one of several, and the module that speaks MPI "
       "does not open (install libopenmpi-dev, configure with TAPESTRY_MPI=ON, build):",
       reasons);
}

std::unique_ptr<Transport> open_mpi() {
  check(mpi != nullptr, "mpi", "open_mpi() before load_mpi().");
  return std::make_unique<MpiTransport>();
}

}  // namespace tapestry
