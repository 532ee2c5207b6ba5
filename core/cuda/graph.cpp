#include "core/cuda/graph.h"

#include <cstring>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/cuda/runtime.h"
#include "core/cuda/times.h"

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
  const Timed timed([] { return "copy"; });
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
  const Timed timed([] { return "fill with 0"; });
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

// A graph of a thousand nodes takes a few MB. Further shapes are launched without a graph.
constexpr int64_t kMostGraphs = 256;

// The work of one shape. A shape is captured on its second use, since the first may be the only
// one.
class Graph {
 public:
  Graph() = default;
  ~Graph() { destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Launches `list`. If that took a graph, `list` becomes the graph's previous list.
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
  // Work whose addresses keep changing gets no graph: it is launched directly after kMostCaptures
  // graphs, none of which was used kPaysOff times.
  static constexpr int kMostCaptures = 5, kPaysOff = 10;

  // Makes executable_ do the work of `list`. Returns false if it cannot.
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

  // If CUDA refuses, this work is launched without a graph from now on.
  void capture(const WorkList& list, GraphStats& stats) {
    try {
      // Relaxed: other threads do not use the stream during the capture.
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

  // Captures `list` from the stream. The capture ends in any case.
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

  // The node captured last: the stream's next node will depend on it.
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
  int captures_ = 0;             // without one that paid off
  int uses_ = 0;                 // of the last capture
  cudaGraph_t graph_ = nullptr;  // owns the nodes
  cudaGraphExec_t executable_ = nullptr;
  std::vector<cudaGraphNode_t> nodes_;  // the last node of each work
  std::unique_ptr<WorkList> list_;      // the work of executable_
};

// Pinned memory for the uploads of a list.
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
  /// Call it when the list is on the stream.
  void end() {
    if (used_ > 0) check_status(cudaEventRecord(read_, the_stream()), "upload");
  }

 private:
  // Enough for the ids and targets of a batch of 512k tokens.
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
  // One buffer is filled while the work of the others runs.
  static constexpr size_t kStagings = 4;

  std::unique_ptr<WorkList> list_;
  Staging stagings_[kStagings];
  size_t staging_ = 0;
  std::unordered_map<uint64_t, Graph> graphs_;
};

// Never destroyed, as the pool of runtime.cpp.
Collector& collector() {
  static auto* instance = new Collector;
  return *instance;
}

}  // namespace

void stop_collecting() {
  if (collecting != nullptr) collector().stop();
}

const void* stage(const void* host, int64_t bytes) { return collector().stage(host, bytes); }

}  // namespace internal

GraphStats graph_stats() { return internal::collector().stats; }

void as_graph(const std::function<void()>& body) {
  using namespace internal;
  // Events between the kernels of a graph would not be the graph's.
  if (collecting != nullptr || times_are_on) return body();
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
