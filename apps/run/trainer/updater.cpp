#include "apps/run/trainer/updater.h"

#include <algorithm>
#include <utility>

#include "apps/run/activation_watch.h"
#include "apps/run/signals.h"
#include "apps/run/updates.h"
#include "core/base/clock.h"
#include "core/device_runtime.h"

namespace tapestry {
namespace {

// Random streams set aside for each micro-batch of an update.
constexpr uint32_t kStreamsPerMicroBatch = 1 << 16;
// A rank's own numbers besides the update's: the signal that it got, its clock, its seconds.
constexpr size_t kOwn = 3;

std::unique_ptr<GradientExchange> make_exchange(Training& training) {
  const DistributedOptions& options = training.config.distributed;
  Ranks& ranks = training.ranks;
  if (ranks.is_alone() && options.parts <= 1) return nullptr;
  const std::vector<ParamGroup> groups =
      update_groups(training.config, training.trained, training.task.parameters());
  const bool on_gpus = !groups.empty() && !groups.front().params.empty() &&
                       !groups.front().params.front().second.value().device().is_cpu();
  if (!ranks.is_alone() && on_gpus) ranks.communicator().connect_gpus(options.sum);
  constexpr double kMegabyte = 1 << 20;
  return std::make_unique<GradientExchange>(
      ranks.communicator(), groups,
      ExchangeOptions{.parts = options.parts,
                      .shard = options.shard,
                      .bucket_bytes = static_cast<int64_t>(kMegabyte * options.bucket_mb)});
}

// Running statistics wait for the moments of all ranks. They are among the parameters without
// gradient.
std::optional<DeferredStatistics> defer_statistics(const Training& training) {
  if (training.ranks.is_alone() || training.config.model.norm != NormKind::kBatch) return {};
  std::vector<Tensor> running;
  for (const auto& [name, var] : training.params) {
    if (!var.needs_grad()) running.push_back(var.value());
  }
  return std::make_optional<DeferredStatistics>(std::move(running));
}

}  // namespace

Updater::Updater(Training& training)
    : training_(training),
      exchange_(make_exchange(training)),
      optimizer_(
          training.config.optimizer,
          exchange_ ? exchange_->groups()
                    : update_groups(training.config, training.trained, training.task.parameters())),
      statistics_(defer_statistics(training)),
      agreed_seconds_(training.state.seconds) {
  if (training.config.training.optimizer_in_backward) {
    in_backward_.emplace(optimizer_);
  } else if (!exchange_) {
    reserve_gradients(training.trained);
  }
}

bool Updater::launch(
    const std::function<void(const Update&, const std::vector<Tensor>& sums)>& before_step) {
  const double before = steady_seconds(), waited = times_.waited;
  training_.ranks.communicator().doing("computing an update");
  Launched launched{.update = begin(), .sums = {}};
  double* const largest = &launched.update.largest_activation;
  std::vector<Tensor> sums;
  if (in_backward_) {
    const auto open = [&](const std::vector<Tensor>& of_loss) {
      before_step(launched.update, of_loss);
      in_backward_->open(training_.rate_of(launched.update.step), clip_of(launched.update),
                         of_loss);
    };
    sums = compute_gradients(launched.update.size, largest, open);
    in_backward_->close();
  } else {
    sums = compute_gradients(launched.update.size, largest);
    if (sums.empty()) {
      optimizer_.zero_grad();
      return false;
    }
    exchange(sums, steady_seconds() - before - (times_.waited - waited));
    before_step(launched.update, sums);
    step(launched.update, sums);
    optimizer_.zero_grad();
    if (exchange_) exchange_->share_parameters();
  }
  for (const Tensor& of_one : sums) launched.sums.emplace_back(of_one);
  training_.state.tokens += launched.update.size.tokens;
  launched_ = std::move(launched);
  return true;
}

std::optional<Update> Updater::finish() {
  if (!launched_) return {};
  Update update = launched_->update;
  const double targets = update.size.targets;
  const StepResult result = optimizer_.outcome();
  update.grad_norm = result.grad_norm;
  update.finite = result.finite;
  update.updated_before = result.updated_before;
  update.culprit = result.culprit;
  for (HostCopy& copy : launched_->sums) {
    const Tensor sums = copy.wait();
    const auto* const values = sums.data<double>();
    update.loss += values[0] / targets;
    update.nll += values[1] / targets;
    if (sums.numel() > 3) update.divergence += values[3] / targets;
    if (sums.numel() > 4) update.alignment += values[4] / targets;
  }
  launched_.reset();
  if (update.finite) training_.state.grad_norm = update.grad_norm;
  if (ema_ && update.finite) ema_->update();
  return update;
}

Update Updater::begin() {
  Ranks& ranks = training_.ranks;
  const TrainerState& state = training_.state;
  TrainingTask& task = training_.task;
  Update update{.step = state.step + 1, .start = state.position, .size = {}};
  const int64_t of_rank = training_.config.training.gradient_accumulation_steps / ranks.size();
  const UpdateSize own = task.next_update(of_rank);
  const DataPosition place = task.position();
  const double before = steady_seconds();
  const std::vector<std::vector<double>> all = ranks.all_gather(
      {static_cast<double>(state.step), static_cast<double>(place.epoch),
       static_cast<double>(place.batch), static_cast<double>(own.tokens), own.targets});
  times_.waited += steady_seconds() - before;
  update.size.micro_batches = own.micro_batches;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<double>& word = all[static_cast<size_t>(rank)];
    check(word.size() == 5, "train", "expected 5 numbers from a rank, got ", word.size(), '.');
    check(std::equal(word.begin(), word.begin() + 3, all.front().begin()), "train",
          ranks.name_of(rank), " stands at update ", word[0], ", epoch ", word[1], ", batch ",
          word[2], "; rank 0 at ", all[0][0], ", ", all[0][1], ", ", all[0][2], '.');
    update.size.tokens += static_cast<int64_t>(word[3]);
    update.size.targets += word[4];
  }
  return update;
}

