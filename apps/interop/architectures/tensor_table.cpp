#include "apps/interop/architectures/tensor_table.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/dispatch.h"
#include "core/kernels/elementwise/convert.h"
#include "nn/layers/layers.h"

namespace tapestry::interop {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// "a.{q,k}.b" -> "a.q.b", "a.k.b"
std::vector<std::string> alternatives(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return {pattern};
  const size_t close = pattern.find('}', open);
  std::vector<std::string> names;
  for (size_t begin = open + 1; begin <= close;) {
    const size_t end = std::min(pattern.find(',', begin), close);
    names.push_back(pattern.substr(0, open) + pattern.substr(begin, end - begin) +
                    pattern.substr(close + 1));
    begin = end + 1;
  }
  return names;
}

Shape their_shape(const TensorPair& pair, int64_t rows, const TensorRow& row,
                  const ModelFacts& facts) {
  if (pair.our_shape.rank() == 1) {
    return row.change == Change::kLeadingAxis ? Shape{1, rows} : Shape{rows};
  }
  const int64_t columns = pair.our_shape[1], p = facts.config.model.patch_size;
  switch (row.change) {
    case Change::kTranspose:
      return {columns, rows};
    case Change::kLeadingAxis:
      return {1, rows, columns};
    case Change::kTwoRows:
      return {rows + 2, columns};
    case Change::kPatches:
      return {rows, columns / (p * p), p, p};
    default:
      return {rows, columns};
  }
}

void add_pair(const TensorRow& row, const ModelFacts& facts, const std::string& theirs,
              const std::string& ours, bool is_bias, std::vector<TensorPair>& pairs) {
  TensorPair pair{.theirs = alternatives(theirs),
                  .ours = ours,
                  .is_bias = is_bias,
                  .optional = is_bias || row.optional,
                  .stream = row.stream,
                  .change = row.change};
  std::vector<int64_t> parts;
  for (const char* letter = row.rows; *letter != 0; ++letter) parts.push_back(facts.size(*letter));
  const int64_t total = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  if (pair.theirs.size() == 1) parts = {total};
  const bool vector = is_bias || row.columns[0] == 0;
  pair.our_shape = vector ? Shape{total} : Shape{total, facts.size(row.columns[0])};
  for (const int64_t part : parts) pair.their_shapes.push_back(their_shape(pair, part, row, facts));
  pair.parts = std::move(parts);
  pairs.push_back(std::move(pair));
}

// A weight, and its bias if their model has one.
void add_layer(const TensorRow& row, const ModelFacts& facts, const std::string& theirs,
               const std::string& ours, std::vector<TensorPair>& pairs) {
  const char last = theirs.back();
  if (last != '*' && last != '@') return add_pair(row, facts, theirs, ours, false, pairs);
  const std::string their_stem = theirs.substr(0, theirs.size() - 1);
  const std::string our_stem = ours.substr(0, ours.size() - 1);
  add_pair(row, facts, their_stem + (last == '*' ? "weight" : "gamma"), our_stem + "weight", false,
           pairs);
  if (row.columns[0] == 0 ? !facts.norm_biases : !facts.has_bias(our_stem)) return;
  add_pair(row, facts, their_stem + (last == '*' ? "bias" : "beta"), our_stem + "bias", true,
           pairs);
}

void add_side(const TensorRow& row, const ModelFacts& facts, const std::string& theirs,
              const std::string& ours, std::vector<TensorPair>& pairs) {
  if (theirs.find('#') == std::string::npos) return add_layer(row, facts, theirs, ours, pairs);
  for (int64_t i = row.but_first ? 1 : 0; i < facts.layers_of(ours); ++i) {
    const std::string number = std::to_string(i);
    add_layer(row, facts, replaced(theirs, "#", number), replaced(ours, "#", number), pairs);
  }
}

// Rows of `from` in another order: row i of the result is row order[i].
Tensor with_rows(const Tensor& from, const std::vector<int64_t>& order) {
  const Tensor to = Tensor::empty_like(from);
  const auto bytes = static_cast<size_t>(from.bytes() / std::max<int64_t>(1, from.shape()[0]));
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(static_cast<char*>(to.raw()) + i * bytes,
                static_cast<const char*>(from.raw()) + static_cast<size_t>(order[i]) * bytes,
                bytes);
  }
  return to;
}

Tensor transposed(const Tensor& from) {
  const int64_t rows = from.shape()[0], columns = from.shape()[1];
  const Tensor to = Tensor::empty({columns, rows}, from.dtype());
  dispatch_dtype(from.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const x = from.data<T>();
    T* const y = to.data<T>();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
    }
  });
  return to;
}

