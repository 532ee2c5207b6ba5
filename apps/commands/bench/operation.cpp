#include "apps/commands/bench/operation.h"

#include <algorithm>

#include "apps/commands/bench/bench.h"
#include "core/base/philox.h"

namespace tapestry {
namespace {

// Of configs/ at the shapes that tests/bench/README.md times; a test compares them with the files.
const OperationSizes kShipped[] = {{.config = "multi30k_small",
                                    .batch = 128,
                                    .length = 32,
                                    .source = 32,
                                    .hidden = 256,
                                    .intermediate = 1024,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .head_size = 64,
                                    .vocab = 8000},
                                   {.config = "shakespeare_char",
                                    .batch = 12,
                                    .length = 64,
                                    .hidden = 128,
                                    .intermediate = 512,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .head_size = 32,
                                    .vocab = 65,
                                    .activation = Activation::kGelu},
                                   {.config = "gpt2_124m",
                                    .batch = 4,
                                    .length = 256,
                                    .hidden = 768,
                                    .intermediate = 3072,
                                    .heads = 12,
                                    .kv_heads = 12,
                                    .head_size = 64,
                                    .vocab = 50257,
                                    .activation = Activation::kGeluTanh}};

}  // namespace

std::span<const OperationSizes> shipped_operation_sizes() { return kShipped; }

Tensor random_ids(const Shape& shape, int64_t bound) {
  Tensor ids = Tensor::empty(shape, DType::kInt32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(
        philox_below({7, 0, 0}, static_cast<uint64_t>(i), static_cast<uint64_t>(bound)));
  }
  return ids;
}

OperationSizes operation_sizes(const Config& config, const std::string& name,
                               const std::string& shape) {
  const ModelTraits& traits = traits_of(config.model_type);
  if (!examples_of(config).of_text() || !traits.has_attention) {
    fail(ErrorKind::kConfig, "[bench] --ops takes sizes from a Transformer of texts, got task ",
         config.task->name, " and model.type ", name_of(config.model_type), '.');
  }
  const BatchShape batch = parse_shape(shape, traits.reads_two_texts);
  const ModelOptions& model = config.model;
  const int64_t heads = model.num_attention_heads;
  return {.config = name,
          .batch = batch.rows,
          .length = batch.target,
          .source = batch.source,
          .hidden = model.hidden_size,
          .intermediate = model.intermediate_size,
          .heads = heads,
          .kv_heads = model.num_key_value_heads > 0 ? model.num_key_value_heads : heads,
          .head_size = model.chosen_head_size(),
          .vocab = config.tokenizer.vocab_size,
          .activation = model.hidden_act.activation,
          .numbers = numbers_of(config, ModelUse::kTraining, Device{})};
}

OperationRows operations_of(const OperationSizes& sizes) {
  OperationRows rows;
  add_elementwise(rows, sizes);
  add_products(rows, sizes);
  add_attention(rows, sizes);
  return rows;
}

}  // namespace tapestry
