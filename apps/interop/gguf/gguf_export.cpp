#include "apps/interop/gguf/gguf.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/origin.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/gguf/gguf_classes.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/gguf/gguf_keys.h"
#include "apps/interop/gguf/gguf_rope.h"
#include "apps/interop/gguf/gguf_vocabulary.h"
#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/special_ids.h"
#include "apps/tasks/prompts/talk_format.h"
#include "apps/tasks/text_models.h"
#include "core/base/text.h"
#include "data/files/little_endian.h"

namespace tapestry::interop {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kQuantizationVersion = 2;  // of the blocks' layouts

// The types of a file. Numbers of `kind` are their enumeration of files.
struct DtypeRow {
  const char* name;
  const GgufType& type;
  int64_t kind;
};
std::span<const DtypeRow> dtype_rows() {
  static const DtypeRow rows[] = {{"float32", kGgufF32, 0},
                                  {"float16", kGgufF16, 1},
                                  {"bfloat16", kGgufBF16, 32},
                                  {"q8_0", kGgufQ8_0, 7},
                                  {"q4_0", kGgufQ4_0, 2}};
  return rows;
}
const DtypeRow& dtype_row(const std::string& name) {
  for (const DtypeRow& row : dtype_rows()) {
    if (name.empty() || name == row.name) return row;
  }
  fail(ErrorKind::kConfig, "[export] dtype must be one of ", join(gguf_dtypes(), ", "), ", got ",
       name, '.');
}

// Matrices that their engine adds to others: it takes no type but this.
constexpr const char* kFloat32Tensors[] = {"position_embd.weight"};

// The type of a tensor. Where a row is no whole number of blocks it is float16.
const GgufType& type_of(const TensorToWrite& tensor, const DtypeRow& dtype) {
  const bool whole =
      std::ranges::any_of(kFloat32Tensors, [&](const char* name) { return tensor.name == name; });
  if (whole || tensor.shape.rank() < 2) return kGgufF32;
  return tensor.shape.cols() % dtype.type.numbers == 0 ? dtype.type : kGgufF16;
}

// The pairs of key and value in front of the tensors.
class Pairs {
 public:
  void text(const std::string& key, const std::string& value) {
    begin(key, kText);
    append(value);
  }
  void number(const std::string& key, int64_t value) {
    begin(key, kUint32);
    append_little_endian(bytes_, static_cast<uint32_t>(value));
  }
  void real(const std::string& key, double value) {
    begin(key, kFloat32);
    append(static_cast<float>(value));
  }
  void flag(const std::string& key, bool value) {
    begin(key, kBool);
    bytes_ += static_cast<char>(value ? 1 : 0);
  }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    begin_list(key, kText, values.size());
    for (const std::string& value : values) append(value);
  }
  void reals(const std::string& key, const std::vector<float>& values) {
    begin_list(key, kFloat32, values.size());
    for (const float value : values) append(value);
  }
  void integers(const std::string& key, const std::vector<int32_t>& values) {
    begin_list(key, kInt32, values.size());
    for (const int32_t value : values) {
      append_little_endian(bytes_, static_cast<uint32_t>(value));
    }
  }

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  enum Type : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kText = 8, kList = 9 };

  void begin(const std::string& key, Type type) {
    append(key);
    append_little_endian(bytes_, static_cast<uint32_t>(type));
    ++count_;
  }
  void begin_list(const std::string& key, Type type, size_t size) {
    begin(key, kList);
    append_little_endian(bytes_, static_cast<uint32_t>(type));
    append_little_endian(bytes_, static_cast<uint64_t>(size));
  }
  void append(const std::string& text) {
    append_little_endian(bytes_, static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void append(float value) { append_little_endian(bytes_, std::bit_cast<uint32_t>(value)); }

  std::string bytes_;
  uint64_t count_ = 0;
};

// The names and the rest of what a file says of itself, as the model came with it.
void add_general(const ModelFiles& model, const DtypeRow& dtype, Pairs& pairs) {
  const auto file = model.tokenizers.came_with.find(kGgufGeneralFile);
  Json came = {{"general.name", "Tapestry"}};
  if (file != model.tokenizers.came_with.end()) came = Json::parse(file->second);
  for (const auto& [key, value] : came.items()) {
    if (key == kGgufClassKey) continue;
    if (value.is_array()) {
      pairs.texts(key, value.get<std::vector<std::string>>());
    } else if (value.is_number()) {
      pairs.number(key, value.get<int64_t>());
    } else {
      pairs.text(key, value.get<std::string>());
    }
  }
  pairs.number("general.file_type", dtype.kind);
  if (dtype.type.numbers > 1) pairs.number("general.quantization_version", kQuantizationVersion);
}

void add_keys(const GgufClass& one, std::span<const GgufKey> rows, const ModelFacts& facts,
              Pairs& pairs) {
  for (const GgufKey& row : rows) {
    const std::optional<double> value = row.value(facts);
    if (!value) continue;
    if (row.kind == GgufKey::kInteger) {
      pairs.number(one.full_key(row.key), static_cast<int64_t>(*value));
    } else if (row.kind == GgufKey::kFlag) {
      pairs.flag(one.full_key(row.key), *value != 0);
    } else {
      pairs.real(one.full_key(row.key), *value);
    }
  }
}

void add_model(const GgufClass& one, const ModelFacts& facts, Pairs& pairs) {
  add_keys(one, one.keys, facts, pairs);
  const char* const type = gguf_rope_type(facts.config.model.rope_scaling);
  if (!one.rotates() || type == nullptr) return;
  pairs.text(one.full_key("rope.scaling.type"), type);
  add_keys(one, gguf_keys::kRopeScaling, facts, pairs);
}

void add_vocabulary(const ModelFiles& model, Pairs& pairs) {
  const std::optional<GgufVocabulary> vocabulary = gguf_vocabulary(model);
  if (!vocabulary) {
    pairs.text("tokenizer.ggml.model", "none");
    return;
  }
  pairs.text("tokenizer.ggml.model", vocabulary->engine);
  pairs.text("tokenizer.ggml.pre", vocabulary->pre);
  pairs.texts("tokenizer.ggml.tokens", vocabulary->texts);
  if (!vocabulary->scores.empty()) pairs.reals("tokenizer.ggml.scores", vocabulary->scores);
  pairs.integers("tokenizer.ggml.token_type", vocabulary->types);
  if (vocabulary->engine == "gpt2") pairs.texts("tokenizer.ggml.merges", vocabulary->merges);
  const tapestry::SpecialIds& special = model.tokenizers.source->special();
  const bool begins = begins_with_eos(model.config) && !special.document().empty();
  pairs.number("tokenizer.ggml.bos_token_id",
               begins_with_eos(model.config) ? document_start(model) : special.bos);
  pairs.number("tokenizer.ggml.eos_token_id", special.eos);
  // The end of an answer, if it is another token than eos; their engine finds further ends by their
  // names.
  std::vector<int32_t> more = special.more_ends;
  if (examples_of(model.config).talks) {
    const ChatFormat format = chat_format_of(model.tokenizers, model.folder);
    more = talk_tokenizer(format, model.tokenizers.source)->special().more_ends;
    std::ranges::reverse(more);  // that of answers is the last
  }
  if (!more.empty()) pairs.number("tokenizer.ggml.eot_token_id", more.front());
  if (special.unk) pairs.number("tokenizer.ggml.unknown_token_id", *special.unk);
  if (special.pad) pairs.number("tokenizer.ggml.padding_token_id", *special.pad);
  pairs.flag("tokenizer.ggml.add_bos_token", begins);
  const bool ends = special.one_text && !special.one_text->after.empty();
  if (ends) pairs.flag("tokenizer.ggml.add_eos_token", true);
  if (vocabulary->space_prefix) {
    pairs.flag("tokenizer.ggml.add_space_prefix", *vocabulary->space_prefix);
  }
  const std::string chat = chat_template_of(model.tokenizers);
  if (!chat.empty()) pairs.text("tokenizer.chat_template", chat);
}

uint64_t aligned(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

// Blocks of a tensor, a part at a time.
void write_blocks(const Tensor& values, const GgufType& type, const ByteSink& sink) {
  const auto* const from = values.data<float>();
  if (&type == &kGgufF32) return sink(from, static_cast<size_t>(values.bytes()));
  const int64_t blocks = values.numel() / type.numbers;
  const int64_t step = kPartBytes / static_cast<int64_t>(type.bytes);
  std::vector<unsigned char> part;
  for (int64_t begin = 0; begin < blocks; begin += step) {
    const int64_t count = std::min(step, blocks - begin);
    part.resize(static_cast<size_t>(count) * type.bytes);
    for (int64_t i = 0; i < count; ++i) {
      type.write(from + (begin + i) * type.numbers,
                 part.data() + static_cast<size_t>(i) * type.bytes);
    }
    sink(part.data(), part.size());
  }
}

void write_gguf(const Pairs& pairs, const std::vector<TensorToWrite>& tensors,
                const DtypeRow& dtype, const ByteSink& sink) {
  std::string head;
  append_little_endian(head, kGgufMagic);
  append_little_endian(head, kVersion);
  append_little_endian(head, static_cast<uint64_t>(tensors.size()));
  append_little_endian(head, pairs.count());
  head += pairs.bytes();
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    append_little_endian(head, static_cast<uint64_t>(tensor.name.size()));
    head += tensor.name;
    append_little_endian(head, static_cast<uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      append_little_endian(head, static_cast<uint64_t>(tensor.shape[i]));
    }
    const GgufType& type = type_of(tensor, dtype);
    append_little_endian(head, type.id);
    append_little_endian(head, offset);
    offset += aligned(type.bytes_of(tensor.shape.numel()));
  }
  head.append(aligned(head.size()) - head.size(), '\0');
  sink(head.data(), head.size());
  for (const TensorToWrite& tensor : tensors) {
    const GgufType& type = type_of(tensor, dtype);
    write_blocks(tensor.content(), type, sink);
    const uint64_t bytes = type.bytes_of(tensor.shape.numel());
    const std::string padding(aligned(bytes) - bytes, '\0');
    sink(padding.data(), padding.size());
  }
}

Reasons reasons_against(const GgufClass& one, const ModelFiles& model) {
  const Config config = exported_facts(one.architecture, model).config;
  const ModelOptions& o = config.model;
  Reasons reasons = misfits(one.architecture, config);
  if (one.no_bias && o.has_query_bias()) {
    reasons.push_back(concat(o.bias ? "model.bias: true" : "model.attention_bias",
                             " has no place in ", one.architecture.name));
  }
  // Their engine looks for windows in few classes. One of all positions has no effect.
  if (o.attention_window > 0 && o.attention_window < o.max_position_embeddings && !one.windows) {
    reasons.push_back(concat("model.attention_window: ", o.attention_window));
  }
  if (one.refuse_more != nullptr) one.refuse_more(config, reasons);
  refuse_gguf_rope(one, o, reasons);
  if (o.hidden_act != one.act && o.hidden_act != one.or_act.value_or(one.act)) {
    reasons.push_back(
        concat("model.hidden_act: ", name_of(o.hidden_act), " is not ", name_of(one.act)));
  }
  return reasons;
}

bool came_as(const GgufClass& one, const ModelFiles& model) {
  const auto says = [&](const char* file, const char* key, const char* name) {
    const Json object = object_of_origin(model.tokenizers, file);
    return !object.is_null() && object.value(key, Json()) == name;
  };
  return says(kGgufGeneralFile, kGgufClassKey, one.name) ||
         says(kConfigFile, "model_type", one.architecture.name);
}

/// The class that the model came as, or the first that has a place for all of it. Throws
/// Error(kConfig) with the reasons of the one that is nearest.
const GgufClass& fitting_class(const ModelFiles& model) {
  for (const bool same : {true, false}) {
    for (const GgufClass& one : gguf_classes()) {
      if (same && !came_as(one, model)) continue;
      if (reasons_against(one, model).empty()) return one;
    }
  }
  // First by what its class has no place for, then by what their engine has fixed.
  const auto distance = [&](const GgufClass& one) {
    const Config config = exported_facts(one.architecture, model).config;
    return std::pair(misfits(one.architecture, config).size(), reasons_against(one, model).size());
  };
  const std::span<const GgufClass> all = gguf_classes();
  const GgufClass& nearest = *std::ranges::min_element(all, {}, distance);
  fail(ErrorKind::kConfig, "[export] ", model.folder, " has no place in a GGUF file, nearest is ",
       nearest.name, ":\n  ", join(reasons_against(nearest, model), ";\n  "), '.');
}

// The tensors as the file has them, before their types are chosen.
std::vector<TensorToWrite> tensors_of(const ModelFiles& model, const GgufClass& one,
                                      const ModelFacts& facts) {
  std::vector<TensorPair> table = expand(one.tensors, facts);
  if (folds_scale(one.architecture, model.config)) fold_scale(model.config, table);
  std::vector<TensorToWrite> tensors =
      converted_tensors(model, table, layout_of(facts), DType::kFloat32);
  add_gguf_rope_tensors(model.config.model, tensors);
  return tensors;
}

}  // namespace