// (n, p * p, C) of ours to (n, C, p * p) of theirs, and back: each block is transposed.
Tensor blocks_transposed(const Tensor& from, int64_t rows, int64_t columns) {
  const int64_t n = from.numel() / (rows * columns);
  const Tensor to = Tensor::empty({n * rows * columns}, from.dtype()),
               x = from.reshape({n, rows, columns});
  for (int64_t i = 0; i < n; ++i) {
    to.slice(i * rows * columns, (i + 1) * rows * columns)
        .copy_from(
            transposed(x.slice(i, i + 1).reshape({rows, columns})).reshape({rows * columns}));
  }
  return to;
}

// Their number m of the stream is ours order[m]: sines are at even places, cosines at odd ones.
std::vector<int64_t> stream_order(int64_t size, bool to_theirs) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  for (int64_t m = 0; m < size; ++m) {
    const int64_t ours = m < size / 2 ? 2 * m : 2 * (m - size / 2) + 1;
    if (to_theirs) {
      order[static_cast<size_t>(m)] = ours;
    } else {
      order[static_cast<size_t>(ours)] = m;
    }
  }
  return order;
}

Tensor with_stream(const TensorPair& pair, const Layout& layout, const Tensor& from,
                   bool to_theirs) {
  const bool applies = layout.halves_of_sinusoids && pair.stream != Stream::kNone &&
                       !(pair.stream == Stream::kReads && pair.is_bias);
  if (!applies) return from;
  if (pair.stream == Stream::kWrites) {
    return with_rows(from, stream_order(from.shape()[0], to_theirs));
  }
  return transposed(with_rows(transposed(from), stream_order(from.shape()[1], to_theirs)));
}

// The numbers of each head of queries and keys: neighbours (2i, 2i + 1) to halves (i, i + K / 2),
// or back.
Tensor with_pairs(const Layout& layout, const Tensor& from, int64_t query_rows, bool to_halves) {
  const int64_t size = query_rows / layout.heads;
  std::vector<int64_t> order(static_cast<size_t>(from.shape()[0]));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t head = 0; head < layout.heads + layout.groups; ++head) {
    for (int64_t i = 0; i < size / 2; ++i) {
      const int64_t first = head * size;
      for (const int64_t odd : {0, 1}) {
        const int64_t neighbour = first + 2 * i + odd, half = first + odd * (size / 2) + i;
        order[static_cast<size_t>(to_halves ? half : neighbour)] = to_halves ? neighbour : half;
      }
    }
  }
  return with_rows(from, order);
}

// Queries, keys and values of each head (3, heads, K), to a head's own rows (heads, 3, K), or back.
Tensor with_heads(const Layout& layout, const Tensor& from, bool to_theirs) {
  const int64_t size = from.shape()[0] / (3 * layout.heads);
  std::vector<int64_t> order(static_cast<size_t>(from.shape()[0]));
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t head = 0; head < layout.heads; ++head) {
      for (int64_t i = 0; i < size; ++i) {
        const int64_t ours = (part * layout.heads + head) * size + i;
        const int64_t theirs = (head * 3 + part) * size + i;
        order[static_cast<size_t>(to_theirs ? theirs : ours)] = to_theirs ? ours : theirs;
      }
    }
  }
  return with_rows(from, order);
}

// Rows are queries, then keys and values of the same width a head.
int64_t query_rows(const Layout& layout, const Tensor& all) {
  return all.shape()[0] / (layout.heads + 2 * layout.groups) * layout.heads;
}

bool turns_pairs(const TensorPair& pair, const Layout& layout) {
  return (pair.change == Change::kToHalves && layout.neighbours) ||
         (pair.change == Change::kToNeighbours && !layout.neighbours);
}

Tensor plus(const Tensor& from, double number) {
  const Tensor to = from.clone();
  dispatch_dtype(to.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < to.numel(); ++i) {
      to.data<T>()[i] = element_cast<T>(element_cast<double>(to.data<T>()[i]) + number);
    }
  });
  return to;
}

// Part of ours -> theirs, and back, of the changes within one part.
Tensor part_to_theirs(const TensorPair& pair, const Layout& layout, const Tensor& part,
                      const Shape& shape) {
  if (pair.change == Change::kPlusOne) return plus(part, 1).reshape(shape);
  if (pair.our_shape.rank() == 1) return part.reshape(shape);
  const int64_t pixels = layout.patch * layout.patch;
  switch (pair.change) {
    case Change::kTranspose:
      return transposed(part);
    case Change::kPatches:
      return blocks_transposed(part, pixels, part.shape()[1] / pixels).reshape(shape);
    case Change::kTwoRows: {
      const Tensor more = Tensor::zeros(shape, part.dtype());
      more.slice(2, shape[0]).copy_from(part);
      return more;
    }
    default:
      return part.reshape(shape);
  }
}

