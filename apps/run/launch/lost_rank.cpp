#include "apps/run/launch/lost_rank.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "optim/gradient_exchange.h"

namespace tapestry {
namespace {

constexpr const char* kGpus = "CUDA_VISIBLE_DEVICES";
constexpr int kOfSignals = 128;
// Exit codes that another start would end with, too, or that somebody wanted.
constexpr int kFinal[] = {0,
                          static_cast<int>(ErrorKind::kConfig),
                          static_cast<int>(ErrorKind::kData),
                          static_cast<int>(ErrorKind::kDiverged),
                          kOfSignals + SIGHUP,
                          kOfSignals + SIGINT,
                          kOfSignals + SIGUSR1,
                          kOfSignals + SIGTERM};

/// How messages name a failure: the reason begins behind `skipped` characters of the text and ends
/// with the line; a number behind the text is the rank's.
struct Sign {
  std::string text;
  size_t skipped;
};

// The first that is found counts: the launcher knows best which process a signal ended, then ranks
// know which one is silent, then what went wrong in their own.
const Sign kSigns[] = {{"mpirun noticed that process rank ", 20},
                       {"[communicator] rank ", 0},
                       {"\nerror: [rank ", 8},
                       {"\nerror: ", 8},
                       {"MPI_ABORT was invoked on rank ", 0},
                       {"mpirun detected that one or more processes exited", 0}};

std::optional<LostRank> sign_of(const std::string& messages) {
  for (const Sign& sign : kSigns) {
    const size_t at = messages.find(sign.text);
    if (at == std::string::npos) continue;
    const size_t begin = at + sign.skipped, end = messages.find('\n', begin);
    const char* const number = messages.c_str() + at + sign.text.size();
    return LostRank{
        messages.substr(begin, end == std::string::npos ? end : end - begin),
        std::isdigit(static_cast<unsigned char>(*number)) != 0 ? std::atoi(number) : -1};
  }
  return std::nullopt;
}

}  // namespace

std::optional<LostRank> lost_rank(const RankJobEnd& end) {
  if (std::ranges::find(kFinal, end.code) != std::end(kFinal)) return std::nullopt;
  std::optional<LostRank> lost = sign_of('\n' + end.messages);
  if (!lost && end.code > kOfSignals) {
    lost = LostRank{concat("the ranks ended by signal ", end.code - kOfSignals)};
  }
  return lost;
}

int64_t fewer_ranks(int64_t parts, int64_t ranks) {
  for (int64_t fewer = ranks - 1; fewer > 1; --fewer) {
    if (parts_fit(parts, fewer)) return fewer;
  }
  return 1;
}

VisibleGpus::VisibleGpus(int64_t ranks) {
  if (const char* const given = getenv(kGpus); given != nullptr) {
    std::istringstream names(given);
    for (std::string name; std::getline(names, name, ',');) names_.push_back(name);
    return;
  }
  for (int64_t rank = 0; rank < ranks; ++rank) names_.push_back(std::to_string(rank));
}

void VisibleGpus::lose(int rank) {
  if (rank < 0 || std::cmp_greater_equal(rank, names_.size())) return;
  names_.erase(names_.begin() + rank);
  changed_ = true;
}

Environment VisibleGpus::environment() const {
  if (!changed_) return {};
  return {{kGpus, join(names_, ",")}};
}

}  // namespace tapestry
