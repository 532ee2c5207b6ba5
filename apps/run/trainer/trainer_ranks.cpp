// Messages between the ranks of a training.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/run/signals.h"
#include "apps/run/start.h"
#include "apps/run/trainer/trainer.h"
#include "core/base/clock.h"

namespace tapestry {
namespace {

// Numbers of CrossEntropy::sums.
constexpr size_t kSums = 3;
// A rank's own numbers besides the update's: the signal that it got, its clock, its seconds.
constexpr size_t kOwn = 3;

}  // namespace

UpdateSize Trainer::agree_on(const UpdateSize& own) {
  if (ranks_.is_alone()) return own;
  const DataPosition place = task_.position();
  const double before = steady_seconds();
  const std::vector<std::vector<double>> all = ranks_.all_gather(
      {static_cast<double>(state_.step), static_cast<double>(place.epoch),
       static_cast<double>(place.batch), static_cast<double>(own.tokens), own.targets});
  window_.waited += steady_seconds() - before;
  UpdateSize size{.micro_batches = own.micro_batches};
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const std::vector<double>& word = all[static_cast<size_t>(rank)];
    check(word.size() == 5, "train", "expected 5 numbers from a rank, got ", word.size(), '.');
    check(std::equal(word.begin(), word.begin() + 3, all.front().begin()), "train",
          ranks_.name_of(rank), " stands at update ", word[0], ", epoch ", word[1], ", batch ",
          word[2], "; rank 0 at ", all[0][0], ", ", all[0][1], ", ", all[0][2], '.');
    size.tokens += static_cast<int64_t>(word[3]);
    size.targets += word[4];
  }
  return size;
}

void Trainer::exchange(std::vector<Tensor>& sums, double computed) {
  const double waited = exchange_ ? exchange_->seconds_waited() : 0;
  if (ranks_.is_alone()) {
    if (exchange_) exchange_->finish();
    return;
  }
  ranks_.communicator().doing("exchanging gradients");
  std::vector<double> own = {static_cast<double>(pending_signal()), state_.seconds, computed};
  const Device device = task_.parameters().device();
  for (const Tensor& of_one : sums) {
    const Tensor host = of_one.to(Device{});
    const auto* const values = host.data<double>();
    own.insert(own.end(), values, values + kSums);
  }
  const std::string mine = pack({bytes_of(own), statistics_ ? statistics_->take() : ""});
  const std::vector<std::string> words =
      exchange_ ? exchange_->finish(mine) : ranks_.communicator().all_gather(mine);
  if (exchange_) window_.waited += exchange_->seconds_waited() - waited;
  sums.clear();
  window_.computed.resize(words.size());
  std::vector<std::string> moments;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    std::vector<std::string> texts = unpack(words[rank]);
    const std::vector<double> word = numbers_of(texts.at(0));
    moments.push_back(std::move(texts.at(1)));
    if (stop_signal_ == 0) stop_signal_ = static_cast<int>(word.at(0));
    if (rank == 0) agreed_seconds_ = word.at(1);
    window_.computed[rank] += word.at(2);
    for (size_t at = kOwn; at < word.size(); at += kSums) {
      sums.push_back(Tensor::from<double>({word.at(at), word.at(at + 1), word.at(at + 2)}, {kSums})
                         .to(device));
    }
  }
  if (statistics_) statistics_->apply(moments);
}

void Trainer::share(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) ranks_.broadcast(tensor);
}

void Trainer::expect_equal_parameters() {
  if (ranks_.is_alone()) return;
  ranks_.expect_equal("the parameters", checksum_of(task_.parameters()));
}

std::string Trainer::ranks_and_parts() const {
  const int64_t parts = config_.distributed.parts;
  const int64_t of_part = config_.training.gradient_accumulation_steps / parts;
  std::string text = concat(ranks_.summary(), ": ", parts, parts == 1 ? " part" : " parts", " of ",
                            of_part, of_part == 1 ? " micro-batch" : " micro-batches");
  if (ranks_.is_alone()) return text;
  const int64_t buckets = exchange_->buckets();
  return text + concat(", ", buckets, buckets == 1 ? " bucket" : " buckets", " of ",
                       config_.distributed.bucket_mb, " MB, ", ranks_.communicator().library());
}

std::string Trainer::report_ranks(MetricValues& line) const {
  if (ranks_.is_alone() || window_.computed.empty()) return "";
  const std::vector<double>& computed = window_.computed;
  const auto slowest = std::max_element(computed.begin(), computed.end());
  const auto rank = static_cast<int>(slowest - computed.begin());
  const double mean = std::accumulate(computed.begin(), computed.end(), 0.) / ranks_.size();
  const double share = window_.waited / window_.seconds, over = *slowest / mean;
  line.insert(line.end(), {{"ranks", ranks_.size()},
                           {"exchange_share", share},
                           {"slowest_rank", rank},
                           {"slowest_over_mean", over}});
  return fmt::format("  exchange {:.1f} %  slowest {} +{:.1f} %", 100 * share, ranks_.name_of(rank),
                     100 * (over - 1));
}

}  // namespace tapestry
