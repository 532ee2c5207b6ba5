// The smallest config of each task.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/apps/config/config_fixture.h"

namespace tapestry {

/// Where the corpora of a task stand in ConfigTest's folder.
inline const std::map<std::string, std::string> kCorpora = {
    {"translation", "{source: data/a.en, target: data/a.de}"},
    {"clm", "{text: data/c.txt}"},
    {"prompts", R"({jsonl: data/d.jsonl, prompt: "Q: {q}\nA:", answer: " {a}"})"},
    {"chat", "{jsonl: data/d.jsonl, messages_column: messages}"},
    {"preference", R"({jsonl: data/d.jsonl, prompt: "{q}", chosen: "{a}", rejected: "{b}"})"},
    {"mlm", "{text: data/c.txt}"},
    {"denoising", "{text: data/c.txt}"},
    {"classification", "{tsv: data/b.tsv}"},
    {"embedding", "{source: data/a.en, target: data/a.de}"},
    {"question_answering", "{squad: data/d.jsonl}"},
    {"multi_label", "{tsv: data/b.tsv}"},
    {"text_regression", "{tsv: data/b.tsv}"},
    {"token_classification", "{conll: data/c.txt}"},
    {"images", "{images: data/b.tsv}"}};

class TaskConfigTest : public ConfigTest {
 protected:
  static std::string text_of(const std::string& task) {
    return concat("task: ",
                  task == "images"                      ? "classification"
                  : task == "prompts" || task == "chat" ? "clm"
                                                        : task,
                  "\noutput_dir: run\ndata: {train: ", kCorpora.at(task),
                  "}\ntraining: {max_steps: 10}\n");
  }
  Config load(const std::string& task, const std::vector<std::string>& overrides = {}) const {
    return load_config(write(text_of(task)), overrides);
  }
};

}  // namespace tapestry
