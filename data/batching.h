// Batches of sentence pairs of similar length, in an order that is a function of (seed, epoch).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/corpus.h"

namespace tapestry {

struct BatchOptions {
  static constexpr const char* kTypes[] = {"tokens", "sentences"};

  std::string batch_type = "tokens";  ///< one of kTypes
  /// tokens: max(B * S, B * T) of a batch is at most this, padding included. sentences: B is.
  int64_t batch_size = 4096;
  bool shuffle = true;  ///< false: ordered by length, the same in every epoch
  uint64_t seed = 1;

  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// A translation batch on the CPU; all tensors int32, short rows filled with the pad id.
struct TranslationBatch {
  Tensor source;          ///< (B, S): x, eos
  Tensor source_lengths;  ///< (B): tokens of each row, eos included
  Tensor target_in;       ///< (B, T): bos, y
  Tensor target_out;      ///< (B, T): y, eos
  Tensor target_lengths;  ///< (B): tokens of each row of target_in and of target_out
  int64_t sentences = 0;
  int64_t source_tokens = 0;  ///< without padding: sums of the lengths
  int64_t target_tokens = 0;
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's pair
};

/// A place between two batches: `batch` batches of epoch `epoch` have been taken, so the next one
/// is number `batch`. Both count from 0.
struct DataPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
  bool operator==(const DataPosition&) const = default;
};

/// Tokens of each row, including special ones. If rows have only one side, source[i] equals
/// target[i].
struct RowLengths {
  std::vector<int64_t> source;
  std::vector<int64_t> target;
};
RowLengths lengths_of(const ParallelCorpus& corpus);

/// One epoch cut into batches, with every row of the corpus once.
class EpochPlan {
 public:
  /// Batches of similar length. Shuffles (Philox, key (seed, epoch)), sorts by the longer side,
  /// then by the difference of the two, keeping the shuffled order within ties, cuts by batch_size,
  /// shuffles the batches. Throws Error(kConfig) if a single row has more tokens than batch_size,
  /// Error(kData) for an empty corpus.
  EpochPlan(const RowLengths& lengths, const BatchOptions& options, int64_t epoch);
  EpochPlan(const ParallelCorpus& corpus, const BatchOptions& options, int64_t epoch)
      : EpochPlan(lengths_of(corpus), options, epoch) {}

  /// `rows` rows of one length in batches of `batch_size`, shuffled or in order; the last one may
  /// be short.
  static EpochPlan of_equal_rows(int64_t rows, int64_t batch_size, bool shuffle, uint64_t seed,
                                 int64_t epoch);

  int64_t batches() const { return static_cast<int64_t>(ranges_.size()); }
  /// Row numbers of batch `i`.
  std::span<const int64_t> batch(int64_t i) const;

 private:
  EpochPlan() = default;

  struct Range {
    int64_t begin, end;
  };
  std::vector<int64_t> order_;
  std::vector<Range> ranges_;
};

/// Walks through the batches of the epochs' plans. All kinds of batches use it.
class EpochWalk {
 public:
  using MakePlan = std::function<EpochPlan(int64_t epoch)>;

  /// Starts at `start`, which may lie at the end of an epoch. Throws Error(kData) if that epoch has
  /// fewer batches than start.batch.
  EpochWalk(MakePlan make_plan, DataPosition start);

  /// Row numbers of the next batch, valid until the next call.
  std::span<const int64_t> next();
  /// After the batch returned last; {e, batches} after the last one of epoch e.
  DataPosition position() const { return position_; }
  /// Batches of the epoch that position() is in.
  int64_t batches_in_epoch() const { return plan_.batches(); }

 private:
  MakePlan make_plan_;
  EpochPlan plan_;
  DataPosition position_;
};

/// The batch of these pairs, in this order.
TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices);

/// The share of padding in a plan's batches.
struct PaddingReport {
  int64_t batches = 0;
  int64_t source_cells = 0, source_tokens = 0;  ///< sum of B * S, and those without padding
  int64_t target_cells = 0, target_tokens = 0;

  /// Share of padding over both sides, in [0, 1).
  double waste() const;
  /// "112 batches, padding 0.8 %: 1.2 % of source, 0.4 % of target"
  std::string summary() const;
};
PaddingReport padding_of(const ParallelCorpus& corpus, const EpochPlan& plan);

/// Walks through batches, epoch after epoch. Every class named ...Batches has these members; Loader
/// (data/loader.h) runs any of them on a background thread.
class TranslationBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk does.
  TranslationBatches(const ParallelCorpus& corpus, const BatchOptions& options,
                     DataPosition start = {});

  TranslationBatch next() { return make_translation_batch(*corpus_, walk_.next()); }
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  /// Batches of the epoch that position() is in.
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }

 private:
  const ParallelCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