Tensor part_to_ours(const TensorPair& pair, const Layout& layout, const Tensor& theirs,
                    const Shape& shape) {
  if (pair.change == Change::kPlusOne) return plus(theirs, -1).reshape(shape);
  if (pair.our_shape.rank() == 1) return theirs.reshape(shape);
  const int64_t pixels = layout.patch * layout.patch;
  switch (pair.change) {
    case Change::kTranspose:
      return transposed(theirs);
    case Change::kPatches:
      return blocks_transposed(theirs, shape[1] / pixels, pixels).reshape(shape);
    case Change::kTwoRows:
      return theirs.slice(2, theirs.shape()[0]);
    default:
      return theirs.reshape(shape);
  }
}

int64_t begin_of(const TensorPair& pair, size_t part) {
  return std::accumulate(pair.parts.begin(), pair.parts.begin() + static_cast<std::ptrdiff_t>(part),
                         int64_t{0});
}

}  // namespace

Layout layout_of(const ModelFacts& facts) {
  const ModelOptions& model = facts.config.model;
  return {.heads = model.num_attention_heads,
          .groups =
              model.num_key_value_heads > 0 ? model.num_key_value_heads : model.num_attention_heads,
          .neighbours = model.rope_layout == RopeLayout::kInterleaved,
          .patch = model.patch_size};
}

std::vector<TensorPair> expand(std::span<const TensorRow> rows, const ModelFacts& facts,
                               const std::string& prefix) {
  std::vector<TensorPair> pairs;
  for (const TensorRow& row : rows) {
    if (row.when != nullptr && !(facts.*row.when)) continue;
    const std::string theirs = replaced(row.theirs, "^", prefix), ours = row.ours;
    if (ours.find('$') == std::string::npos) {
      add_side(row, facts, theirs, ours, pairs);
      continue;
    }
    for (const char* side : {"encoder", "decoder"}) {
      add_side(row, facts, replaced(theirs, "$", side), replaced(ours, "$", side), pairs);
    }
  }
  return pairs;
}

bool keeps_rows(const TensorPair& pair, const Layout& layout) {
  const bool changes = pair.change == Change::kToHalves || pair.change == Change::kToNeighbours
                           ? turns_pairs(pair, layout)
                           : pair.change != Change::kNone;
  return pair.theirs.size() == 1 && pair.our_shape.rank() == 2 &&
         pair.their_shapes[0] == pair.our_shape && !changes &&
         (!layout.halves_of_sinusoids || pair.stream == Stream::kNone);
}

Tensor to_ours(const TensorPair& pair, const Layout& layout, DType dtype, const ReadTensor& read) {
  const Tensor ours = Tensor::empty(pair.our_shape, dtype);
  for (size_t i = 0; i < pair.theirs.size(); ++i) {
    const Tensor theirs = Tensor::empty(pair.their_shapes[i], dtype);
    read(pair.theirs[i], theirs);
    const int64_t begin = begin_of(pair, i);
    const Tensor part = ours.slice(begin, begin + pair.parts[i]);
    part.copy_from(part_to_ours(pair, layout, theirs, part.shape()));
  }
  const Tensor turned = turns_pairs(pair, layout)
                            ? with_pairs(layout, ours, query_rows(layout, ours),
                                         /*to_halves=*/pair.change == Change::kToNeighbours)
                            : ours;
  if (pair.change == Change::kByHead) return with_heads(layout, ours, /*to_theirs=*/false);
  return with_stream(pair, layout, turned, /*to_theirs=*/false);
}

Tensor to_theirs(const TensorPair& pair, const Layout& layout, const Tensor& ours, size_t index) {
  Tensor all = with_stream(pair, layout, ours, /*to_theirs=*/true);
  if (turns_pairs(pair, layout)) {
    all = with_pairs(layout, all, query_rows(layout, all), pair.change == Change::kToHalves);
  }
  if (pair.change == Change::kByHead) all = with_heads(layout, all, /*to_theirs=*/true);
  const int64_t begin = begin_of(pair, index);
  const Tensor part = all.slice(begin, begin + pair.parts[index]);
  const Tensor theirs = part_to_theirs(pair, layout, part, pair.their_shapes[index]);
  if (pair.factor == 1) return theirs;
  const Tensor scaled = theirs.clone();
  dispatch_dtype(scaled.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const x = scaled.data<T>();
    for (int64_t i = 0; i < scaled.numel(); ++i) {
      x[i] = element_cast<T>(element_cast<double>(x[i]) * pair.factor);
    }
  });
  return scaled;
}

Tensor sinusoids_in_halves(int64_t length, int64_t size, DType dtype) {
  const Tensor ours = sinusoidal_positions(length, size, dtype);
  return transposed(with_rows(transposed(ours), stream_order(size, /*to_theirs=*/true)));
}

}  // namespace tapestry::interop
