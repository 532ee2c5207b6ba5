// Batches of sentence pairs of similar length, in an order that is a function of (seed, epoch).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/corpora/corpus.h"
#include "data/corpora/mixture.h"

namespace tapestry {

/// Rows whose order and lengths are in memory at a time.
inline constexpr int64_t kWindowRows = int64_t{1} << 20;

struct BatchOptions {
  static constexpr const char* kTypes[] = {"tokens", "sentences"};

  std::string batch_type = "tokens";  ///< one of kTypes
  /// tokens: max(B * S, B * T) of a batch is at most this, padding included. sentences: B is.
  int64_t batch_size = 4096;
  bool shuffle = true;  ///< false: ordered by length, the same in every epoch
  uint64_t seed = 1;
  MixOptions mix = {};  ///< of the corpora of a list; applies with shuffle
  /// An epoch of more rows is planned in windows of at most this many.
  int64_t window_rows = kWindowRows;

  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// The rows of the epochs of corpora with parts[i] rows each, `rows` in all.
Mixture mixture_of(int64_t rows, const std::vector<int64_t>& parts, const BatchOptions& options);

/// A translation batch on the CPU; all tensors int32, short rows filled up.
struct TranslationBatch {
  Tensor source;          ///< (B, S): x, eos
  Tensor source_lengths;  ///< (B): tokens of each row, eos included
  Tensor target_in;       ///< (B, T): bos, y
  Tensor target_out;      ///< (B, T): y, eos
  Tensor target_lengths;  ///< (B): tokens of each row of target_in and of target_out
  /// (B, T) float32: the weight of each row's pair; undefined: each is 1.
  Tensor target_weights = {};
  /// (B, T, S) float32: of each target token, which share of its pair's weight each source token
  /// has that it is aligned with; a token without a link has zeros. Undefined: no alignments.
  Tensor alignment = {};
  int64_t rows = 0;           ///< B
  int64_t source_tokens = 0;  ///< without padding: sums of the lengths
  int64_t target_tokens = 0;
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's pair

  /// The sum of the weights of the target's tokens.
  double target_weight() const;
};

/// Rows [begin, end) of a batch, with their token counts; the tensors share storage. Every kind of
/// batch has this.
TranslationBatch rows_of(const TranslationBatch& batch, int64_t begin, int64_t end);

/// A number of batches that were cut by these two of BatchOptions.
struct TakenBatches {
  std::string batch_type;
  int64_t batch_size = 0;
  int64_t batches = 0;
  bool operator==(const TakenBatches&) const = default;
};

/// A place between two batches: `batch` batches of epoch `epoch` have been taken, so the next one
/// is number `batch`. Both count from 0.
struct DataPosition {
  int64_t epoch = 0;
  int64_t batch = 0;
  /// Batches taken from the epoch before its batch 0, if batches changed their size: `batch` counts
  /// the batches of the remaining rows. So no row comes twice and none is left out.
  std::vector<TakenBatches> before = {};
  bool operator==(const DataPosition&) const = default;
};

/// Tokens of a row, including special ones. If rows have only one side, both are its length.
struct RowLength {
  int64_t source = 0;
  int64_t target = 0;
};
/// The length of a row in an epoch. Several threads call it at once.
using LengthOf = std::function<RowLength(int64_t epoch, int64_t row)>;

/// The share of padding in a plan's batches.
struct PaddingReport {
  int64_t batches = 0;
  int64_t source_cells = 0, source_tokens = 0;  ///< sum of B * S, and those without padding
  int64_t target_cells = 0, target_tokens = 0;

  /// Counts a batch of rows with these lengths.
  void add(std::span<const RowLength> batch);
  /// Share of padding over both sides, in [0, 1).
  double waste() const;
  /// "112 batches, padding 0.8 %: 1.2 % of source, 0.4 % of target"
  std::string summary() const;
};

/// Some rows of an epoch, cut into batches.
class EpochPlan {
 public:
  /// The plan of all rows of a corpus at once, in any order of windows.
  EpochPlan(const ParallelCorpus& corpus, const BatchOptions& options, int64_t epoch);

  int64_t batches() const { return std::ssize(ranges_); }
  /// Row numbers of batch `i`.
  std::span<const int64_t> batch(int64_t i) const;
  /// Of the batches of a plan by lengths.
  const PaddingReport& padding() const { return padding_; }

 private:
  friend struct EpochPlans;
  EpochPlan() = default;

