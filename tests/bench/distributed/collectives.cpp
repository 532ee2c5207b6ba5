// Messages and bytes of the exchanges of a training on many ranks: counted on the operations that
// training runs, beside the formulas. Ranks are threads with a Communicator each up to kMostThreads
// of them, with delayed messages; one thread drives the operations of more.
//   collectives [RANKS[xRANKS_OF_A_HOST]...]      2 to 9, 8x4, 64, 64x8, 256x8 and 1024x8 by
//   default
// Exit code 1 if a count is not what its formula says. Columns: the most that one rank sends in one
// exchange, and the bytes that leave its host.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/distributed/operations.h"
#include "tests/core/distributed/ranks.h"

namespace tapestry::test {
namespace {

constexpr int kMostThreads = 9;
constexpr int64_t kElementsOfASlice = 32;
constexpr int64_t kHeaderBytes = 256;  // of a short text

struct Job {
  int ranks, per_host;
  int hosts() const { return ranks / per_host; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(std::to_string(rank / per_host));
    return all;
  }
};

struct Sent {
  int64_t messages = 0, bytes = 0, leaving = 0;  // leaving: bytes to other hosts
  bool operator==(const Sent&) const = default;
};

/// Counts what a rank sends over another transport.
class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> to, const Job& job, Sent& sent)
      : to_(std::move(to)), job_(job), sent_(sent) {}

  int rank() const override { return to_->rank(); }
  int size() const override { return to_->size(); }
  std::string host() const override { return to_->host(); }
  std::string library() const override { return to_->library(); }
  RequestPtr send(int to, int tag, const void* data, int64_t bytes) override {
    if (tag != kLargestTag) {  // heartbeats come by the clock
      ++sent_.messages;
      sent_.bytes += bytes;
      if (to / job_.per_host != rank() / job_.per_host) sent_.leaving += bytes;
    }
    return to_->send(to, tag, data, bytes);
  }
  RequestPtr receive(int from, int tag, void* data, int64_t bytes) override {
    return to_->receive(from, tag, data, bytes);
  }
  bool done(Request& request) override { return to_->done(request); }
  void finish() override { to_->finish(); }
  void end_job(int code) noexcept override { to_->end_job(code); }

 private:
  std::unique_ptr<Transport> to_;
  const Job& job_;
  Sent& sent_;
};

/// The most messages and bytes of a rank; all that leaves a host.
Sent busiest(const Job& job, const std::vector<Sent>& sent) {
  Sent most;
  std::vector<int64_t> leaving(static_cast<size_t>(job.hosts()));
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    most.messages = std::max(most.messages, sent[rank].messages);
    most.bytes = std::max(most.bytes, sent[rank].bytes);
    leaving[rank / static_cast<size_t>(job.per_host)] += sent[rank].leaving;
  }
  most.leaving = std::ranges::max(leaving);
  return most;
}

/// One kind of exchange: how a rank makes it, and what it must send.
struct Kind {
  const char* name;
  enum What { kTexts, kText, kBucket } what;
  Exchange exchange = Exchange::kAllReduce;
};
constexpr Kind kKinds[] = {{"texts of all to all", Kind::kTexts},
                           {"text of rank 0 to all", Kind::kText},
                           {"reduce-scatter", Kind::kBucket, Exchange::kReduceScatter},
                           {"all-gather", Kind::kBucket, Exchange::kAllGather},
                           {"all-reduce", Kind::kBucket, Exchange::kAllReduce}};

Sent formula(const Kind& kind, const Job& job) {
  const int64_t ranks = job.ranks, local = job.per_host, hosts = job.hosts();
  if (kind.what != Kind::kBucket) {
    const int64_t senders = kind.what == Kind::kTexts ? local : 1;  // of a host
    return {ranks - 1, kHeaderBytes * (ranks - 1), kHeaderBytes * senders * (ranks - local)};
  }
  const int64_t slice = kElementsOfASlice * 4, bucket = slice * ranks;
  const bool staged = local > 1 && hosts > 1 && (local & (local - 1)) == 0;
  const int64_t times = kind.exchange == Exchange::kAllReduce ? 2 : 1;
  // In stages a host sends each slice once to the others, else each of its ranks does.
  return {times * (staged ? local - 1 + hosts - 1 : ranks - 1), times * slice * (ranks - 1),
          times * (staged ? bucket / hosts * (hosts - 1) : slice * local * (ranks - local))};
}

/// The elements of a rank, and a text.
struct Operand {
  explicit Operand(const Job& job)
      : elements(static_cast<size_t>(job.ranks * kElementsOfASlice), 1), text("text") {}
  Bucket bucket() {
    return {.data = elements.data(), .elements = static_cast<int64_t>(elements.size())};
  }
  std::vector<float> elements;
  std::string text;
  std::vector<std::string> texts;
};

