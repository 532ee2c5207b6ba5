#include "apps/run/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLongestLine = 1 << 20;

// JSON has no infinity.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number_of(const Json& value) {
  return value.is_string() ? std::strtod(value.get<std::string>().c_str(), nullptr)
                           : value.get<double>();
}

std::optional<double> optional_of(const Json& object, const char* key) {
  if (!object.contains(key)) return std::nullopt;
  return number_of(object.at(key));
}

// The most bytes of a record with these layers.
int64_t most_bytes(const UpdateRecord& record) {
  constexpr int64_t kFixed = 512, kNumber = 20;
  int64_t bytes = kFixed;
  for (const auto& [name, norm] : record.layers) bytes += std::ssize(name) + kNumber;
  return bytes;
}

// Removes zeros before the first line: the ring may not begin with its first record.
std::string without_zeros(std::string line) {
  line.erase(0, std::min(line.find_first_not_of('\0'), line.size()));
  return line;
}

// NaN is the same as NaN here.
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// "encoder.layers.0.fc1.weight" -> "encoder.layers.0", "embedding.weight" -> "embedding"
std::string layer_of(const std::string& parameter) {
  size_t begin = 0;
  while (true) {
    const size_t end = parameter.find('.', begin);
    if (end == std::string::npos) break;
    const std::string part = parameter.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      return parameter.substr(0, end);
    }
    begin = end + 1;
  }
  return begin == 0 ? parameter : parameter.substr(0, begin - 1);
}

}  // namespace

bool UpdateRecord::same_bits(const UpdateRecord& other) const {
  return same(loss, other.loss) && same(nll, other.nll) && same(grad_norm, other.grad_norm);
}

std::string to_json(const UpdateRecord& record) {
  Json line{{"step", record.step},
            {"seed", record.seed},
            {"epoch", record.start.epoch},
            {"batch", record.start.batch},
            {"micro_batches", record.micro_batches},
            {"tokens", record.tokens},
            {"targets", record.targets},
            {"loss", number(record.loss)},
            {"nll", number(record.nll)},
            {"grad_norm", number(record.grad_norm)},
            {"clip", number(record.clip)},
            {"learning_rate", number(record.rate)}};
  if (record.largest_activation) line["largest_activation"] = number(*record.largest_activation);
  if (record.zero_gradients) line["zero_gradients"] = number(*record.zero_gradients);
  for (const auto& [name, norm] : record.layers) {
    line["layers"][name] = number(std::stod(fmt::format("{:.6g}", norm)));
  }
  return line.dump();
}

std::optional<UpdateRecord> parse_update_record(const std::string& text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return std::nullopt;
  try {
    UpdateRecord record{.step = line.at("step"),
                        .seed = line.at("seed"),
                        .start = {line.at("epoch"), line.at("batch")},
                        .micro_batches = line.at("micro_batches"),
                        .tokens = line.at("tokens"),
                        .targets = line.at("targets"),
                        .loss = number_of(line.at("loss")),
                        .nll = number_of(line.at("nll")),
                        .grad_norm = number_of(line.at("grad_norm")),
                        .clip = number_of(line.at("clip")),
                        .rate = number_of(line.at("learning_rate")),
                        .largest_activation = optional_of(line, "largest_activation"),
                        .zero_gradients = optional_of(line, "zero_gradients"),
                        .layers = {}};
    if (line.contains("layers")) {
      for (const auto& [name, norm] : line.at("layers").items()) {
        record.layers.emplace_back(name, number_of(norm));
      }
    }
    if (record.step < 1) return std::nullopt;
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::vector<std::pair<std::string, double>> norms_by_layer(
    const std::vector<GradientFigures>& figures) {
  std::vector<std::pair<std::string, double>> layers;
  for (const GradientFigures& of : figures) {
    const std::string name = layer_of(of.name);
    auto layer = std::ranges::find(layers, name, &std::pair<std::string, double>::first);
    if (layer == layers.end()) layer = layers.insert(layer, {name, 0});
    if (of.elements > 0) layer->second += of.squares;
  }
  for (auto& [name, norm] : layers) norm = std::sqrt(norm);
  return layers;
}

// Exponential averages, with the plain ones at the beginning. A loss that jumps counts as the
// bound.
bool LossWatch::jumps(double loss, double deviations) {
  constexpr int64_t kFewest = 20;
  constexpr double kLeastShare = 0.02, kLeastRise = 0.1;
  const double bound = mean_ + deviations * std::sqrt(variance_) + kLeastRise * std::abs(mean_);
  const bool jumped = deviations > 0 && count_ >= kFewest && loss > bound;
  const double counted = jumped ? bound : loss;
  if (!std::isfinite(counted)) return false;
  ++count_;
  const double share = std::max(kLeastShare, 1.0 / static_cast<double>(count_));
  const double away = counted - mean_;
  mean_ += share * away;
  variance_ = (1 - share) * (variance_ + share * away * away);
  return jumped;
}

FlightRecorder::FlightRecorder(std::string path, int64_t records, int64_t step)
    : path_(std::move(path)), records_(records) {
  // A link would lead out of the folder.
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) {
    fail(ErrorKind::kRuntime, "[run] cannot write ", path_, ": ", std::strerror(errno), '.');
  }
  std::ifstream in(path_);
  std::string first;
  if (std::getline(in, first) && !in.eof()) {
    line_bytes_ = std::ssize(without_zeros(std::move(first))) + 1;
  }
  // The lines of a longer ring would stay behind the end of this one.
  std::error_code unknown;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path_, unknown));
  if (!unknown && bytes > records_ * line_bytes_) line_bytes_ = 0;
  for (const UpdateRecord& record : read(path_)) {
    if (record.step <= step) losses_.jumps(record.loss, /*deviations=*/0);
  }
}

FlightRecorder::~FlightRecorder() { close(descriptor_); }

bool FlightRecorder::write(const UpdateRecord& record) {
  std::string line = to_json(record);
  if (const int64_t most = most_bytes(record); most != line_bytes_) {  // none yet, or other layers
    if (most > kLongestLine || ftruncate(descriptor_, 0) != 0) return false;
    line_bytes_ = most;
  }
  line.resize(static_cast<size_t>(line_bytes_ - 1), ' ');
  line += '\n';
  const int64_t at = (record.step - 1) % records_ * line_bytes_;
  return pwrite(descriptor_, line.data(), line.size(), at) == std::ssize(line);
}

std::vector<UpdateRecord> FlightRecorder::read(const std::string& path) {
  std::vector<UpdateRecord> records;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    line = without_zeros(std::move(line));
    if (std::ssize(line) > kLongestLine) break;
    if (auto record = parse_update_record(line)) records.push_back(std::move(*record));
  }
  std::ranges::sort(records, {}, &UpdateRecord::step);
  return records;
}

}  // namespace tapestry