std::vector<std::string> gguf_dtypes() {
  std::vector<std::string> names;
  for (const DtypeRow& row : dtype_rows()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> gguf_notes(const ModelFiles& model, const std::string& dtype) {
  std::vector<std::string> notes;
  const Tokenizer& tokenizer = *model.tokenizers.target;
  const tapestry::SpecialIds& special = tokenizer.special();
  if (!gguf_vocabulary(model)) {
    notes.emplace_back(
        "the file has no tokenizer (tokenizer.ggml.model is none): programs around llama.cpp do "
        "not know this one, and read and write ids only");
  } else if (special.more_ends.size() >= 2) {
    const std::span<const int32_t> more = special.more_ends;
    notes.push_back(concat(
        "a GGUF file has two ends of a text, here '", tokenizer.piece(special.eos), "' and '",
        tokenizer.piece(more[0]),
        "': a program must know the others itself: ", quoted_tokens(tokenizer, more.subspan(1))));
  }
  const DtypeRow& row = dtype_row(dtype);
  const GgufClass& one = fitting_class(model);
  if (model.config.model.hidden_act != one.act) {
    notes.push_back(concat("programs around llama.cpp compute ", name_of(one.act), " for ",
                           name_of(model.config.model.hidden_act),
                           ": their logits differ in the third digit"));
  }
  std::vector<std::string> half;
  for (const TensorToWrite& tensor :
       tensors_of(model, one, exported_facts(one.architecture, model))) {
    const bool other = &type_of(tensor, row) == &kGgufF16 && &row.type != &kGgufF16;
    if (other) half.push_back(tensor.name);
  }
  if (!half.empty()) {
    notes.push_back(concat(half.size(), half.size() == 1 ? " tensor has" : " tensors have",
                           " rows that are no whole number of blocks of ", row.type.numbers,
                           " and are float16: ", half[0], half.size() > 1 ? ", ..." : ""));
  }
  return notes;
}

CheckpointContent gguf_files(const ModelFiles& model, const std::string& dtype) {
  const GgufClass& found = fitting_class(model);
  const DtypeRow& row = dtype_row(dtype);
  const ModelFacts facts = exported_facts(found.architecture, model);
  Pairs pairs;
  pairs.text(kGgufClassKey, found.name);
  add_general(model, row, pairs);
  add_model(found, facts, pairs);
  add_vocabulary(model, pairs);
  std::vector<TensorToWrite> tensors = tensors_of(model, found, facts);
  for (const TensorToWrite& tensor : tensors) {
    const GgufType& type = type_of(tensor, row);
    if (&type != &kGgufF32) check_range(tensor, type.limit, type.name, /*finite=*/type.numbers > 1);
  }
  CheckpointContent files;
  files["model.gguf"] = [pairs, tensors, &row](const ByteSink& sink) {
    write_gguf(pairs, tensors, row, sink);
  };
  return files;
}

}  // namespace tapestry::interop
