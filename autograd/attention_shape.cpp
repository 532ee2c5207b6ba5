#include "autograd/attention_shape.h"

#include <cmath>

namespace tapestry {
namespace {

const int32_t* lengths_of(const Tensor& lengths, const char* name, int64_t batch) {
  if (!lengths.defined()) return nullptr;
  check(lengths.shape() == Shape{batch}, "attention", name, " must be (", batch, "), got ",
        lengths.shape(), '.');
  return lengths.data<int32_t>();
}

void check_mask(const Tensor& mask, const Var& q, const AttentionShape& s) {
  const Shape& shape = mask.shape();
  const int rank = shape.rank();
  const auto fits = [](int64_t size, int64_t full) { return size == full || size == 1; };
  check(rank >= 2 && rank <= 4 && shape[rank - 1] == s.keys && shape[rank - 2] == s.queries &&
            (rank < 3 || fits(shape[0], s.batch)) && (rank < 4 || fits(shape[1], s.heads)),
        "attention", "the mask must be (", s.queries, ", ", s.keys, "), (", s.batch, ", ",
        s.queries, ", ", s.keys, ") or (", s.batch, ", ", s.heads, ", ", s.queries, ", ", s.keys,
        "), got ", shape, '.');
  check((mask.dtype() == DType::kInt32 || mask.dtype() == q.dtype()) &&
            mask.device() == q.value().device(),
        "attention", "the mask must be int32 or ", q.dtype(), " on ", q.value().device(), ", got ",
        mask.dtype(), " on ", mask.device(), '.');
}

// Makes `shape` one of sequences end to end, q and k (1, N, ...).
void join_sequences(const Var& q, const Var& k, const AttentionOptions& options,
                    AttentionShape& shape) {
  const Sequences& sequences = options.sequences;
  const Shape both{1, sequences.rows()};
  check(q.shape().rank() == 3 && Shape({q.shape()[0], q.shape()[1]}) == both &&
            Shape({k.shape()[0], k.shape()[1]}) == both && !options.key_lengths.defined() &&
            !options.key_rows.defined() && !options.mask.defined(),
        "attention", "with sequences expected q and k of one batch element with ", sequences.rows(),
        " rows, no key_lengths, key_rows or mask, got q ", q.shape(), " and k ", k.shape(), '.');
  shape.batch = sequences.count();
  shape.queries = shape.keys = shape.longest = sequences.longest;
  shape.rows = sequences.rows();
  shape.starts = sequences.starts.data<int32_t>();
}

}  // namespace

int64_t kv_heads_of(const AttentionOptions& options) {
  return options.kv_heads == 0 ? options.heads : options.kv_heads;
}

AttentionShape attention_shape(const Var& q, const Var& k, int64_t head_size, int64_t value_size,
                               const AttentionOptions& options) {
  const int64_t kv_heads = kv_heads_of(options), rows = k.shape()[1];
  check(options.heads % kv_heads == 0, "attention", "key/value heads must divide heads, got ",
        kv_heads, " and ", options.heads, '.');
  const Tensor& key_rows = options.key_rows;
  check(key_rows.defined() || q.shape()[0] == k.shape()[0], "attention",
        "batch sizes differ: q is ", q.shape(), ", k is ", k.shape(), '.');
  check(options.dropout >= 0 && options.dropout < 1, "attention",
        "the dropout probability must be in [0, 1), got ", options.dropout, '.');
  check(options.window >= 0, "attention", "the window must be at least 0, got ", options.window,
        '.');
  check(options.softcap >= 0, "attention", "the softcap must be at least 0, got ", options.softcap,
        '.');
  AttentionShape shape;
  shape.batch = q.shape()[0];
  shape.queries = q.shape()[1];
  shape.keys = rows;
  shape.heads = options.heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  shape.value_size = value_size;
  shape.scale = options.scale > 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(head_size));
  shape.softcap = options.softcap;
  shape.causal = options.causal;
  shape.window = options.window;
  if (options.sequences.defined()) join_sequences(q, k, options, shape);
  shape.key_lengths = lengths_of(options.key_lengths, "key_lengths", shape.batch);
  shape.prefix_lengths = lengths_of(options.prefix_lengths, "prefix_lengths", shape.batch);
  if (key_rows.defined()) {
    check(key_rows.shape().rank() == 2 && key_rows.shape()[0] == shape.batch &&
              shape.queries == 1 && k.shape()[0] == 1 && options.key_lengths.defined() &&
              !options.prefix_lengths.defined() && !options.mask.defined(),
          "attention",
          "with key_rows expected one query per batch element, their lengths, and keys ",
          "of one batch element, got q ", q.shape(), ", k ", k.shape(), " and key_rows ",
          key_rows.shape(), '.');
    check(!Tape::records(q, k), "attention", "no gradient flows through key_rows.");
    shape.key_rows = key_rows.data<int32_t>();
    shape.keys = shape.key_rows_stride = key_rows.shape()[1];
  }
  if (options.mask.defined()) check_mask(options.mask, q, shape);
  if (options.relative_bias.defined()) {
    const Shape& table = options.relative_bias.shape();
    check(table.rank() == 2 && table[0] == options.heads && table[1] % 2 == 1, "attention",
          "the relative bias must be (", options.heads, ", 2R - 1), got ", table, '.');
  }
  if (options.dropout > 0 && Tape::current() != nullptr) {
    shape.dropout = {static_cast<float>(options.dropout), Tape::current()->next_random()};
  }
  return shape;
}

int64_t head_size_of(const Var& x, int64_t heads, const char* name) {
  check(x.defined() && x.shape().rank() == 3, "attention", name,
        " must be (batch, length, width), got ", x.shape(), '.');
  check(heads > 0 && x.shape()[2] % heads == 0, "attention", name, " is ", x.shape(),
        ", its width is not a multiple of ", heads, " heads.");
  return x.shape()[2] / heads;
}

}  // namespace tapestry
