// Stream capture and graphs: a list of work. A graph owns its nodes, as in CUDA; an executable has
// copies.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

struct CUgraphNode_st {
  std::function<void()> work;
  cuda_emulation::SetArguments set_arguments;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  cudaGraph_t graph;
  std::vector<CUgraphNode_st> nodes;
};

namespace {

cudaGraph_t captured = nullptr;
cudaGraphNode_t last = nullptr;

// The executable's copy of a node.
CUgraphNode_st* find(cudaGraphExec_t executable, cudaGraphNode_t node) {
  const auto& nodes = executable->graph->nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].get() == node) return &executable->nodes[i];
  }
  return nullptr;
}

}  // namespace

namespace cuda_emulation {

int graphs_to_refuse = 0;

bool is_capturing() { return captured != nullptr; }

void put(std::function<void()> work, SetArguments set_arguments) {
  if (captured == nullptr) return work();
  auto node = std::make_unique<CUgraphNode_st>(std::move(work), std::move(set_arguments));
  last = captured->nodes.emplace_back(std::move(node)).get();
}

}  // namespace cuda_emulation

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (captured != nullptr) return cudaErrorInvalidValue;
  captured = new CUgraph_st;
  last = nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  *status = captured != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *dependencies = &last;
  *edges = nullptr;
  *count = last != nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return *graph = std::exchange(captured, nullptr), cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (cuda_emulation::graphs_to_refuse > 0) {
    --cuda_emulation::graphs_to_refuse;
    return cudaErrorMemoryAllocation;
  }
  *executable = new CUgraphExec_st{graph, {}};
  for (const auto& node : graph->nodes) (*executable)->nodes.push_back(*node);
  return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  CUgraphNode_st* const copy = find(executable, node);
  if (copy == nullptr || copy->set_arguments == nullptr) return cudaErrorInvalidValue;
  copy->set_arguments(params->kernelParams);
  return cudaSuccess;
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void* to, const void* from, size_t bytes,
                                               cudaMemcpyKind) {
  CUgraphNode_st* const copy = find(executable, node);
  if (copy == nullptr || copy->set_arguments != nullptr) return cudaErrorInvalidValue;
  copy->work = [=] { std::memcpy(to, from, bytes); };
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& node : executable->nodes) node.work();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return delete executable, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
