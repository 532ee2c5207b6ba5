#include "apps/commands/attention_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/dispatch.h"
#include "data/files.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Attention</title>
<style>
body { font: 14px sans-serif; margin: 1.5em; color: #222; background: #fff; }
label { margin-right: 1.5em; }
#heads { display: flex; flex-wrap: wrap; gap: 1.5em; margin-top: 1em; }
figure { margin: 0; }
figcaption { font-weight: bold; margin-bottom: .3em; }
#cell:empty { display: none; }
#cell { position: fixed; right: 1em; top: 1em; background: #eee; padding: .3em .6em; min-width: 14em; }
</style></head><body>
<h1>Attention weights</h1>
<p>Each row is a token that asks, each column one that answers; a row adds up to 1. Dark is much. On an
image: how much of its attention the whole picture's token gives to each patch. Red is much.</p>
<label>Input <select id="page"></select></label><label>Layer <select id="map"></select></label>
<div id="cell"></div><div id="heads"></div>
<script>
const pages = )";

constexpr const char* kScript = R"(;
const byId = id => document.getElementById(id);
const unit = 22, font = '12px sans-serif';
function fill(select, names) {
  select.replaceChildren(...names.map((name, i) => new Option(name, i)));
}
function width(labels) {
  const context = document.createElement('canvas').getContext('2d');
  context.font = font;
  return Math.ceil(Math.max(...labels.map(l => context.measureText(l).width))) + 8;
}
function draw(page, map, head) {
  const rows = page.axes[map.rows], columns = page.axes[map.columns];
  const left = width(rows), top = width(columns);
  const canvas = document.createElement('canvas'), scale = window.devicePixelRatio || 1;
  const w = left + unit * columns.length + 1, h = top + unit * rows.length + 1;
  canvas.width = w * scale; canvas.height = h * scale;
  canvas.style.width = w + 'px'; canvas.style.height = h + 'px';
  const c = canvas.getContext('2d');
  c.scale(scale, scale);
  c.font = font; c.fillStyle = '#222'; c.textBaseline = 'middle';
  rows.forEach((label, t) => {
    c.textAlign = 'right';
    c.fillText(label, left - 5, top + unit * (t + .5));
  });
  columns.forEach((label, s) => {
    c.save(); c.translate(left + unit * (s + .5), top - 5); c.rotate(-Math.PI / 2);
    c.textAlign = 'left'; c.fillText(label, 0, 0); c.restore();
  });
  rows.forEach((_, t) => columns.forEach((_, s) => {
    const share = head[t][s] / 1000, shade = Math.round(255 * (1 - Math.sqrt(share)));
    c.fillStyle = `rgb(${shade}, ${Math.round(255 - (255 - shade) * .75)}, 255)`;
    c.fillRect(left + unit * s, top + unit * t, unit - 1, unit - 1);
  }));
  canvas.onmousemove = event => {
    const t = Math.floor((event.offsetY - top) / unit), s = Math.floor((event.offsetX - left) / unit);
    byId('cell').textContent = head[t] !== undefined && head[t][s] !== undefined
        ? `${rows[t]} asks ${columns[s]}: ${(head[t][s] / 1000).toFixed(3)}` : '';
  };
  return canvas;
}
function drawOnImage(page, map, head) {
  const image = page.image, shares = head[0];
  const small = document.createElement('canvas'), canvas = document.createElement('canvas');
  small.width = image.width; small.height = image.height;
  const pixels = new ImageData(image.width, image.height);
  for (let i = 0; i < image.width * image.height; ++i) {
    for (let c = 0; c < 3; ++c) {
      pixels.data[4 * i + c] = image.pixels[image.channels * i + (image.channels < 3 ? 0 : c)];
    }
    pixels.data[4 * i + 3] = 255;
  }
  small.getContext('2d').putImageData(pixels, 0, 0);
  const zoom = Math.max(1, Math.floor(224 / image.width)), size = image.patch_size * zoom;
  canvas.width = image.width * zoom; canvas.height = image.height * zoom;
  const c = canvas.getContext('2d'), across = image.width / image.patch_size;
  c.imageSmoothingEnabled = false;
  c.drawImage(small, 0, 0, canvas.width, canvas.height);
  const most = Math.max(1, ...shares.slice(1));
  shares.slice(1).forEach((share, i) => {
    c.fillStyle = `rgba(255, 0, 0, ${.7 * share / most})`;
    c.fillRect(size * (i % across), size * Math.floor(i / across), size, size);
  });
  canvas.onmousemove = event => {
    const i = Math.floor(event.offsetY / size) * across + Math.floor(event.offsetX / size) + 1;
    const labels = page.axes[map.columns];
    byId('cell').textContent = shares[i] !== undefined
        ? `${labels[i]}: ${(shares[i] / 1000).toFixed(3)}; the token itself: ${(shares[0] / 1000).toFixed(3)}`
        : '';
  };
  return canvas;
}
function show() {
  const page = pages[byId('page').value], map = page.maps[byId('map').value];
  byId('heads').replaceChildren(...map.heads.map((head, i) => {
    const figure = document.createElement('figure');
    const caption = document.createElement('figcaption');
    caption.textContent = 'head ' + (i + 1);
    figure.append(caption, (page.image ? drawOnImage : draw)(page, map, head));
    return figure;
  }));
}
function choosePage() {
  const chosen = byId('map').value || 0;
  fill(byId('map'), pages[byId('page').value].maps.map(m => m.name));
  byId('map').value = chosen;
  show();
}
fill(byId('page'), pages.map((p, i) => (i + 1) + ': ' + p.title));
byId('page').onchange = choosePage;
byId('map').onchange = show;
choosePage();
</script></body></html>
)";

// heads[h][t][s] = number(weight).
template <class Number>
Json heads_of(const Tensor& weights, Number number) {
  Json heads = Json::array();
  const int64_t count = weights.shape()[0], rows = weights.shape()[1], cols = weights.shape()[2];
  dispatch_floating(Cpu{}, weights.dtype(), [&](auto type) {
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

// In thousandths: the eye cannot tell finer differences apart.
Json shades_of(const Tensor& weights) {
  return heads_of(weights, [](double weight) { return std::lround(1000 * weight); });
}

Json numbers_of(const Tensor& weights) {
  constexpr double kUnit = 1e6;  // six digits: more would be those of the float32 sums
  return heads_of(weights, [](double weight) { return std::round(kUnit * weight) / kUnit; });
}

Json image_of(const AttentionImage& image) {
  return {{"height", image.height},
          {"width", image.width},
          {"channels", image.channels},
          {"patch_size", image.patch_size},
          {"pixels", image.pixels}};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON inside a script element must not contain "</".
std::string inside_script(std::string json) {
  for (size_t at = json.find('<'); at != std::string::npos; at = json.find('<', at)) {
    json.replace(at, 1, "\\u003c");
  }
  return json;
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
    if (page.image) list.back()["image"] = image_of(*page.image);
  }
  return kHead + inside_script(text_of(list)) + kScript;
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