std::vector<Sent> count_on_threads(const Kind& kind, const Job& job) {
  LocalJob threads({.hosts = job.names(), .longest_delay_seconds = 0.002});
  std::vector<Sent> sent(static_cast<size_t>(job.ranks)), before = sent, after = sent;
  const auto errors = on_threads(job.ranks, [&](int r) {
    const auto rank = static_cast<size_t>(r);
    Communicator communicator(
        [&] { return std::make_unique<CountingTransport>(threads.open(r), job, sent[rank]); }, {});
    Operand operand(job);
    before[rank] = sent[rank];
    if (kind.what == Kind::kTexts) communicator.all_gather(operand.text);
    if (kind.what == Kind::kText) communicator.broadcast(operand.text);
    if (kind.what == Kind::kBucket) {
      communicator.wait(communicator.start(kind.exchange, operand.bucket()));
    }
    after[rank] = sent[rank];
    communicator.finish();
  });
  for (const std::string& error : errors) check(error.empty(), "collectives", error);
  for (size_t rank = 0; rank < sent.size(); ++rank) {
    after[rank].messages -= before[rank].messages;
    after[rank].bytes -= before[rank].bytes;
    after[rank].leaving -= before[rank].leaving;
  }
  return after;
}

std::vector<Sent> count_driven(const Kind& kind, const Job& job) {
  const std::vector<std::string> names = job.names();
  LocalJob messages({.hosts = names});
  std::vector<Sent> sent(static_cast<size_t>(job.ranks));
  struct Rank {
    std::unique_ptr<Transport> transport;
    std::vector<Stage> stages;
    Operand operand;
    std::unique_ptr<Operation> operation;
  };
  std::vector<Rank> ranks;
  for (int r = 0; r < job.ranks; ++r) {
    ranks.push_back(
        {std::make_unique<CountingTransport>(messages.open(r), job, sent[static_cast<size_t>(r)]),
         stages_of(r, names), Operand(job), nullptr});
  }
  for (Rank& rank : ranks) {
    Operand& operand = rank.operand;
    rank.operation = kind.what == Kind::kBucket
                         ? bucket_operation(kind.exchange, operand.bucket(), rank.stages)
                         : string_operation(operand.text, kind.what == Kind::kText, operand.texts);
    rank.operation->begin(*rank.transport, 0);
  }
  for (size_t running = ranks.size(); running > 0;) {
    for (Rank& rank : ranks) {
      if (!rank.operation || !rank.operation->advance(*rank.transport)) continue;
      rank.operation.reset();
      --running;
    }
  }
  return sent;
}

/// False if a count differs from its formula.
bool print_row(const Kind& kind, const Job& job) {
  const bool threads = job.ranks <= kMostThreads;
  const Sent counted =
      busiest(job, threads ? count_on_threads(kind, job) : count_driven(kind, job));
  const Sent expected = formula(kind, job);
  const bool equal = counted == expected;
  std::printf(
      "%6d %6d  %-22s %9ld %12ld %14ld  %s\n", job.ranks, job.hosts(), kind.name, counted.messages,
      counted.bytes, counted.leaving,
      equal ? "as the formula says"
            : concat("formula: ", expected.messages, ' ', expected.bytes, ' ', expected.leaving)
                  .c_str());
  std::fflush(stdout);
  return equal;
}

/// "64" or "64x8".
Job job_of(const std::string& text) {
  Job job{0, 0};
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, job.ranks);
  job.per_host = job.ranks;
  if (error == std::errc() && at != end && *at == 'x') {
    at = std::from_chars(at + 1, end, job.per_host).ptr;
  }
  check(at == end && job.ranks > 1 && job.per_host > 0 && job.ranks % job.per_host == 0,
        "collectives", "expected RANKS or RANKSxRANKS_OF_A_HOST, got ", text, '.');
  return job;
}

int run(const std::vector<std::string>& jobs) {
  std::printf("%6s %6s  %-22s %9s %12s %14s\n", "ranks", "hosts", "exchange", "messages", "bytes",
              "leave a host");
  bool equal = true;
  for (const std::string& text : jobs) {
    for (const Kind& kind : kKinds) equal = print_row(kind, job_of(text)) && equal;
  }
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace tapestry::test

int main(int argc, char** argv) {
  std::vector<std::string> jobs(argv + 1, argv + argc);
  if (jobs.empty()) {
    for (int ranks = 2; ranks <= 9; ++ranks) jobs.push_back(std::to_string(ranks));
    for (const char* job : {"4x2", "8x2", "8x4", "9x3", "64", "64x8", "256x8", "1024x8"}) {
      jobs.emplace_back(job);
    }
  }
  try {
    return tapestry::test::run(jobs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
