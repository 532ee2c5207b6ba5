// The layer in front of a classifier: a model without classes has none, but its class has one.
#include <gmock/gmock.h>

#include "apps/interop/huggingface_export.h"
#include "apps/run/pretrained.h"
#include "tests/apps/interop/huggingface_models.h"

namespace tapestry::interop {
namespace {

TEST(ClassFacts, AModelWithoutClassesKnowsThePoolerOfItsClass) {
  const ModelFiles files = files_of(fixture("distilbert"));
  ASSERT_STREQ(files.config.task->name, "mlm");
  EXPECT_FALSE(flat_keys(files.config).contains("model.pooler"));
  EXPECT_EQ(files.config.model.pooler, Pooler::kRelu);
  // A checkpoint keeps it by the files that the model came with.
  TokenizerPair tokenizers = files.tokenizers;
  tokenizers.came_with["config.json"] = read_file(fixture("distilbert/config.json"));
  CheckpointContent content = {{"config.json", to_json(files.config)}, {"model.safetensors", ""}};
  for (const auto& [name, bytes] : tokenizers.files()) content[name] = bytes;
  const std::string folder = concat(testing::TempDir(), "/class_facts.", getpid());
  fs::remove_all(folder);
  write_checkpoint(folder, content);
  EXPECT_EQ(config_of_pretrained(folder).model.pooler, Pooler::kRelu);
  fs::remove_all(folder);
}

TEST(ClassFacts, ClassesHaveTheirPoolerAsAKey) {
  const ModelFiles files = files_of(fixture("distilbert_classes"));
  EXPECT_EQ(flat_keys(files.config).at("model.pooler"), "relu");
}

TEST(ClassFacts, APoolerThatIsNotThereStopsNoExport) {
  ModelFiles files = files_of(fixture("distilbert"));
  files.config.model.pooler = ModelOptions().pooler;  // as a model of our own has it
  EXPECT_STREQ(fitting_architecture(files, "distilbert").name, "distilbert");
  files = files_of(fixture("distilbert_classes"));
  files.config.model.pooler = Pooler::kTanh;
  EXPECT_THROW(fitting_architecture(files, "distilbert"), Error);
}

}  // namespace
}  // namespace tapestry::interop
