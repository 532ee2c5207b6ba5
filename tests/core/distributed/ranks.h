// Ranks as threads, for tests.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/distributed/communicator.h"
#include "core/distributed/transport_local.h"

namespace tapestry::test {

/// "a" for each of `ranks`, or hosts of `per_host` ranks each: "a", "a", "b", "b".
inline std::vector<std::string> hosts_of(int ranks, int per_host = 1000) {
  std::vector<std::string> hosts;
  for (int r = 0; r < ranks; ++r) {
    hosts.emplace_back(1, static_cast<char>('a' + r / per_host));
  }
  return hosts;
}

/// "4_on_2" of 4 ranks on 2 hosts.
inline std::string name_of_hosts(const std::vector<std::string>& hosts) {
  return concat(hosts.size(), "_on_", hosts.back()[0] - hosts.front()[0] + 1);
}

/// Runs body(rank) on a thread for each rank. Returns what each threw, "" for nothing.
inline std::vector<std::string> on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The same with a communicator for each rank, finished after body.
inline std::vector<std::string> on_ranks(LocalJob& job, int ranks,
                                         const std::function<void(Communicator&)>& body,
                                         const CommunicatorOptions& options = {}) {
  return on_threads(ranks, [&](int r) {
    Communicator communicator([&job, r] { return job.open(r); }, options);
    body(communicator);
    communicator.finish();
  });
}

}  // namespace tapestry::test
