#include "apps/commands/pages/attention_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/commands/pages/web_page.h"
#include "core/base/base64.h"
#include "core/dispatch.h"
#include "data/files/files.h"
#include "data/images/images.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

// heads[h][t][s] = number(weight).
template <class Number>
Json heads_of(const Tensor& weights, Number number) {
  Json heads = Json::array();
  const int64_t count = weights.shape()[0], rows = weights.shape()[1], cols = weights.shape()[2];
  dispatch_wide(weights.dtype(), [&](auto type) {
    const auto* weight = weights.data<decltype(type)>();
    for (int64_t h = 0; h < count; ++h) {
      Json head = Json::array();
      for (int64_t t = 0; t < rows; ++t) {
        Json row = Json::array();
        for (int64_t s = 0; s < cols; ++s) row.push_back(number(double(*weight++)));
        head.push_back(std::move(row));
      }
      heads.push_back(std::move(head));
    }
  });
  return heads;
}

// In thousandths: the eye cannot see finer differences.
Json shades_of(const Tensor& weights) {
  return heads_of(weights, [](double weight) { return std::lround(1000 * weight); });
}

Json numbers_of(const Tensor& weights) {
  constexpr double kUnit = 1e6;  // six digits: more would only show the rounding of float32
  return heads_of(weights, [](double weight) {
    return std::isfinite(weight) ? Json(std::round(kUnit * weight) / kUnit) : Json();
  });
}

Json image_of(const AttentionImage& image) {
  return {{"height", image.height},
          {"width", image.width},
          {"channels", image.channels},
          {"patch_size", image.patch_size},
          {"pixels", image.pixels}};
}

// The image for a browser.
Json png_of(const AttentionImage& image) {
  const Picture picture{{image.height, image.width, image.channels}, image.pixels};
  return {{"height", image.height},
          {"width", image.width},
          {"patch_size", image.patch_size},
          {"png", base64(tapestry::png_of(picture))}};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string attention_html(const std::vector<AttentionPage>& pages) {
  Json list = Json::array();
  for (const AttentionPage& page : pages) {
    Json axes = Json::array(), maps = Json::array();
    for (const AttentionAxis& axis : page.axes) axes.push_back(axis.labels);
    for (const AttentionMap& map : page.maps) {
      maps.push_back({{"name", map.name},
                      {"rows", map.rows},
                      {"columns", map.columns},
                      {"heads", shades_of(map.weights)}});
    }
    list.push_back({{"title", page.title}, {"axes", std::move(axes)}, {"maps", std::move(maps)}});
    if (page.image) list.back()["image"] = png_of(*page.image);
  }
  return html_of({.title = "Attention",
                  .styles = {"attention.css"},
                  .scripts = {"page.js", "attention.js"},
                  .data = text_of(list)});
}

std::string attention_json(const std::vector<AttentionPage>& pages) {
  Json list = Json::array();
  for (const AttentionPage& page : pages) {
    Json axes = Json::array(), maps = Json::array();
    for (const AttentionAxis& axis : page.axes) {
      axes.push_back({{"name", axis.name}, {"tokens", axis.labels}});
    }
    for (const AttentionMap& map : page.maps) {
      maps.push_back({{"name", map.name},
                      {"rows", page.axes.at(map.rows).name},
                      {"columns", page.axes.at(map.columns).name},
                      {"heads", numbers_of(map.weights)}});
      if (!map.scores.defined()) continue;
      maps.back()["products"] = numbers_of(map.products);
      maps.back()["scores"] = numbers_of(map.scores);
    }
    list.push_back({{"title", page.title}, {"axes", std::move(axes)}, {"maps", std::move(maps)}});
    if (page.image) list.back()["image"] = image_of(*page.image);
  }
  return text_of({{"pages", std::move(list)}}) + '\n';
}

AttentionBook::AttentionBook(const std::string& path) : json_(path.ends_with(".json")) {
  if (!path.empty()) file_.emplace(path);
}

void AttentionBook::write() {
  if (!file_) return;
  file_->stream() << (json_ ? attention_json(pages_) : attention_html(pages_));
  file_->finish();
}

}  // namespace tapestry
