// Folders of tests/fixtures/huggingface as models of ours, and their logits.
#pragma once

#include <unistd.h>

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/made_file.h"
#include "apps/checkpoint/parameters.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/peft/peft.h"
#include "data/files/files.h"
#include "data/tokenizers/huggingface_files.h"
#include "tests/paths.h"

namespace tapestry::interop {

namespace fs = std::filesystem;

inline std::string fixture(const std::string& name) {
  return project_file("tests/fixtures/huggingface/" + name);
}

/// A vocabulary of so many ids.
inline std::shared_ptr<const Tokenizer> letters(int64_t size) {
  std::string file = "tapestry characters 1\n";
  for (int64_t id = kEosId + 1; id < size; ++id) file += concat("U+00", 50 + id, '\n');
  return load_tokenizer(file, "letters");
}

/// The same with pad 1, as a roberta and an m2m_100 must have it.
inline std::shared_ptr<const Tokenizer> padded_by_one(int64_t size) {
  nlohmann::json vocab;
  for (int64_t id = 0; id < size; ++id) vocab[concat("piece", id)] = id;
  const nlohmann::json model = {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  HuggingFaceIds ids;
  ids.pad = 1;
  ids.bos = 2;
  ids.eos = 3;
  ids.rows = size;
  return load_tokenizer(join_huggingface(model.dump(), ids.json()), "pieces");
}

inline TokenizerPair tokenizers_of(const Counts& counts, bool roberta = false) {
  if (counts.source_vocab == 0) return {};
  const auto source = roberta ? padded_by_one(counts.source_vocab) : letters(counts.source_vocab);
  return {source, counts.shared_vocab ? source : letters(counts.target_vocab)};
}

inline ModelFiles files_of(const std::string& folder) {
  ImportedModel model = is_peft_folder(folder)
                            ? import_adapted_model(folder, base_of_adapters(folder, ""))
                            : import_model(folder);
  const bool roberta =
      folder.find("roberta") != std::string::npos || folder.find("m2m_100") != std::string::npos;
  TokenizerPair tokenizers = tokenizers_of(model.counts, roberta);
  return model_files({std::move(model), std::move(tokenizers)}, folder);
}

inline nlohmann::json parsed_json(const std::string& path) {
  return nlohmann::json::parse(read_file(path));
}

inline void flatten(const nlohmann::json& from, std::vector<int64_t>& shape,
                    std::vector<double>& values, size_t depth = 0) {
  if (!from.is_array()) return values.push_back(from.get<double>());
  if (depth == shape.size()) shape.push_back(static_cast<int64_t>(from.size()));
  for (const auto& part : from) flatten(part, shape, values, depth + 1);
}

inline Tensor tensor_of(const nlohmann::json& from) {
  std::vector<int64_t> shape;
  std::vector<double> values;
  flatten(from, shape, values);
  return Tensor::from(values, Shape(shape.data(), static_cast<int>(shape.size())));
}

inline Tensor ids_of(const nlohmann::json& from) { return tensor_of(from).to(DType::kInt32); }

inline Tensor full_lengths(const Tensor& ids) {
  return Tensor::full({ids.shape()[0]}, static_cast<double>(ids.shape()[1]), DType::kInt32);
}

template <class Model>
struct Loaded {
  explicit Loaded(const ModelFiles& files) : bundle(files.config, files.tokenizers) {
    load_parameters(bundle.store, files.tensors, carried_tensors(files.config));
  }
  ModelBundle<Model> bundle;
};

inline Tensor logits_of(ModelFiles files, const nlohmann::json& input) {
  files.config.dtype = DType::kFloat64;
  files.config.device = "cpu";
  const std::string task = files.config.task->name;
  if (task == "translation") {
    const Loaded<EncoderDecoder> loaded(files);
    const EncoderDecoder& model = loaded.bundle.model;
    const Tensor ids = ids_of(input["ids"]), lengths = full_lengths(ids);
    const Var memory = model.encode(ids, lengths);
    return model.logits(model.decode(ids_of(input["decoder_ids"]), memory, lengths)).value();
  }
  const Tensor segments = input.contains("segments") ? ids_of(input["segments"]) : Tensor();
  if (task == "clm" || task == "mlm") {
    const Loaded<LanguageModel> loaded(files);
    const LanguageModel& model = loaded.bundle.model;
    return model.logits(model.hidden(ids_of(input["ids"]), {}, segments)).value();
  }
  if (input.contains("pixels")) {
    const Loaded<ImageClassifier> loaded(files);
    const Var channels_first(tensor_of(input["pixels"]));
    return loaded.bundle.model(permute(channels_first, {0, 2, 3, 1})).value();
  }
  const Tensor ids = ids_of(input["ids"]);
  if (task == "question_answering") {
    const Loaded<SpanExtractor> loaded(files);
    return loaded.bundle.model(ids, full_lengths(ids), segments).value();
  }
  if (task == "token_classification") {
    const Loaded<TokenClassifier> loaded(files);
    const TokenClassifier& model = loaded.bundle.model;
    return model.logits(model.hidden(ids, full_lengths(ids), segments)).value();
  }
  const Loaded<SequenceClassifier> loaded(files);
  return loaded.bundle.model(ids, full_lengths(ids), segments).value();
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.numel(), b.numel());
  double largest = 0;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return largest;
}

inline std::string bytes_of(const FileContent& content) {
  if (const auto* text = std::get_if<std::string>(&content)) return *text;
  std::string bytes;
  std::get<1>(content)(
      [&](const void* part, size_t count) { bytes.append(static_cast<const char*>(part), count); });
  return bytes;
}

inline ByteSource source_of(std::string bytes, const std::string& name) {
  const auto held = std::make_shared<const std::string>(std::move(bytes));
  return {name, held->size(), [held](uint64_t offset, void* to, uint64_t count) {
            std::memcpy(to, held->data() + offset, count);
          }};
}

inline std::string values_of(const TensorReader& reader, const StoredTensor& tensor) {
  const Tensor values = Tensor::empty(tensor.shape, DType::kFloat32);
  reader.read(tensor.name, values);
  return {static_cast<const char*>(values.raw()), static_cast<size_t>(values.bytes())};
}

/// A copy of a fixture in which something is changed.
class BrokenFolder {
 public:
  explicit BrokenFolder(const std::string& name)
      : path_(concat(testing::TempDir(), "/broken_", name, '.', getpid())) {
    fs::remove_all(path_);
    fs::copy(fixture(name), path_);
  }
  ~BrokenFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