// An update cannot be left if others wait for this rank's gradients, if parts are half collected,
// or if running statistics have moved.
bool Updater::can_leave_update() const {
  return exchange_ == nullptr && training_.config.model.norm != NormKind::kBatch;
}

std::vector<Tensor> Updater::compute_gradients(const UpdateSize& size, double* largest,
                                               const BetweenPasses& between) {
  const Config& config = training_.config;
  const CrossEntropyOptions options{.label_smoothing = config.training.label_smoothing,
                                    .normalizer = size.targets};
  const auto step = static_cast<uint32_t>(training_.state.step);
  const int64_t of_part = exchange_ ? size.micro_batches / exchange_->local_parts() : 0;
  const int64_t first = size.micro_batches * training_.ranks.rank();
  std::optional<ActivationWatch> watch;
  const bool watches = largest != nullptr && counts_figures_ && training_.device().is_cpu();
  if (watches) watch.emplace(training_.state.step);
  std::vector<Tensor> sums;
  for (int64_t i = 0; i < size.micro_batches; ++i) {
    if (i > 0 && can_leave_update() && pending_signal() != 0) return {};
    // Its number in the update, whichever rank computes it.
    const auto number = static_cast<uint32_t>(first + i);
    const auto forward_and_backward = [&] {
      Tape tape({.seed = config.seed, .step = step, .stream = number * kStreamsPerMicroBatch});
      const CrossEntropy result = training_.task.loss(i, options);
      sums.push_back(result.sums);
      if (between) between(sums);
      if (!training_.trained.empty()) tape.backward(result.loss);
    };
    const bool ends_part = exchange_ && (i + 1) % of_part == 0;
    if (ends_part) exchange_->open_part();
    if (config.cuda_graphs) {
      as_graph(training_.device(), std::ref(forward_and_backward));  // by reference: no allocation
    } else {
      forward_and_backward();
    }
    if (ends_part) exchange_->close_part();
  }
  if (watch) *largest = watch->largest();
  return sums;
}

