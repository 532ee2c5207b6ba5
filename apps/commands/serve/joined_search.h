// A search that requests of many clients join while it runs, and leave as soon as they are done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nn/models/translate.h"

namespace tapestry {

/// A sentence to translate or a prompt to continue.
struct SearchRequest {
  std::vector<int32_t> source = {};     ///< in its frame; of an encoder-decoder
  std::vector<int32_t> prompt = {};     ///< of a causal model
  std::vector<int32_t> prefix = {};     ///< as in SearchTask
  std::vector<int32_t> chosen = {};     ///< as in SearchTask
  std::vector<int32_t> penalised = {};  ///< SearchTask::sources
  Phrases constraints = {};             ///< as in SearchTask
  int64_t max_length = 1;               ///< as in SearchTask
  int64_t sequence_id = 0;              ///< as in SearchTask
  uint64_t seed = 1;                    ///< of its draws
  /// Nobody waits for the answer any more.
  std::shared_ptr<const std::atomic<bool>> cancelled = {};
  /// As GenerationHooks::on_token; may be empty.
  std::function<bool(const std::vector<int32_t>& generated)> on_token = {};
  /// One of the two is called, from a thread of the search.
  std::function<void(std::vector<Hypothesis>)> done = {};
  std::function<void(const std::string& problem)> failed = {};
};

/// Up to num_threads() searches with the same options, which share the requests; on a GPU one.
/// A search that is the only one at work computes each step on all threads. What is beside a
/// request changes neither its tokens nor its scores.
class JoinedSearch {
 public:
  struct Setup {
    SearchOptions options = {};
    /// What all requests share: ids, bans, and what is reported.
    SearchTask task = {};
    /// The models as one search sees them. `sources` are those of the requests.
    std::function<std::unique_ptr<NextToken>(const SourceRows& sources)> steps = {};
    int64_t places = 64;  ///< requests that a search has at a time
    int32_t filler = 0;   ///< of sources
    bool has_chosen = false, has_prefixes = false, has_penalised = false, has_constraints = false;
    Device device = {};
  };

  explicit JoinedSearch(Setup setup);
  /// Requests that are left fail.
  ~JoinedSearch();
  JoinedSearch(const JoinedSearch&) = delete;
  JoinedSearch& operator=(const JoinedSearch&) = delete;

  void submit(SearchRequest request);
  /// True if it has no request.
  bool is_idle() const;
  const Setup& setup() const { return setup_; }
  /// Requests that joined a search which had others already.
  int64_t joined() const { return joined_.load(); }

 private:
  class Searcher;

  const Setup setup_;
  const int64_t most_searchers_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<SearchRequest> waiting_;
  int64_t live_ = 0;  // requests that are searched
  int64_t busy_ = 0;  // searchers with some of them
  int64_t idle_ = 0;  // searchers that wait for one
  bool stops_ = false;
  std::atomic<int64_t> joined_{0};
  std::vector<std::unique_ptr<Searcher>> searchers_;
  std::vector<std::thread> threads_;
};

}  // namespace tapestry
