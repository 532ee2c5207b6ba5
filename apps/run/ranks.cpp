#include "apps/run/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>
#include <thread>

#include "apps/checkpoint/bytes.h"
#include "apps/run/signals.h"
#include "apps/tasks/rank_group.h"
#include "core/base/clock.h"
#include "core/base/printable.h"
#include "core/cpu/cores.h"
#include "core/distributed/transport_mpi.h"

namespace tapestry {
namespace {

// If all ranks fail alike, this is enough time for rank 0 to print its message and to end the
// others. The launcher sends SIGTERM, which only sets a flag here, and a second later SIGKILL.
void wait_for_rank_0() {
  constexpr double kAfterRank0 = 1, kUntilKilled = 5;
  constexpr std::chrono::milliseconds kPause{10};
  const double begin = steady_seconds();
  const auto limit = [] { return pending_signal() == SIGTERM ? kUntilKilled : kAfterRank0; };
  while (steady_seconds() < begin + limit()) std::this_thread::sleep_for(kPause);
}

// A string that travels is in memory twice.
constexpr int64_t kBytesAtATime = int64_t{1} << 26;

// The rank in the launcher's environment variables, before MPI has started.
int rank_of_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = getenv(name)) return std::atoi(text);
  }
  return 0;
}

void tell(const std::string& line) { std::cerr << printable(line) + '\n' << std::flush; }

}  // namespace

std::string bytes_of(const std::vector<double>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

std::vector<double> numbers_of(const std::string& bytes) {
  check(bytes.size() % sizeof(double) == 0, "ranks", "expected numbers from a rank, got ",
        bytes.size(), " bytes.");
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::string program_checksum() { return checksum_of(open_source("/proc/self/exe")); }

Ranks::Ranks() : communicator_(std::make_unique<Communicator>()) {}
Ranks::~Ranks() = default;

void Ranks::join(const DistributedOptions& options) {
  const bool launched = launched_with_others();
  if (options.engine == "mpi" && !launched) {
    tapestry::fail(ErrorKind::kConfig,
                   "[train] distributed.engine is mpi, but no launcher started this process: "
                   "mpirun -np RANKS tapestry train ..., or distributed.engine=auto.");
  }
  if (options.engine == "none" || !launched) return;
  load_mpi();
  // The communicator's thread reports on stderr; there is no log yet, and it outlives the later
  // one.
  communicator_ = std::make_unique<Communicator>(
      open_mpi, CommunicatorOptions{.timeout_seconds = options.timeout_seconds,
                                    .heartbeat_seconds = std::min(2., options.timeout_seconds / 5),
                                    .report = [](const std::string& message) {
                                      tell(concat("warning: ", message));
                                    }});
}

void Ranks::leave() { communicator_->finish(); }

int Ranks::fail(const std::string& message, int code) {
  const int rank = is_alone() && launched_with_others() ? rank_of_launcher() : this->rank();
  if (rank > 0) wait_for_rank_0();
  std::cout.flush();  // results come before the error, even if both go to one file
  tell(concat("error: ", prefix(), with_short_words(message)));
  communicator_->end_job(code);
  return code;
}

std::string Ranks::name_of(int rank) const {
  return concat("rank ", rank, ", ", communicator_->hosts().at(static_cast<size_t>(rank)));
}

std::string Ranks::prefix() const { return is_alone() ? "" : concat('[', name_of(rank()), "] "); }

std::string Ranks::summary() const {
  const std::vector<std::string>& hosts = communicator_->hosts();
  const auto count = std::set<std::string>(hosts.begin(), hosts.end()).size();
  return concat(size(), is_alone() ? " rank on " : " ranks on ", count,
                count == 1 ? " host" : " hosts");
}

std::string Ranks::device(const std::string& name) const {
  const std::vector<std::string>& hosts = communicator_->hosts();
  const auto place =
      std::count(hosts.begin(), hosts.begin() + rank(), hosts[static_cast<size_t>(rank())]);
  const bool open = name == "auto" || name == "cuda";
  // Rank 0 keeps the name, which stands in its checkpoints.
  if (place == 0 || !open || parse_device(name).is_cpu()) return name;
  return concat("cuda:", place);
}

int Ranks::threads() const {
  const auto cores = static_cast<int>(allowed_cores().size());
  return std::max(1, cores / communicator_->ranks_on_these_cores());
}

std::string Ranks::few_cores_warning() const {
  if (is_alone()) return "";
  const std::vector<std::string>& hosts = communicator_->hosts();
  const auto here = std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(rank())]);
  const auto cores = static_cast<int64_t>(allowed_cores().size());
  const int64_t used = cores * here / communicator_->ranks_on_these_cores();
  const int64_t all = sysconf(_SC_NPROCESSORS_ONLN);
  if (2 * used > all) return "";
  return concat("the ", here, here == 1 ? " rank" : " ranks", " of this host may use ", used,
                " of its ", all, " cores; with mpirun --bind-to none they share all");
}

std::vector<std::vector<double>> Ranks::all_gather(const std::vector<double>& mine) {
  if (is_alone()) return {mine};
  std::vector<std::vector<double>> all;
  for (const std::string& other : communicator_->all_gather(bytes_of(mine))) {
    all.push_back(numbers_of(other));
  }
  return all;
}

std::vector<std::string> Ranks::broadcast(const std::vector<std::string>& texts) {
  return is_alone() ? texts : unpack(communicator_->broadcast(pack(texts)));
}

void Ranks::broadcast(const Tensor& tensor) {
  if (is_alone()) return;
  const Tensor host = tensor.to(Device{});
  char* const data = static_cast<char*>(host.raw());
  const int64_t bytes = host.numel() * size_of(host.dtype());
  for (int64_t at = 0; at < bytes; at += kBytesAtATime) {
    const auto part = static_cast<size_t>(std::min(kBytesAtATime, bytes - at));
    const std::string sent =
        communicator_->broadcast(is_first() ? std::string(data + at, part) : "");
    check(sent.size() == part, "ranks", "expected ", part, " bytes of a tensor, got ", sent.size(),
          '.');
    std::memcpy(data + at, sent.data(), part);
  }
  if (!tensor.device().is_cpu()) tensor.copy_from(host.to(tensor.device()));
}

std::string Ranks::difference(const std::string& what, const std::string& mine) {
  if (is_alone()) return "";
  const std::vector<std::string> all = communicator_->all_gather(mine);
  std::string others;
  for (int other = 1; other < size(); ++other) {
    const std::string& word = all[static_cast<size_t>(other)];
    if (word != all.front()) others += concat("; ", name_of(other), ": ", word);
  }
  if (others.empty()) return "";
  return concat("expected ", what, " of rank 0 everywhere, which is ", all.front(), "; got",
                others.substr(1), '.');
}

void Ranks::expect_equal(const std::string& what, const std::string& mine, ErrorKind kind) {
  const std::string difference = this->difference(what, mine);
  if (!difference.empty()) tapestry::fail(kind, "[ranks] ", difference);
}

}  // namespace tapestry