  void set(const std::string& key, const nlohmann::json& value) const {
    change("config.json", key, value);
  }
  void change(const std::string& file, const std::string& key, const nlohmann::json& value) const {
    auto config = nlohmann::json::parse(read_file(path_ + "/" + file));
    config[key] = value;
    write_file(path_ + "/" + file, config.dump());
  }
  /// Keeps the tensors whose new name is not empty, and adds `more`.
  void rename(const std::function<std::string(const std::string&)>& name,
              const std::string& file = "model.safetensors",
              std::vector<TensorToWrite> more = {}) const {
    const TensorReader reader(open_source(path_ + "/" + file));
    std::vector<TensorToWrite> tensors = std::move(more);
    for (const StoredTensor& tensor : reader.tensors()) {
      const Tensor values = Tensor::empty(tensor.shape, DType::kFloat32);
      reader.read(tensor.name, values);
      if (!name(tensor.name).empty()) tensors.emplace_back(name(tensor.name), values);
    }
    std::string bytes;
    write_safetensors(tensors, {}, [&](const void* part, size_t count) {
      bytes.append(static_cast<const char*>(part), count);
    });
    write_file(path_ + "/" + file, bytes);
  }
  /// Adds a tensor like `from`, each number times `factor`.
  void add_like(const std::string& from, const std::string& name, double factor,
                const std::string& file = "model.safetensors") const {
    const TensorReader reader(open_model_folder(path_));
    rename([&](const std::string& old) { return old == name ? std::string() : old; }, file,
           {TensorToWrite(name, scaled(reader, from, factor))});
  }
  static Tensor scaled(const TensorReader& reader, const std::string& name, double factor) {
    const Tensor values = Tensor::empty(reader.find(name)->shape, DType::kFloat32);
    reader.read(name, values);
    float* const x = values.data<float>();
    for (int64_t i = 0; i < values.numel(); ++i) x[i] *= static_cast<float>(factor);
    return values;
  }
  std::string error() const {
    try {
      files_of(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "";
  }

 private:
  std::string path_;
};

}  // namespace tapestry::interop
