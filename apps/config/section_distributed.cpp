// The keys of a training on several ranks.
#include "apps/config/sections.h"

namespace tapestry {

void bind_distributed(ConfigSection& s, Config& config) {
  DistributedOptions& options = config.distributed;
  constexpr double kMostParts = 1 << 16;
  constexpr double kMostMegabytes = 1 << 10;
  constexpr double kMostSeconds = 1e9;
  s.read_choice("engine", options.engine, names(DistributedOptions::kEngines),
                "How ranks find each other. auto: over MPI where mpirun or srun started the "
                "program; none: each process is a training of its own; mpi: as auto, and refused "
                "without a launcher.");
  s.read("parts", options.parts,
         "Parts of an update, a divisor of training.gradient_accumulation_steps. Each of 1, 2, 4, "
         "... ranks computes as many, and their gradients are summed in an order that does not "
         "depend on the ranks: the same bits. 0: those of the checkpoint, else one for each rank.",
         between(0, kMostParts));
  s.read_choice(
      "shard", options.shard, named(kShards),
      "What each rank keeps a part of: nothing, or the state of the optimizer (ZeRO "
      "stage 1), which takes less memory. The same bits; on several ranks it does not go with "
      "ema_decay and dtype bfloat16.");
  s.read("bucket_mb", options.bucket_mb,
         "Megabytes of gradients that travel at a time while the backward pass goes on.",
         above_up_to(0, kMostMegabytes));
  s.read_choice("sum", options.sum, {{"tree", DeviceSums::kTree}, {"nccl", DeviceSums::kNccl}},
                "Who adds up the gradients of several GPUs: tree has the same bits for any number "
                "of ranks, nccl (NCCL by itself) others for another number.");
  s.read("timeout_seconds", options.timeout_seconds,
         "A rank that is silent for so long is dead, and the others stop.",
         between(5, kMostSeconds));
  s.read_choice("on_failure", options.on_failure,
                {{"stop", OnFailure::kStop}, {"shrink", OnFailure::kShrink}},
                "What follows if a rank dies, is silent or runs out of memory. stop: all end. "
                "shrink: a training of tapestry train --ranks goes on by itself from its newest "
                "checkpoint, on as many of the other ranks as can share the parts, with the same "
                "bits; a second loss before the next checkpoint ends it.");
}

}  // namespace tapestry
