// The JSON Schema of the keys: it is the file that is shipped, takes every shipped config and
// refuses what an editor should mark. The sweep holds it against the reader.
#include "apps/config/schema.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/files/files.h"
#include "tests/apps/config/schema_check.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

// To write it anew: tapestry help --schema > configs/schema.json
TEST(ConfigSchema, TheFileIsUpToDate) {
  EXPECT_TRUE(read_file(project_file("configs/schema.json")) == config_schema())
      << "Run: tapestry help --schema > configs/schema.json";
}

TEST(ConfigSchema, TakesEveryShippedConfigAndEachNamesIt) {
  SchemaCheck schema;
  int configs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(project_file("configs"))) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_file(entry.path().string());
    EXPECT_TRUE(text.starts_with("# yaml-language-server: $schema=schema.json\n")) << entry.path();
    EXPECT_EQ(schema.problems(text, {}), "") << entry.path();
    ++configs;
  }
  EXPECT_GT(configs, 15);
}

constexpr const char* kTranslation = R"(task: translation
output_dir: run
data: {train: {source: a.en, target: a.de}}
training: {max_steps: 10}
)";
constexpr const char* kCausal = R"(task: clm
output_dir: run
data: {train: [{text: a.txt}, {text: b.txt, weight: 2}]}
training: {num_train_epochs: 1.5, optimizer: {name: momentum, momentum: 0.9}}
)";
constexpr const char* kImages = R"(task: classification
output_dir: run
data: {train: {images: a, labels: b}, labels: [1, two, true]}
training: {max_steps: 10}
)";

TEST(ConfigSchema, TakesWhatIsRight) {
  SchemaCheck schema;
  for (const char* text : {kTranslation, kCausal, kImages}) {
    EXPECT_EQ(schema.problems(text, {}), "") << text;
  }
  for (const char* more :
       {"training.learning_rate=1e-4", "model.type=rnn_attention", "data.valid={tsv: x}",
        "data.train={csv: x, source_column: 3}", "tokenizer.path=x", "training.optimizer={}",
        "generation.early_stopping=true", "generation.early_stopping=never", "data.max_length=64",
        "training.optimizer={name: sgd}", "training.lora={rank: 4}", "model.encoder_layers=6"}) {
    EXPECT_EQ(schema.problems(kTranslation, {more}), "") << more;
  }
}

TEST(ConfigSchema, RefusesWhatIsWrong) {
  SchemaCheck schema;
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {kTranslation, "learning_rat=1e-4"},
      {kTranslation, "training.learning_rat=1e-4"},
      {kTranslation, "training.learning_rate=fast"},
      {kTranslation, "training.learning_rate=-1"},
      {kTranslation, "training.max_steps=1.5"},
      {kTranslation, "training.max_steps=-1"},
      {kTranslation, "training.batch_size=0"},
      {kTranslation, "training={}"},
      {kTranslation, "task=translate"},
      {kTranslation, "task=7"},
      {kTranslation, "data={}"},
      {kTranslation, "data.train=a.txt"},
      {kTranslation, "data.train={source: a.en, targt: b}"},
      {kTranslation, "data.train={text: a.txt}"},
      {kTranslation, "data.valid={text: a.txt}"},
      {kTranslation, "data.block_size=64"},
      {kTranslation, "masking={probability: 0.2}"},
      {kTranslation, "model.type=decoder"},
      {kTranslation, "model.hidden_size=big"},
      {kTranslation, "model.dropout=1.5"},
      {kTranslation, "model.num_hidden_layers=2"},
      {kTranslation, "training.optimizer.name=adamax"},
      {kTranslation, "training.optimizer={name: sgd, betas: [0.9, 0.99]}"},
      {kTranslation, "training.optimizer.betas=[0.9, 1.5]"},
      {kTranslation, "training.optimizer.betas=0.9"},
      {kTranslation, "training={max_steps: 9, lr_scheduler_type: cosine, lr_gamma: 0.9}"},
      {kTranslation, "dtype=float16"},
      {kTranslation, "allow_tf32=yes"},
      {kTranslation, "threads=2000"},
      {kTranslation, "tokenizer.vocab_size=4"},
      {kTranslation, "generation.top_p=0"},
      {kTranslation, "generation.early_stopping=sometimes"},
      {kCausal, "data.doc_stride=64"},
      {kCausal, "evaluation={rouge: true}"},
      {kCausal, "data.train={source: a.en, target: a.de}"},
      {kCausal, "data.train.0.split=first"},
      {kCausal, "training.optimizer.rho=0.9"},
      {kCausal, "model.encoder_layers=2"},
      {kCausal, "training.label_smoothing=1"},
      {kImages, "data.augment.flip=left"},
      {kImages, "data.labels=one"},
      {kImages, "denoising={objective: infilling}"},
  };
  for (const auto& [text, override] : wrong) {
    EXPECT_NE(schema.problems(text, {override}), "") << override;
  }
}

}  // namespace
}  // namespace tapestry
