#include "apps/commands/serve/joined_search.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/cpu/cores.h"
#include "core/cpu/parallel.h"

namespace tapestry {

// One search, on a thread of its own. Its task has a fixed number of places, which requests take
// one after the other.
class JoinedSearch::Searcher {
 public:
  explicit Searcher(JoinedSearch& all) : all_(all), task_(all.setup_.task) {
    const auto places = static_cast<size_t>(all_.setup_.places);
    task_.sentences = task_.sentences_at_once = all_.setup_.places;
    task_.max_lengths.assign(places, 1);
    task_.sequence_ids.assign(places, 0);
    task_.seeds.assign(places, 1);
    task_.prompts.assign(places, {task_.bos_id});
    if (all_.setup_.has_prefixes) task_.prefixes.resize(places);
    if (all_.setup_.has_penalised) task_.sources.resize(places);
    if (all_.setup_.has_constraints) task_.constraints.resize(places);
    if (all_.setup_.has_chosen) task_.chosen.assign(places, {task_.eos_id});
    sources_.rows.resize(places);
    sources_.filler = all_.setup_.filler;
    sources_.device = all_.setup_.device;
    sources_.chosen = &task_.chosen;
    requests_.resize(places);
    for (int64_t i = all_.setup_.places; i-- > 0;) free_.push_back(i);
  }

  // Searches whenever there are requests.
  void work() {
    for (;;) {
      {
        std::unique_lock lock(all_.mutex_);
        ++all_.idle_;
        all_.wake_.wait(lock, [&] { return all_.stops_ || !all_.waiting_.empty(); });
        --all_.idle_;
        if (all_.stops_) return;
      }
      search();
      on_one_thread_.reset();
    }
  }

 private:
  void search() {
    const SearchOptions& options = all_.setup_.options;
    SearchQueue queue{.next = [&](int64_t most) { return next(most); },
                      .done =
                          [&](int64_t place, std::vector<Hypothesis> found) {
                            const SearchRequest request = leave(place);
                            request.done(std::move(found));
                          }};
    GenerationHooks hooks;
    hooks.on_token = [&](int64_t place, const std::vector<int32_t>& generated) {
      const SearchRequest& request = *requests_[static_cast<size_t>(place)];
      if (request.cancelled && request.cancelled->load()) return true;
      return request.on_token && request.on_token(generated);
    };
    try {
      const std::unique_ptr<NextToken> model = all_.setup_.steps(sources_);
      if (options.num_beams > 1) {
        beam_search(*model, task_, options, queue);
      } else {
        generate(*model, task_, options, hooks, queue);
      }
    } catch (const std::exception& error) {
      for (size_t place = 0; place < requests_.size(); ++place) {
        if (!requests_[place]) continue;
        leave(static_cast<int64_t>(place)).failed(error.what());
      }
    }
  }

  // The places of requests that join now.
  std::vector<int64_t> next(int64_t most) {
    std::vector<int64_t> places;
    std::vector<SearchRequest> left;
    {
      const std::lock_guard lock(all_.mutex_);
      if (all_.stops_) fail(ErrorKind::kRuntime, "[serve] the server ends.");
      // Requests are shared evenly among the searches.
      const auto searches = std::ssize(all_.searchers_);
      const int64_t total = all_.live_ + std::ssize(all_.waiting_);
      most = std::min(most, (total + searches - 1) / searches - own_);
      while (most > 0 && !all_.waiting_.empty()) {
        SearchRequest request = std::move(all_.waiting_.front());
        all_.waiting_.pop_front();
        if (request.cancelled && request.cancelled->load()) {
          left.push_back(std::move(request));
          continue;
        }
        if (own_ > 0) ++all_.joined_;
        places.push_back(enter(std::move(request)));
        --most;
      }
      const bool others = all_.busy_ > (own_ > 0 ? 1 : 0);
      if (!others) on_one_thread_.reset();
      if (others && !on_one_thread_) on_one_thread_.emplace();
    }
    for (const SearchRequest& request : left) request.failed("cancelled");
    return places;
  }

  // The caller has the lock.
  int64_t enter(SearchRequest request) {
    const int64_t place = free_.back();
    free_.pop_back();
    const auto at = static_cast<size_t>(place);
    task_.max_lengths[at] = request.max_length;
    task_.sequence_ids[at] = request.sequence_id;
    task_.seeds[at] = request.seed;
    if (!request.prompt.empty()) task_.prompts[at] = std::move(request.prompt);
    if (!task_.prefixes.empty()) task_.prefixes[at] = std::move(request.prefix);
    if (!task_.sources.empty()) task_.sources[at] = std::move(request.penalised);
    if (!task_.chosen.empty()) task_.chosen[at] = std::move(request.chosen);
    if (!task_.constraints.empty()) task_.constraints[at] = std::move(request.constraints);
    sources_.rows[at] = std::move(request.source);
    requests_[at] = std::move(request);
    ++all_.live_;
    if (own_++ == 0) ++all_.busy_;
    return place;
  }

  SearchRequest leave(int64_t place) {
    std::optional<SearchRequest>& at = requests_[static_cast<size_t>(place)];
    SearchRequest request = std::move(*at);
    at.reset();
    free_.push_back(place);
    const std::lock_guard lock(all_.mutex_);
    --all_.live_;
    if (--own_ == 0) --all_.busy_;
    return request;
  }

  JoinedSearch& all_;
  SearchTask task_;
  SourceRows sources_;
  std::vector<std::optional<SearchRequest>> requests_;  // by place
  std::vector<int64_t> free_;                           // places
  int64_t own_ = 0;                                     // requests
  std::optional<OnThisThreadOnly> on_one_thread_;
};

JoinedSearch::JoinedSearch(Setup setup)
    : setup_(std::move(setup)), most_searchers_(setup_.device.is_cpu() ? num_threads() : 1) {}

JoinedSearch::~JoinedSearch() {
  std::deque<SearchRequest> left;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    left.swap(waiting_);
  }
  wake_.notify_all();
  for (const SearchRequest& request : left) request.failed("the server ends");
  for (std::thread& thread : threads_) thread.join();
}

void JoinedSearch::submit(SearchRequest request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
    if (idle_ < std::ssize(waiting_) && std::ssize(searchers_) < most_searchers_) {
      searchers_.push_back(std::make_unique<Searcher>(*this));
      threads_.emplace_back([searcher = searchers_.back().get()] { searcher->work(); });
    }
  }
  wake_.notify_one();
}

bool JoinedSearch::is_idle() const {
  const std::lock_guard lock(mutex_);
  return live_ == 0 && waiting_.empty();
}

}  // namespace tapestry
