#include "core/cuda/graph.h"

#include <cstring>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "core/cuda/runtime.h"
#include "core/error.h"

namespace tapestry::cuda {
namespace internal {
namespace {

cudaStream_t the_stream() { return static_cast<cudaStream_t>(stream()); }

}  // namespace

bool accepted(int status) {
  if (status != cudaSuccess) cudaGetLastError();  // so that no later launch reports it
  return status == cudaSuccess;
}

void Copy::issue() const {
  check_status(cudaMemcpyAsync(to_, from_, bytes_, kind_, the_stream()), "copy");
}
bool Copy::equals(const Work& other) const {
  const auto& copy = static_cast<const Copy&>(other);
  return to_ == copy.to_ && from_ == copy.from_;
}
bool Copy::update(cudaGraphExec_t graph, cudaGraphNode_t node) const {
  return accepted(cudaGraphExecMemcpyNodeSetParams1D(graph, node, to_, from_, bytes_, kind_));
}

void FillZero::issue() const {
  check_status(cudaMemsetAsync(block_, 0, bytes_, the_stream()), "fill");
}
bool FillZero::equals(const Work& other) const {
  return block_ == static_cast<const FillZero&>(other).block_;
}

void WorkList::issue() const {
  for (const Work* work : works_) work->issue();
}

uint64_t WorkList::shape() const {
  uint64_t hash = works_.size();
  for (const Work* work : works_) hash = mix(mix(hash, typeid(*work).hash_code()), work->shape());
  return hash;
}

void WorkList::clear() {
  works_.clear();
  memory_.release();
}

namespace {

// A graph of a thousand nodes takes a few MB. Shapes that come after these are launched as they
// come.
constexpr int64_t kMostGraphs = 256;

// The work of one shape. The first time it is launched as it comes: it may never come again.
class Graph {
 public:
  Graph() = default;
  ~Graph() { destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Takes `list`, and gives the last one for it.
  void launch(std::unique_ptr<WorkList>& list, GraphStats& stats) {
    const bool seen = std::exchange(seen_, true);
    if (executable_ != nullptr) {
      if (update(*list, stats)) {
        if (++uses_ == kPaysOff) captures_ = 0;
      } else {
        destroy();
        --stats.held;
      }
    }
    if (executable_ == nullptr && seen && captures_ < kMostCaptures && stats.held < kMostGraphs) {
      capture(*list, stats);
    }
    if (executable_ == nullptr) return list->issue();
    std::swap(list_, list);
    check_status(cudaGraphLaunch(executable_, the_stream()), "graph");
    ++stats.launches;
  }

 private:
  // Work whose addresses change all the time is launched as it comes: so many graphs are made that
  // are not used so often.
  static constexpr int kMostCaptures = 5, kPaysOff = 10;

  // The executable then does what `list` says. False where it cannot.
  bool update(const WorkList& list, GraphStats& stats) {
    const auto &now = list.works(), &before = list_->works();
    if (now.size() != before.size()) return false;
    for (size_t i = 0; i < now.size(); ++i) {
      if (typeid(*now[i]) != typeid(*before[i]) || now[i]->shape() != before[i]->shape()) {
        return false;
      }
      if (now[i]->equals(*before[i])) continue;
      if (!now[i]->update(executable_, nodes_[i])) return false;
      ++stats.updates;
    }
    return true;
  }

  // Where CUDA refuses, the work is launched as it comes from then on.
  void capture(const WorkList& list, GraphStats& stats) {
    try {
      // Relaxed: nothing that another thread does at this time has to do with the stream.
      check_status(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeRelaxed), "graph");
      record(list);
      check_status(cudaGraphInstantiate(&executable_, graph_, 0), "graph");
    } catch (const Error& error) {
      stats.refusal = error.what();
      destroy();
      cudaGetLastError();  // so that no later launch reports it
      captures_ = kMostCaptures;
      return;
    }
    uses_ = 0;
    ++captures_;
    ++stats.graphs;
    ++stats.held;
  }

