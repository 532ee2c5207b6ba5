#include "apps/commands/distil/student.h"

#include <algorithm>
#include <filesystem>

#include "apps/commands/distil/selection.h"
#include "apps/config/sections.h"

namespace tapestry {
namespace {

// What belongs to the teacher's own training only.
void forget_training(Config& config) {
  config.init_from.clear();
  config.lora = {};
  config.training.freeze.clear();
  config.training.modules_to_save.clear();
  config.training.teacher.clear();
  config.training.alignments.clear();
  config.distributed.parts = 0;
  config.batch.mix = {};
}

// Keys of the tokenizers' files, which the config names without a folder: they lie beside it.
void name_tokenizers(const TokenizerPair& tokenizers,
                     const std::map<std::string, std::string>& files, Config& config) {
  TokenizerOptions& options = config.tokenizer;
  options.path.clear(), options.source_path.clear(), options.target_path.clear();
  const auto file_of = [&](const std::string& stem) {
    for (const char* const extension : {".model", ".txt", ".json"}) {
      if (files.contains(stem + extension)) return stem + extension;
    }
    fail(ErrorKind::kConfig, "[distil] no config can name the tokenizer of the first model.");
  };
  if (tokenizers.one()) {
    options.path = file_of("tokenizer");
  } else {
    options.source_path = file_of("source");
    options.target_path = file_of("target");
  }
}

// Sizes that follow from others must follow from the student's.
void forget_derived(const ModelOptions& model, ConfigNode& root) {
  ConfigEntry* const section = root.find("model");
  if (section == nullptr) return;
  std::erase_if(section->value.entries, [&](const ConfigEntry& entry) {
    return (entry.key == "num_key_value_heads" &&
            model.num_key_value_heads == model.num_attention_heads) ||
           (entry.key == "value_head_size" && model.value_head_size == model.chosen_head_size());
  });
}

}  // namespace

Student make_student(const Config& teacher, const TokenizerPair& tokenizers,
                     const std::vector<std::string>& overrides, bool weighted,
                     const std::string& folder) {
  Student student{.config = {}, .yaml = {}, .tokenizers = tokenizers.files()};
  Config config = teacher;
  forget_training(config);
  name_tokenizers(tokenizers, student.tokenizers, config);
  CorpusSpec corpus;
  corpus.records.path = kDistilledCorpus;
  corpus.source_column = "1";
  corpus.target_column = "2";
  if (weighted) corpus.pair_weight_column = "3";
  config.data.train = {corpus};
  config.output_dir = concat(folder, "/student");
  ConfigNode root = parse_config_text(to_yaml(config), kStudentConfig, folder);
  forget_derived(teacher.model, root);
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i), problems);
  }
  student.config = read_tree(root, {.check_files = false}, std::move(problems));
  student.yaml = to_yaml(root);
  return student;
}

}  // namespace tapestry
