// The memory of a training, known before it takes any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/run/update_cost.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// Bytes on the device that trains, as a dry run of an update finds them.
struct MemoryPlan {
  bool on_gpu = false;
  int64_t parameters = 0;   ///< that learn
  int64_t weights = 0;      ///< frozen ones included
  int64_t base = 0;         ///< of these, the matrices of training.lora.base
  int64_t teacher = 0;      ///< weights of training.teacher
  int64_t gradients = 0;    ///< the most that are in memory together
  int64_t optimizer = 0;    ///< its state
  int64_t averages = 0;     ///< training.ema_decay
  int64_t activations = 0;  ///< that backward needs, of the largest batch
  int64_t tensors = 0;      ///< all that tensors and kernels hold of the system, at the end; on a
                        ///< GPU the most at a time, as the allocator gives the rest back at need
  int64_t spare = 0;       ///< of a GPU: that rest
  int64_t resident = 0;    ///< on the host: of the program with its libraries, when it was planned
  int64_t buffers = 0;     ///< that libraries and the run will take besides
  int64_t data = 0;        ///< corpora that are kept in the host's memory, about
  int64_t mapped = 0;      ///< tokens in a mapped file, whose pages the system takes back at need
  int64_t checkpoint = 0;  ///< on the disk
  UpdateCost cost;         ///< of an update whose batches all have the largest size
  /// The most resident bytes. A save takes no more: tensors go from their memory into the file.
  int64_t peak() const { return still_needed() + resident; }
  /// Memory that the process still has to take on the device for it.
  int64_t still_needed() const { return tensors + buffers + (on_gpu ? 0 : data); }
};

/// Bytes of this process that are in memory.
int64_t resident_bytes();

/// Nothing for a task without batches of one shape. `tokenizers` may be placeholders of the right
/// size. Takes milliseconds and a few MB, however large the model. Throws Error(kConfig) if config
/// and parameters do not fit. Compared plans need the same `resident`: planning itself leaves
/// memory behind.
std::optional<MemoryPlan> plan_memory(const Config& config, const TokenizerPair& tokenizers,
                                      int64_t resident = resident_bytes());

/// Bytes that this process may still take on a GPU, or on the host: there the least that the
/// machine, its cgroup and its limits (ulimit -v, -d) leave; and the name of that limit.
struct FreeMemory {
  int64_t bytes = 0;
  std::string limit;  ///< "the machine", "the cgroup /jobs", "ulimit -v", "cuda:0"
};
FreeMemory free_memory(Device device);

/// Changes that make a config fit, each with its memory: recompute, and parts of a batch one after
/// the other (with batch norm smaller batches, and more of them in an update).
struct Remedy {
  std::string change;  ///< "training.recompute=true"
  int64_t bytes = 0;
};
std::vector<Remedy> remedies(const Config& config, const TokenizerPair& tokenizers,
                             const FreeMemory& free);

/// A training that does not fit.
struct MemoryShortage {
  /// "[plan] ... needs 9.7 GB, 0.6 GB are free; training.recompute=true needs 4.1 GB"
  std::string text;
  /// True if the batches have the planned size, or if nothing fits even without them. Batches of
  /// sentences are planned as if all had the greatest length, and texts kept in memory are only
  /// estimated.
  bool certain = true;
};
/// Nothing if it fits.
std::optional<MemoryShortage> memory_shortage(const Config& config,
                                              const TokenizerPair& tokenizers);

/// training.memory_budget, of the device: sets training.splits and recompute so that the plan stays
/// below it, the cheapest choice first: unchanged, splits down to parts of a few hundred tokens,
/// recompute, smaller parts. Returns the choice and its cost, for the log; "" without a budget.
/// Throws Error(kOutOfMemory) if nothing fits, with the least that was found. With several ranks or
/// parts of an update (`may_split` false) it tries only recompute.
std::string keep_to_budget(Config& config, const TokenizerPair& tokenizers, bool may_split,
                           int64_t resident = resident_bytes());

/// "9.7 GB", "12 MB"
std::string bytes_text(int64_t bytes);

}  // namespace tapestry
