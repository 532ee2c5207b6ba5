// The types of tensors that an export writes (--dtype).
#include <gmock/gmock.h>

#include "apps/interop/gguf/gguf.h"
#include "apps/interop/gguf/gguf_file.h"
#include "apps/interop/huggingface_export.h"
#include "tests/apps/interop/huggingface_models.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry::interop {
namespace {

using testing::HasSubstr;

std::vector<float> floats_in(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(GgufTypes, EachTypeIsWritten) {
  const TinyRunFolder folder("gguf_types");
  const std::string fixture = project_file("tests/fixtures/gguf/tiny.gguf");
  folder.output(concat("import ", fixture, " --output ours"));
  struct Row {
    const char* name;
    const char* type;
    int64_t kind;
  };
  for (const Row& row :
       {Row{"float32", "F32", 0}, Row{"float16", "F16", 1}, Row{"bfloat16", "BF16", 32},
        Row{"q8_0", "Q8_0", 7}, Row{"q4_0", "Q4_0", 2}}) {
    folder.output(
        concat("export --model ours --format gguf --dtype ", row.name, " --output ", row.name));
    const GgufFile file(open_source(folder.path(concat(row.name, "/model.gguf"))));
    EXPECT_EQ(file.integer("general.file_type"), row.kind);
    EXPECT_EQ(file.has("general.quantization_version"), row.type[0] == 'Q');
    for (const GgufTensor& tensor : file.tensors()) {
      EXPECT_STREQ(tensor.type->name, tensor.shape.rank() == 1 ? "F32" : row.type) << tensor.name;
    }
  }
  const auto refused = folder.run("export --model ours --dtype q8_0 --output no");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--dtype must be one of float32, float16, bfloat16"));
}

// The fixture's rows have 24 or 32 numbers.
TEST(GgufTypes, RowsThatAreNoBlocksStayFloat16) {
  const ModelFiles model = files_of(fixture("gpt2"));
  const std::vector<std::string> notes = gguf_notes(model, "q8_0");
  bool told = false;
  for (const std::string& note : notes) told |= note.find("are float16") != std::string::npos;
  const std::string path = concat(testing::TempDir(), "rows.", getpid(), ".gguf");
  std::ofstream(path, std::ios::binary) << bytes_of(gguf_files(model, "q8_0").at("model.gguf"));
  const GgufFile file(open_source(path));
  bool half = false;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool whole = tensor.shape.cols() % 32 == 0;
    if (tensor.shape.rank() == 1 || tensor.name == "position_embd.weight") {
      EXPECT_STREQ(tensor.type->name, "F32") << tensor.name;
    } else {
      EXPECT_STREQ(tensor.type->name, whole ? "Q8_0" : "F16") << tensor.name;
      half |= !whole;
    }
  }
  EXPECT_TRUE(half);
  EXPECT_TRUE(told);
  fs::remove(path);
}

// 65520 is the first number that float16 has no place for.
TEST(GgufTypes, NumbersThatAreTooLargeAreNamed) {
  for (const double large : {65519.0, 65520.0}) {
    ModelFiles model = files_of(fixture("llama"));
    std::vector<TensorToWrite> tensors;
    for (const StoredTensor& stored : model.tensors.tensors()) {
      const Tensor values = Tensor::empty(stored.shape, DType::kFloat32);
      model.tensors.read(stored.name, values);
      if (stored.name == "embedding.weight") {
        values.data<float>()[stored.shape[1] + 2] = static_cast<float>(-large);
      }
      tensors.emplace_back(stored.name, values);
    }
    model.tensors = TensorReader(safetensors_source(tensors, "large"));
    for (const bool gguf : {true, false}) {
      const auto make = [&] {
        gguf ? gguf_files(model, "float16") : huggingface_files(model, "llama", "float16");
      };
      if (large < 65520) {
        EXPECT_NO_THROW(make());
        continue;
      }
      try {
        make();
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
        EXPECT_THAT(error.what(), HasSubstr("holds -65520 at (1, 2), which"));
        EXPECT_THAT(error.what(), HasSubstr(gguf ? "token_embd.weight" : "embed_tokens.weight"));
      }
    }
  }
}

// A folder in float16 or bfloat16 says so, and comes back as the rounded numbers.
TEST(ExportTypes, FoldersHaveThem) {
  for (const char* dtype : {"float16", "bfloat16"}) {
    CheckpointContent files = huggingface_files(files_of(fixture("llama")), "llama", dtype);
    EXPECT_EQ(nlohmann::json::parse(bytes_of(files["config.json"]))["torch_dtype"], dtype);
    const TensorReader after(source_of(bytes_of(files["model.safetensors"]), "exported"));
    const TensorReader before = open_model_folder(fixture("llama"));
    const double step = std::string_view(dtype) == "float16" ? 0x1p-11 : 0x1p-8;
    for (const StoredTensor& tensor : after.tensors()) {
      EXPECT_STREQ(name_of(tensor.type), dtype);
      const auto exact = floats_in(values_of(before, *before.find(tensor.name)));
      const auto rounded = floats_in(values_of(after, tensor));
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_LE(std::abs(rounded[i] - exact[i]), step * std::abs(exact[i]) + 0x1p-25);
      }
    }
  }
}

TEST(ExportTypes, AdaptersHaveThem) {
  const ModelFiles model = files_of(fixture("peft_llama"));
  for (const StoredType type : {StoredType::kF32, StoredType::kF16, StoredType::kBF16}) {
    CheckpointContent files = peft_files(model, "llama", name_of(type));
    const TensorReader reader(source_of(bytes_of(files[kAdapterFile]), "exported"));
    EXPECT_FALSE(reader.empty());
    for (const StoredTensor& tensor : reader.tensors()) EXPECT_EQ(tensor.type, type);
  }
}

}  // namespace
}  // namespace tapestry::interop
