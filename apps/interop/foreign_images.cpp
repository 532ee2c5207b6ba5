#include "apps/interop/foreign_images.h"

#include <cmath>

#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

using Numbers = std::vector<double>;

// One number for both sides, or height and width.
std::pair<int64_t, int64_t> sides_of(const Json& config, Reasons& reasons) {
  const auto found = config.find("image_size");
  if (found != config.end() && found->is_array() && found->size() == 2 &&
      (*found)[0].is_number_integer() && (*found)[1].is_number_integer()) {
    return {(*found)[0].get<int64_t>(), (*found)[1].get<int64_t>()};
  }
  const int64_t size = number_of(config, "image_size", 224, reasons);
  return {size, size};
}

// A number for each channel.
Numbers channels_of(const Json& processor, const char* key, int64_t channels, Reasons& reasons) {
  const auto found = processor.find(key);
  if (found == processor.end() || found->is_null() || found->empty()) {
    return Numbers(static_cast<size_t>(channels), 0.5);
  }
  Numbers numbers;
  for (const Json& value : found->is_array() ? *found : Json::array({*found})) {
    if (value.is_number()) numbers.push_back(value.get<double>());
  }
  if (found->is_number()) numbers.resize(static_cast<size_t>(channels), numbers[0]);
  if (std::ssize(numbers) != channels) {
    reasons.push_back(concat(key, " is ", found->dump(), ", expected ", channels, " numbers"));
    return Numbers(static_cast<size_t>(channels), 0.5);
  }
  return numbers;
}

// Theirs is (byte * factor - mean) / std, ours (byte / 255 - mean) / std.
Json normalisation_of(const Json& processor, int64_t channels, Reasons& reasons) {
  Numbers mean(static_cast<size_t>(channels), 0), std(static_cast<size_t>(channels), 1);
  if (processor.value("do_normalize", Json(true)) != false) {
    mean = channels_of(processor, "image_mean", channels, reasons);
    std = channels_of(processor, "image_std", channels, reasons);
  }
  constexpr double kBytes = 255, kRounding = 1e-9;
  const bool scales = processor.value("do_rescale", Json(true)) != false;
  const Json factor = processor.value("rescale_factor", Json(1 / kBytes));
  if (scales && (!factor.is_number() || factor.get<double>() <= 0)) {
    reasons.push_back(concat("rescale_factor is ", factor.dump(), ", expected more than 0"));
    return {{"mean", mean}, {"std", std}};
  }
  const double scale = kBytes * (scales ? factor.get<double>() : 1);
  if (std::abs(scale - 1) > kRounding) {
    for (double& value : mean) value /= scale;
    for (double& value : std) value /= scale;
  }
  return {{"mean", mean}, {"std", std}};
}

}  // namespace

Json our_image_format(const Json& config, const Json& processor, Reasons& reasons) {
  const auto [height, width] = sides_of(config, reasons);
  const int64_t channels = number_of(config, "num_channels", 3, reasons);
  constexpr int64_t kMostChannels = 1024;
  if (channels < 1 || channels > kMostChannels) {
    reasons.push_back(concat("num_channels is ", channels, ", expected 1 to ", kMostChannels));
    return {};
  }
  Json format = {{"height", height}, {"width", width}, {"channels", channels}};
  format.update(normalisation_of(processor, channels, reasons));
  return format;
}

void add_image_size(const ImageSize& size, Json& config) {
  if (size.height == size.width) {
    config["image_size"] = size.height;
  } else {
    config["image_size"] = {size.height, size.width};
  }
  config["num_channels"] = size.channels;
}

Json their_preprocessor(const ImageFormat& format, const Json& came) {
  const ImageSize& size = format.size;
  Json processor = came.is_object() ? came : Json::object();
  const auto add = [&](const Json& keys, bool replaces) {
    for (const auto& [key, value] : keys.items()) {
      if (replaces || !processor.contains(key)) processor[key] = value;
    }
  };
  Reasons none;
  const Json ours = {{"mean", format.mean}, {"std", format.std}};
  const bool same = came.is_object() && normalisation_of(came, size.channels, none) == ours;
  add({{"image_processor_type", "ViTImageProcessor"}, {"do_resize", true}}, false);
  const bool one_side = processor.value("size", Json()) == size.height && size.height == size.width;
  add({{"size", {{"height", size.height}, {"width", size.width}}}}, !one_side);
  if (same) return processor;
  add({{"do_rescale", true},
       {"rescale_factor", 1 / 255.0},
       {"do_normalize", true},
       {"image_mean", format.mean},
       {"image_std", format.std}},
      true);
  return processor;
}

}  // namespace tapestry::interop