  // From the stream, which stops capturing in any case.
  void record(const WorkList& list) {
    nodes_.clear();
    try {
      for (const Work* work : list.works()) {
        work->issue();
        nodes_.push_back(last_node());
      }
    } catch (...) {
      cudaStreamEndCapture(the_stream(), &graph_);
      throw;
    }
    check_status(cudaStreamEndCapture(the_stream(), &graph_), "graph");
  }

  // What was captured last: the stream's next node is to come after it.
  static cudaGraphNode_t last_node() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    check_status(
        cudaStreamGetCaptureInfo(the_stream(), &status, nullptr, nullptr, &nodes, &edges, &count),
        "graph");
    check(status == cudaStreamCaptureStatusActive && count == 1, "graph",
          "expected a capture of one stream, got status ", static_cast<int>(status), " and ", count,
          " branches.");
    return nodes[0];
  }

  void destroy() {
    if (executable_ != nullptr) {
      cudaStreamSynchronize(the_stream());  // it may still run
      cudaGraphExecDestroy(executable_);
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    executable_ = nullptr;
    graph_ = nullptr;
  }

  bool seen_ = false;
  int captures_ = 0;             // that have not paid off
  int uses_ = 0;                 // of the last one
  cudaGraph_t graph_ = nullptr;  // what the nodes belong to
  cudaGraphExec_t executable_ = nullptr;
  std::vector<cudaGraphNode_t> nodes_;  // of each work the last
  std::unique_ptr<WorkList> list_;      // what executable_ does
};

// Pinned memory for what a list uploads.
class Staging {
 public:
  void begin() {
    if (pinned_ == nullptr) {
      check_status(cudaMallocHost(&pinned_, kBytes), "upload");
      check_status(cudaEventCreateWithFlags(&read_, cudaEventDisableTiming), "upload");
    }
    check_status(cudaEventSynchronize(read_), "upload");
    used_ = 0;
  }
  const void* add(const void* host, int64_t bytes) {
    const int64_t at = (used_ + 15) / 16 * 16;
    if (bytes > kBytes - at) return nullptr;
    used_ = at + bytes;
    return std::memcpy(static_cast<char*>(pinned_) + at, host, static_cast<size_t>(bytes));
  }
  /// Its list is on the stream.
  void end() {
    if (used_ > 0) check_status(cudaEventRecord(read_, the_stream()), "upload");
  }

 private:
  // The ids and targets of a batch of 512k tokens.
  static constexpr int64_t kBytes = int64_t{8} << 20;
  void* pinned_ = nullptr;
  cudaEvent_t read_{};
  int64_t used_ = 0;
};

class Collector {
 public:
  void begin() {
    staging_ = (staging_ + 1) % kStagings;
    stagings_[staging_].begin();
    if (list_ == nullptr) list_ = std::make_unique<WorkList>();
    list_->clear();
    collecting = list_.get();
  }
  const void* stage(const void* host, int64_t bytes) {
    return stagings_[staging_].add(host, bytes);
  }
  void end() {
    collecting = nullptr;
    graphs_[list_->shape()].launch(list_, stats);
    stagings_[staging_].end();
  }
  void stop() {
    collecting = nullptr;
    list_->issue();
    stagings_[staging_].end();
  }

  GraphStats stats;

 private:
  // One is filled while the work before is under way.
  static constexpr size_t kStagings = 4;

  std::unique_ptr<WorkList> list_;
  Staging stagings_[kStagings];
  size_t staging_ = 0;
  std::unordered_map<uint64_t, Graph> graphs_;
};

// Never destroyed, as the pool of cuda.cpp.
Collector& collector() {
  static auto* instance = new Collector;
  return *instance;
}

bool graphs_are_used = false;

}  // namespace

void stop_collecting() {
  if (collecting != nullptr) collector().stop();
}

const void* stage(const void* host, int64_t bytes) { return collector().stage(host, bytes); }

}  // namespace internal

void set_use_graphs(bool use) { internal::graphs_are_used = use; }
GraphStats graph_stats() { return internal::collector().stats; }

void as_graph(const std::function<void()>& body) {
  using namespace internal;
  if (!graphs_are_used || collecting != nullptr) return body();
  sort_free_memory();
  collector().begin();
  try {
    body();
  } catch (...) {
    stop_collecting();
    throw;
  }
  if (collecting != nullptr) collector().end();
}

}  // namespace tapestry::cuda
