// Models of text for tests of the commands that use them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tests/apps/tiny_runs.h"

namespace tapestry {

/// The models are trained once for each suite, when they are first asked for.
class LanguageRuns : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TinyRunFolder>("commands");
    std::string characters = concat(kTinyTasks.at("clm"), kTinyRun);
    const auto replace = [&](const std::string& from, const std::string& to) {
      characters.replace(characters.find(from), from.size(), to);
    };
    // One long document of characters, as in nanoGPT's recipe.
    replace("{text: train.src}", "{text: train.src, documents: file}");
    replace("{text: valid.src}", "{text: valid.src, documents: file}");
    replace("vocab_size: 40", "type: char");
    folder_->write("characters.yaml", characters);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  /// "--model <run>" of a trained model of this experiment.
  static std::string model(const std::string& task) {
    if (!std::filesystem::exists(folder_->path(task))) {
      EXPECT_EQ(folder_->train(task, task, {"training.max_steps=100"}), 0) << folder_->messages();
    }
    return concat("--model ", task, ' ');
  }

  inline static std::unique_ptr<TinyRunFolder> folder_;
};

}  // namespace tapestry