void Updater::exchange(std::vector<Tensor>& sums, double computed) {
  Ranks& ranks = training_.ranks;
  const double waited = exchange_ ? exchange_->seconds_waited() : 0;
  if (ranks.is_alone()) {  // the sums stay on their device: nobody waits for them
    if (exchange_) exchange_->finish();
    return;
  }
  ranks.communicator().doing("exchanging gradients");
  std::vector<double> own = {static_cast<double>(pending_signal()), training_.state.seconds,
                             computed};
  std::vector<double> numbers(static_cast<size_t>(sums.front().numel()));  // of a micro-batch
  for (const Tensor& of_one : sums) {
    const std::vector<double> values = of_one.to_vector<double>();
    own.insert(own.end(), values.begin(), values.end());
  }
  const std::string mine = pack({bytes_of(own), statistics_ ? statistics_->take() : ""});
  const std::vector<std::string> words =
      exchange_ ? exchange_->finish(mine) : ranks.communicator().all_gather(mine);
  if (exchange_) times_.waited += exchange_->seconds_waited() - waited;
  sums.clear();
  times_.computed.resize(words.size());
  std::vector<std::string> moments;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    std::vector<std::string> texts = unpack(words[rank]);
    const std::vector<double> word = numbers_of(texts.at(0));
    moments.push_back(std::move(texts.at(1)));
    if (agreed_signal_ == 0) agreed_signal_ = static_cast<int>(word.at(0));
    if (rank == 0) agreed_seconds_ = word.at(1);
    times_.computed[rank] += word.at(2);
    for (auto at = word.begin() + kOwn; at < word.end(); at += std::ssize(numbers)) {
      std::copy_n(at, numbers.size(), numbers.begin());
      sums.push_back(Tensor::from(numbers, {std::ssize(numbers)}).to(training_.device()));
    }
  }
  if (statistics_) statistics_->apply(moments);
}

void Updater::step(Update& update, const std::vector<Tensor>& sums) {
  optimizer_.launch(training_.rate_of(update.step), clip_of(update), /*gradient_scale=*/1,
                    /*also_finite=*/sums, exchange_ ? exchange_->squares() : Tensor());
}

// The update before is finished here.
ClipOptions Updater::clip_of(Update& update) const {
  update.former_norm = training_.state.grad_norm;
  return training_.config.training.clip_options(update.former_norm);
}

NamedTensors Updater::whole_state() {
  return exchange_ ? exchange_->gather_state(optimizer_) : optimizer_.state();
}

NamedTensors Updater::whole_masters() {
  return exchange_ ? exchange_->gather_masters(optimizer_) : optimizer_.masters();
}

void Updater::load_pieces(const NamedTensors& masters, const NamedTensors* state) {
  if (!has_pieces()) return;
  exchange_->load_masters(optimizer_, masters);
  if (state != nullptr) exchange_->load_state(optimizer_, *state);
}

bool Updater::has_pieces() const {
  return !training_.ranks.is_alone() && training_.config.distributed.shard == Shard::kOptimizer;
}

// Without the warm-up, the average of a short run would be mostly its random beginning.
void Updater::begin_averages() {
  ema_ = std::make_unique<Ema>(
      EmaOptions{.decay = training_.config.training.ema_decay, .warmup = true}, training_.trained,
      has_pieces() ? NamedTensors() : optimizer_.masters());
}

void Updater::count_figures() {
  counts_figures_ = true;
  optimizer_.count_figures();
}

double Updater::agreed_seconds() const {
  return training_.ranks.is_alone() ? training_.state.seconds : agreed_seconds_;
}

int Updater::agreed_signal() const {
  return training_.ranks.is_alone() ? pending_signal() : agreed_signal_;
}

std::string Updater::ranks_and_parts() const {
  if (!exchange_) return "";
  const Config& config = training_.config;
  const Ranks& ranks = training_.ranks;
  const int64_t parts = config.distributed.parts;
  const int64_t of_part = config.training.gradient_accumulation_steps / parts;
  std::string text = concat(ranks.summary(), ": ", parts, parts == 1 ? " part" : " parts", " of ",
                            of_part, of_part == 1 ? " micro-batch" : " micro-batches");
  if (ranks.is_alone()) return text;
  const int64_t buckets = exchange_->buckets();
  return text + concat(", ", buckets, buckets == 1 ? " bucket" : " buckets", " of ",
                       config.distributed.bucket_mb, " MB, ",
                       training_.ranks.communicator().library());
}

}  // namespace tapestry
