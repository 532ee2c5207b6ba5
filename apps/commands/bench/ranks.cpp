#include "apps/commands/bench/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/commands/bench/bench.h"
#include "core/base/clock.h"
#include "optim/optimizer.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGoodEfficiency = 0.9;

// The largest value of all ranks.
double largest(Ranks& ranks, double value) {
  for (const std::vector<double>& other : ranks.all_gather(std::vector<double>{value})) {
    value = std::max(value, other.at(0));
  }
  return value;
}

}  // namespace

RanksMeasured measure_ranks(Ranks& ranks, const Config& config,
                            const std::vector<ParamGroup>& groups, const RanksBench& bench) {
  RanksMeasured measured;
  measured.ranks = ranks.size();
  Communicator& communicator = ranks.communicator();
  measured.library = communicator.library();
  measured.hosts = static_cast<int>(
      std::set<std::string>(communicator.hosts().begin(), communicator.hosts().end()).size());
  measured.micro_batches =
      std::max<int64_t>(1, config.training.gradient_accumulation_steps / measured.ranks);
  measured.shard = config.distributed.shard;
  const ExchangeOptions options{
      .parts = measured.ranks,
      .shard = measured.shard,
      .bucket_bytes = static_cast<int64_t>(config.distributed.bucket_mb * (1 << 20))};
  if (!parse_device(config.device).is_cpu()) communicator.connect_gpus(config.distributed.sum);
  communicator.doing("measuring the link");
  measured.link = measure_link(communicator, {.bucket_bytes = options.bucket_bytes});
  communicator.doing("measuring steps");
  GradientExchange exchange(communicator, groups, options);
  Optimizer optimizer(config.optimizer, exchange.groups());
  std::vector<double> seconds;
  double waited = 0;
  for (int64_t step = 0; step < bench.warmup_steps + bench.steps; ++step) {
    if (step == bench.warmup_steps) waited = exchange.seconds_waited();
    communicator.all_gather("");  // as training agrees on an update
    const double start = steady_seconds();
    for (int64_t i = 1; i < measured.micro_batches; ++i) bench.micro_batch();
    exchange.open_part();
    bench.micro_batch();
    exchange.close_part();
    exchange.finish();
    optimizer.launch(config.learning_rate, config.training.clip_options(), 1, {},
                     exchange.squares());
    optimizer.outcome();
    optimizer.zero_grad();
    exchange.share_parameters();
    if (step >= bench.warmup_steps) seconds.push_back(steady_seconds() - start);
  }
  measured.waited_seconds =
      (exchange.seconds_waited() - waited) / static_cast<double>(seconds.size());
  measured.step_seconds = largest(ranks, median(seconds));
  measured.cost = {.micro_batch_seconds = largest(ranks, bench.micro_batch_seconds),
                   .update_seconds = largest(ranks, bench.update_seconds),
                   .ready = exchange.ready()};
  measured.predicted = predict_step(measured.cost, measured.link, measured.shard, measured.ranks,
                                    measured.micro_batches);
  return measured;
}

void add_ranks(const RanksMeasured& measured, Json& figures) {
  figures["ranks"] = measured.ranks;
  figures["hosts"] = measured.hosts;
  figures["transport"] = measured.library;
  figures["link_latency_s"] = measured.link.latency_seconds;
  figures["link_bytes_per_s"] = measured.link.bytes_per_second;
  figures["micro_batches_per_rank"] = measured.micro_batches;
  figures["micro_batch_s"] = measured.cost.micro_batch_seconds;
  figures["update_s"] = measured.cost.update_seconds;
  Json& buckets = figures["buckets"] = Json::array();
  for (const BucketReady& bucket : measured.cost.ready) {
    buckets.push_back(
        {{"bytes", bucket.bytes}, {"complete_s_before_the_end", bucket.seconds_left}});
  }
  figures["exchange_step_s"] = measured.step_seconds;
  figures["exchange_waited_s"] = measured.waited_seconds;
  figures["exchange_predicted_step_s"] = measured.predicted.seconds;
  figures["exchange_predicted_waited_s"] = measured.predicted.exposed_seconds;
  Json& rows = figures["prediction"] = Json::array();
  for (const int64_t ranks : {2, 4, 8}) {
    for (const Shard shard : kShards) {
      const StepPrediction step =
          predict_step(measured.cost, measured.link, shard, ranks, measured.micro_batches);
      rows.push_back(
          {{"ranks", ranks},
           {"shard", name_of(shard)},
           {"step_s", step.seconds},
           {"exposed_s", step.exposed_seconds},
           {"efficiency", step.efficiency},
           {"micro_batches_for_90_percent",
            micro_batches_for(kGoodEfficiency, measured.cost, measured.link, shard, ranks)}});
    }
  }
}

void print_prediction(const Json& figures) {
  fmt::print("\n{:<6} {:<10} {:>9} {:>10} {:>11}   {}\n", "ranks", "shard", "step s", "exposed s",
             "efficiency", "micro-batches a rank for 90 %");
  for (const Json& row : figures.at("prediction")) {
    const auto enough = row.at("micro_batches_for_90_percent").get<int64_t>();
    fmt::print("{:<6} {:<10} {:>9.4g} {:>10.4g} {:>9.1f} %   {}\n", row.at("ranks").get<int64_t>(),
               row.at("shard").get<std::string>(), row.at("step_s").get<double>(),
               row.at("exposed_s").get<double>(), 100 * row.at("efficiency").get<double>(),
               enough > 0 ? fmt::format("{}", enough) : "more than a million");
  }
}

}  // namespace tapestry