  struct Range {
    int64_t begin, end;
  };
  std::vector<int64_t> order_;
  std::vector<Range> ranges_;
  PaddingReport padding_;
};

/// Rows of one length.
struct EqualRows {
  std::function<int64_t(int64_t epoch)> rows;  ///< of an epoch
  int64_t batch_size = 1;
  bool shuffle = true;
  uint64_t seed = 1;
  int64_t window_rows = kWindowRows;
  int64_t row_tokens = 1;  ///< by which a batch_size of tokens is divided
};

struct LengthPlanner;  // of batching.cpp
struct EqualPlanner;

/// The plan by which epochs of a corpus are cut into batches, window by window, so that only one
/// window is in memory. Everything is a function of (seed, epoch). Copies remember the last plan by
/// lengths together, so that whoever asks for it next need not measure the rows again.
struct EpochPlans {
  std::function<int64_t(int64_t epoch)> windows;
  std::function<EpochPlan(int64_t epoch, int64_t window)> plan;
  /// plan(epoch, window).batches(), in less time.
  std::function<int64_t(int64_t epoch, int64_t window)> batches;
  /// The same without the rows that were taken before (DataPosition::before). Throws Error(kData)
  /// if the epoch has fewer rows.
  std::function<EpochPlans(const DataPosition& start)> without_taken;

  /// Batches of similar length. Rows come in a random order: an epoch of one window is shuffled
  /// (Philox, key (seed, epoch)); a larger one goes through a pseudo-random permutation, which is
  /// cut into windows of about equal size. A window is sorted by the longer side, then by the
  /// difference of the two, keeping the random order within ties, and cut by batch_size, and its
  /// batches are shuffled. Without shuffle there is one window in the order of the corpus. The
  /// functions throw Error(kConfig) if a single row has more tokens than batch_size, Error(kData)
  /// for an empty corpus.
  static EpochPlans of_lengths(Mixture rows, LengthOf length, const BatchOptions& options);

  /// Batches in a random order (in windows of whole batches) or in order; the last one may be
  /// short.
  static EpochPlans of_equal_rows(const EqualRows& given);

 private:
  static EpochPlans of_planner(const std::shared_ptr<const LengthPlanner>& planner);
  static EpochPlans of_planner(const EqualPlanner& planner);
};

/// Throws Error(kData): a saved place that the epoch does not have.
[[noreturn]] void fail_position(int64_t epoch, int64_t batches, int64_t saved);

/// Walks through the batches of the epochs' plans. All kinds of batches use it.
class EpochWalk {
 public:
  /// Starts at `start`, which may lie at the end of an epoch. Throws Error(kData) if that epoch has
  /// fewer batches than start.batch, or than were taken before.
  EpochWalk(EpochPlans plans, const DataPosition& start);

  /// Row numbers of the next batch, valid until the next call.
  std::span<const int64_t> next();
  /// Goes on as that many calls of next() do. Windows that are left behind are counted only.
  void skip(int64_t batches);
  /// After the batch returned last; {e, batches} after the last one of epoch e.
  DataPosition position() const { return position_; }
  /// Batches of the epoch of position(), without those of DataPosition::before. Counts all of its
  /// windows.
  int64_t batches_in_epoch() const;
  /// For people: the padding of the window that it is in; empty if rows have one length.
  std::string summary();

 private:
  bool at_window_end() const { return position_.batch == first_ + count_; }
  /// Moves to the next window, which is not planned yet.
  void enter_next_window();

  EpochPlans plans_;
  DataPosition position_;
  int64_t window_ = 0;
  int64_t first_ = 0;              // batches of the epoch before the window
  int64_t count_ = 0;              // batches of the window
  std::optional<EpochPlan> plan_;  // of the window, once a batch of it is needed
};

/// The batch of these pairs, in this order, as they are in an epoch.
TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices, int64_t epoch = 0);

/// Plans by the lengths of the pairs; `corpus` must outlive them.
EpochPlans plans_of(const ParallelCorpus& corpus, const BatchOptions& options);

/// Walks through batches, epoch after epoch. Every class named ...Batches has these members, and
/// summary() says for people how rows fill them (empty: nothing to say); Loader
/// (data/batches/loader.h) runs any of them on a background thread.
class TranslationBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk does.
  TranslationBatches(const ParallelCorpus& corpus, const BatchOptions& options,
                     DataPosition start = {});
  /// By plans_of() the corpus.
  TranslationBatches(const ParallelCorpus& corpus, EpochPlans plans, const DataPosition& start);

  TranslationBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  /// Batches of the epoch that position() is in.
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  /// Goes on as that many calls of next() do, without making the batches.
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const ParallelCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
