// Running statistics that forward passes update, and their order where several ranks share an
// update.
//
// An update has M micro-batches. One rank applies each batch's moments in its forward pass, so the
// statistics see micro-batch 0, 1, .., M - 1. Of R ranks, rank r computes micro-batches
// [r M / R, (r + 1) M / R) and knows no other's moments. So each keeps what it would apply; after
// the update all apply everything, rank after rank: the same additions in the same order, hence the
// same bits as on one rank.
//
// What a trainer with several ranks does (one rank needs none of it, with any number of parts):
//
//     DeferredStatistics statistics(buffers);          // once; no entry of `named()` that is
//     trained for each update:
//       forward and backward of this rank's micro-batches, in their order, on this thread
//       words = communicator.all_gather(statistics.take());   // or beside finish(word)'s own words
//       statistics.apply(words);                       // skipped updates too: forward ran
//
// Before a validation or a save every update must have been applied.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapestry {

/// running = (1 - momentum) running + momentum scale x where x is finite
/// (kernels::update_running): now, or when this thread's DeferredStatistics are applied. x must not
/// be written to any more.
void update_running(const Tensor& x, double momentum, double scale, const Tensor& running);

/// While it is alive, update_running() of the thread that made it only notes the update.
class DeferredStatistics {
 public:
  /// `running`: every tensor that may be updated, in an order that is the same on all ranks; on one
  /// device, float32 or float64.
  explicit DeferredStatistics(std::vector<Tensor> running);
  ~DeferredStatistics();
  DeferredStatistics(const DeferredStatistics&) = delete;
  DeferredStatistics& operator=(const DeferredStatistics&) = delete;

  /// The updates noted since the last call, as bytes for the other ranks, few beside a gradient.
  /// Empty if no forward pass had statistics.
  std::string take();
  /// Applies the bytes that each rank took, in the order of the ranks. Throws Error if they belong
  /// to other statistics.
  void apply(const std::vector<std::string>& of_ranks) const;

 private:
  friend void update_running(const Tensor& x, double momentum, double scale, const Tensor& running);
  struct Note {
    size_t running;
    double momentum, scale;
    Tensor x;
  };

  std::vector<Tensor> running_;
  std::vector<Note> notes_;
  DeferredStatistics* outer_;
};

}  // namespace tapestry
