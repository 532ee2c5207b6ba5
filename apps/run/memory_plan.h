// The memory of a training, known before it takes any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/run/update_cost.h"
#include "data/tokenizer.h"

namespace tapestry {

/// Bytes on the device that trains, as a dry run of an update finds them.
struct MemoryPlan {
  bool on_gpu = false;
  int64_t parameters = 0;  ///< that learn
  int64_t weights = 0;     ///< with those that do not
  int64_t gradients = 0;
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
  UpdateCost cost;         ///< of an update whose batches are all as large as they may be
  /// What is resident at most. A save takes no more: tensors go from their memory into the file.
  int64_t peak() const { return still_needed() + resident; }
  /// What the process still has to take of the device for it.
  int64_t still_needed() const { return tensors + buffers + (on_gpu ? 0 : data); }
};

/// Bytes of this process that are in memory.
int64_t resident_bytes();

/// Nothing for a task without batches of one shape. `tokenizers` may be stand-ins of the right
/// size. Takes milliseconds and a few MB, however large the model. Throws Error(kConfig) where the
/// config and the parameters do not go together. Plans that are compared need the same `resident`:
/// planning itself leaves memory behind.
std::optional<MemoryPlan> plan_memory(const Config& config, const TokenizerPair& tokenizers,
                                      int64_t resident = resident_bytes());

/// Bytes that this process may still take of a GPU, or of the host: there the least of what the
/// machine has, its cgroup, and its limits (ulimit -v, -d) leave; and which one that is.
struct FreeMemory {
  int64_t bytes = 0;
  std::string limit;  ///< "the machine", "the cgroup /jobs", "ulimit -v", "cuda:0"
};
FreeMemory free_memory(Device device);

/// Changes of a config that does not fit, each with what it needs: recompute, and parts of a batch
/// one after the other (with batch norm smaller batches, as many more in an update).
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
  /// The batches are as large as the plan has them, or nothing fits even without them. Batches of
  /// so many sentences are planned as if all were as long as they may be, and texts that are kept
  /// in memory are only estimated.
  bool certain = true;
};
/// Nothing where it fits.
std::optional<MemoryShortage> memory_shortage(const Config& config,
                                              const TokenizerPair& tokenizers);

/// training.memory_budget, of the device: sets training.splits and recompute so that the plan stays
/// below it, the
/// cheapest choice first: as it is, splits down to parts of some hundred tokens, recompute, smaller
/// parts. Returns what was chosen and what it costs, for the log; "" where there is no budget.
/// Throws Error(kOutOfMemory) where nothing fits, with the least that was found. With several ranks
/// or parts of an update (`may_split` false) only recompute is tried.
std::string keep_to_budget(Config& config, const TokenizerPair& tokenizers, bool may_split,
                           int64_t resident = resident_bytes());

/// "9.7 GB", "12 MB"
std::string bytes_text(int64_t bytes);

}  // namespace tapestry
